/* Quantised products with SMMLA, which adds to a 2x2 block of int32 sums the products of two weight
 * rows and two rows of x over eight elements (quant_blocks.h has the formulas).
 *
 * Rows of x are quantised and packed in pairs, eight elements of one, eight of the other; a last
 * row without a partner is paired with itself. Weights of any type are unpacked and paired in
 * registers when there are few rows of x; otherwise they become panels of int8 pairs with their
 * scales spread over the 2x2 block. A lone row goes through the SDOT kernels: integer sums are
 * exact and the float part is the same, so the bits are too.
 *
 * Integer sums start from the bits of 1.5 * 2^23 instead of zero: the sum is then the low bits of a
 * float near 1.5 * 2^23 and one subtraction turns it into f32, where SCVTF would take two slots of
 * half of the vector pipes. That is exact below 2^22; a block of 32 reaches 32 * 128 * 127. */
#include "kernels/arm/arm.h"
#include "kernels/arm/panel.h"
#include "kernels/arm/quant_blocks.h"

#include <string.h>

enum {
    PANEL_OUTS = 32,
    STRIP_PAIRS = 2,  /* pairs of outputs of a register block */
    TILE_PAIRS = 4,   /* pairs of rows of a register block */
    DIRECT_ROWS = 16, /* up to here weights are unpacked in registers */
    CHUNK = 512       /* elements: panel chunk 24 KiB, x of a tile 6 KiB */
};

/* A block of one packed pair of rows; each vector is spread over the 2x2 block, rows inside. */
struct mm_x {
    int8_t q[QBLOCK / 8][16];
    float d[4];
    float sum[4]; /* d * sum q */
};

/* A block of one strip of a panel, outputs outside. b: the min, or the second half's scale. */
struct mm_w {
    int8_t q[QBLOCK / 8][STRIP_PAIRS][16];
    float a[STRIP_PAIRS][4];
    float b[STRIP_PAIRS][4];
};

/* Blocks from one packed pair to the next. */
static size_t pair_stride(int in)
{
    return (size_t)(in / QBLOCK);
}

static size_t packed_size(int n, int in)
{
    size_t one = matmul_dotprod(DTYPE_Q8_0)->packed_size(1, in);
    return n == 1 ? one : sizeof(struct mm_x) * (size_t)((n + 1) / 2) * pair_stride(in);
}

static void pack_block(struct mm_x *dst, const float *a, const float *b)
{
    const float *row[2] = { a, b };
    for (int r = 0; r < 2; r++) {
        int8_t q[QBLOCK];
        int sum;
        float d = quantise32(q, row[r], &sum), scaled = d * (float)sum;
        for (int i = 0; i < QBLOCK / 8; i++)
            memcpy(dst->q[i] + 8 * r, q + 8 * i, 8);
        dst->d[r] = dst->d[r + 2] = d;
        dst->sum[r] = dst->sum[r + 2] = scaled;
    }
}

static void pack_pairs(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    for (int r = r0; r < r1; r += 2) {
        const float *a = x + (size_t)r * stride, *b = r + 1 < n ? a + stride : a;
        struct mm_x *dst = (struct mm_x *)xp + (size_t)(r / 2) * pair_stride(in);
        for (int i = 0; i < in; i += QBLOCK)
            pack_block(dst++, a + i, b + i);
    }
}

/* Elements 0..7, then 8..15, of rows a and b. */
ALWAYS_INLINE void pair_up(int8x16_t *lo, int8x16_t *hi, int8x16_t a, int8x16_t b)
{
    int64x2_t a2 = vreinterpretq_s64_s8(a), b2 = vreinterpretq_s64_s8(b);
    *lo = vreinterpretq_s8_s64(vzip1q_s64(a2, b2));
    *hi = vreinterpretq_s8_s64(vzip2q_s64(a2, b2));
}

/* ---- panels ---- */

/* Scales of sub-block `sub` of the block at p; for K types after unpack_scales. */
struct row_scales {
    float d, min;
    uint8_t scale[8], mins[8];
};

ALWAYS_INLINE float load_f16(const uint8_t *p)
{
    float16_t h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}

ALWAYS_INLINE void read_scales(enum dtype t, struct row_scales *s, const uint8_t *p)
{
    s->d = load_f16(t == DTYPE_Q6_K ? p + 208 : p);
    if (!quant_has_min(t))
        return;
    s->min = load_f16(p + 2);
    if (quant_subs(t) == 1)
        return;
    uint8x8_t scale, min;
    unpack_scales(p + 4, &scale, &min);
    vst1_u8(s->scale, scale);
    vst1_u8(s->mins, min);
}

ALWAYS_INLINE void put_scales(enum dtype t, struct mm_w *dst, int pair, int row,
                              const struct row_scales *s, const uint8_t *p, int sub)
{
    float a = s->d, b = 0;
    if (t == DTYPE_Q6_K) {
        a = s->d * (float)(int8_t)p[192 + 2 * sub];
        b = s->d * (float)(int8_t)p[193 + 2 * sub];
    } else if (quant_has_min(t) && quant_subs(t) == 1) {
        b = -s->min;
    } else if (quant_has_min(t)) {
        a = s->d * (float)s->scale[sub];
        b = s->min * (float)s->mins[sub];
    }
    vst1_f32(dst->a[pair] + 2 * row, vdup_n_f32(a));
    if (t == DTYPE_Q6_K || quant_has_min(t))
        vst1_f32(dst->b[pair] + 2 * row, vdup_n_f32(b));
}

/* The block of one pair of rows, at p[0] and p[1], into the strip's blocks from dst on. */
ALWAYS_INLINE void load_pair(enum dtype t, struct mm_w *dst, int pair, const uint8_t *const *p)
{
    struct row_scales s[2];
    int parts = quant_parts(t);
    read_scales(t, &s[0], p[0]);
    read_scales(t, &s[1], p[1]);
    for (int g = 0; g < quant_subs(t) / parts; g++)
        UNROLL
    for (int i = 0; i < parts; i++, dst++) {
        int8x16x2_t a = unpack32(t, p[0], g, i, false), b = unpack32(t, p[1], g, i, false);
        for (int h = 0; h < 2; h++) {
            int8x16_t lo, hi;
            pair_up(&lo, &hi, a.val[h], b.val[h]);
            vst1q_s8(dst->q[2 * h][pair], lo);
            vst1q_s8(dst->q[2 * h + 1][pair], hi);
        }
        put_scales(t, dst, pair, 0, &s[0], p[0], g * parts + i);
        put_scales(t, dst, pair, 1, &s[1], p[1], g * parts + i);
    }
}

ALWAYS_INLINE void load_panel(enum dtype t, void *panel, const struct matrix *w, int o, int n_out,
                              int k0, int k1)
{
    int strips = (n_out + 2 * STRIP_PAIRS - 1) / (2 * STRIP_PAIRS);
    int span = QBLOCK * quant_subs(t);
    size_t size = (size_t)quant_block_size(t);
    for (int i = 0; i < strips * 2 * STRIP_PAIRS; i += 2) {
        size_t at = (size_t)(k0 / span) * size;
        const uint8_t *p[2] = { panel_row(w, o + i) + at, panel_row(w, o + i + 1) + at };
        int pair = i / 2;
        struct mm_w *dst = (struct mm_w *)panel + (pair / STRIP_PAIRS) * (CHUNK / QBLOCK);
        for (int k = k0; k < k1; k += span) {
            load_pair(t, dst, pair % STRIP_PAIRS, p);
            p[0] += size;
            p[1] += size;
            dst += quant_subs(t);
        }
    }
}

/* ---- register blocks ---- */

ALWAYS_INLINE float32x4_t sum_of(int32x4_t s, float32x4_t magic)
{
    return vsubq_f32(vreinterpretq_f32_s32(s), magic);
}

/* Elements [8 i0, 8 i1) of a block: integer sums of all 2x2 blocks. */
ALWAYS_INLINE void sum_block(int np, int32x4_t (*s)[STRIP_PAIRS], const struct mm_w *w,
                             const struct mm_x *x, size_t xs, int i0, int i1, float32x4_t magic)
{
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        s[p][o] = vreinterpretq_s32_f32(magic);
    UNROLL
    for (int i = i0; i < i1; i++) {
        int8x16_t a[STRIP_PAIRS];
        UNROLL
        for (int o = 0; o < STRIP_PAIRS; o++)
            a[o] = vld1q_s8(w->q[i][o]);
        UNROLL
        for (int p = 0; p < np; p++) {
            int8x16_t b = vld1q_s8(x[(size_t)p * xs].q[i]);
            UNROLL
            for (int o = 0; o < STRIP_PAIRS; o++)
                s[p][o] = vmmlaq_s32(s[p][o], a[o], b);
        }
        keep_order();
    }
}

ALWAYS_INLINE void add_block(int np, float32x4_t (*acc)[STRIP_PAIRS], int32x4_t (*s)[STRIP_PAIRS],
                             const float32x4_t *a, const struct mm_x *x, size_t xs,
                             float32x4_t magic)
{
    UNROLL
    for (int p = 0; p < np; p++) {
        float32x4_t d = vld1q_f32(x[(size_t)p * xs].d);
        UNROLL
        for (int o = 0; o < STRIP_PAIRS; o++)
            acc[p][o] = vfmaq_f32(acc[p][o], sum_of(s[p][o], magic), vmulq_f32(a[o], d));
    }
}

ALWAYS_INLINE void add_mins(int np, float32x4_t (*acc)[STRIP_PAIRS], const float32x4_t *m,
                            const struct mm_x *x, size_t xs)
{
    UNROLL
    for (int p = 0; p < np; p++) {
        float32x4_t sum = vld1q_f32(x[(size_t)p * xs].sum);
        UNROLL
        for (int o = 0; o < STRIP_PAIRS; o++)
            acc[p][o] = vfmsq_f32(acc[p][o], m[o], sum);
    }
}

/* np pairs of rows by one strip; mem: accumulators [row pair][output pair][4]. np and t are
 * constants; of t only whether it has mins or halves matters. */
ALWAYS_INLINE void strip_run(enum dtype t, int np, const struct panel_tile *tile, float *mem,
                             const struct mm_w *w, const uint8_t *ahead)
{
    size_t xs = pair_stride(tile->in);
    const struct mm_x *x =
        (const struct mm_x *)tile->xp + (size_t)(tile->row / 2) * xs + tile->k0 / QBLOCK;
    float32x4_t acc[TILE_PAIRS][STRIP_PAIRS], magic = vdupq_n_f32(0x1.8p23f);
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        acc[p][o] = tile->k0 ? vld1q_f32(mem + (size_t)p * 2 * PANEL_OUTS + 4 * o) : vdupq_n_f32(0);
    for (int k = tile->k0; k < tile->k1; k += QBLOCK, w++, x++, ahead += PANEL_LINE) {
        int32x4_t s[TILE_PAIRS][STRIP_PAIRS];
        __builtin_prefetch(ahead, 0, 2);
        sum_block(np, s, w, x, xs, 0, t == DTYPE_Q6_K ? 2 : 4, magic);
        float32x4_t a[STRIP_PAIRS] = { vld1q_f32(w->a[0]), vld1q_f32(w->a[1]) };
        add_block(np, acc, s, a, x, xs, magic);
        if (t != DTYPE_Q6_K && !quant_has_min(t))
            continue;
        float32x4_t b[STRIP_PAIRS] = { vld1q_f32(w->b[0]), vld1q_f32(w->b[1]) };
        if (t == DTYPE_Q6_K) {
            sum_block(np, s, w, x, xs, 2, 4, magic);
            add_block(np, acc, s, b, x, xs, magic);
        } else {
            add_mins(np, acc, b, x, xs);
        }
    }
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        vst1q_f32(mem + (size_t)p * 2 * PANEL_OUTS + 4 * o, acc[p][o]);
}

ALWAYS_INLINE void tile_run(enum dtype t, const struct panel_tile *tile)
{
    const uint8_t *ahead = tile->ahead;
    for (int s = 0; 2 * s * STRIP_PAIRS < tile->outs; s++) {
        float *mem = tile->acc + (size_t)s * STRIP_PAIRS * 4;
        const struct mm_w *w = (const struct mm_w *)tile->panel + (size_t)s * (CHUNK / QBLOCK);
        switch ((tile->rows + 1) / 2) {
        case 1:
            strip_run(t, 1, tile, mem, w, ahead);
            break;
        case 2:
            strip_run(t, 2, tile, mem, w, ahead);
            break;
        case 3:
            strip_run(t, 3, tile, mem, w, ahead);
            break;
        default:
            strip_run(t, 4, tile, mem, w, ahead);
            break;
        }
        ahead += (size_t)((tile->k1 - tile->k0) / QBLOCK) * PANEL_LINE;
    }
}

static void tile_plain(const struct panel_tile *t)
{
    tile_run(DTYPE_Q8_0, t);
}

static void tile_min(const struct panel_tile *t)
{
    tile_run(DTYPE_Q4_K, t);
}

static void tile_halves(const struct panel_tile *t)
{
    tile_run(DTYPE_Q6_K, t);
}

static void store(float *y, size_t y_stride, const float *acc, int rows, int n_out,
                  const float *bias)
{
    for (int r = 0; r < rows; r += 2)
        for (int i = 0; i < n_out; i += 4) {
            const float *mem = acc + (size_t)r * PANEL_OUTS + 2 * i;
            store_pair(y + (size_t)r * y_stride + i, y_stride, vld1q_f32(mem), vld1q_f32(mem + 4),
                       n_out - i, r + 1 < rows, bias ? bias + i : NULL);
        }
}

/* ---- few rows: weights unpacked and paired in registers ---- */

/* A block of four outputs: integer sums of all 2x2 blocks, elements [16 h0, 16 h1). */
ALWAYS_INLINE void sum_direct(int np, int32x4_t (*s)[STRIP_PAIRS], const int8x16x2_t *w,
                              const struct mm_x *x, size_t xs, int h0, int h1, float32x4_t magic)
{
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        s[p][o] = vreinterpretq_s32_f32(magic);
    UNROLL
    for (int h = h0; h < h1; h++) {
        int8x16_t a[2][STRIP_PAIRS];
        UNROLL
        for (int o = 0; o < STRIP_PAIRS; o++)
            pair_up(&a[0][o], &a[1][o], w[2 * o].val[h], w[2 * o + 1].val[h]);
        UNROLL
        for (int i = 0; i < 2; i++)
            UNROLL
        for (int p = 0; p < np; p++) {
            int8x16_t b = vld1q_s8(x[(size_t)p * xs].q[2 * h + i]);
            UNROLL
            for (int o = 0; o < STRIP_PAIRS; o++)
                s[p][o] = vmmlaq_s32(s[p][o], a[i][o], b);
        }
        keep_order();
    }
}

ALWAYS_INLINE void block_direct(enum dtype t, int np, float32x4_t (*acc)[STRIP_PAIRS],
                                const int8x16x2_t *w, struct quant_scales k, const struct mm_x *x,
                                size_t xs, float32x4_t magic)
{
    int32x4_t s[TILE_PAIRS][STRIP_PAIRS];
    float32x4_t a[STRIP_PAIRS] = { vzip1q_f32(k.a, k.a), vzip2q_f32(k.a, k.a) };
    float32x4_t b[STRIP_PAIRS] = { vzip1q_f32(k.b, k.b), vzip2q_f32(k.b, k.b) };
    if (t == DTYPE_Q6_K) {
        sum_direct(np, s, w, x, xs, 0, 1, magic);
        add_block(np, acc, s, a, x, xs, magic);
        sum_direct(np, s, w, x, xs, 1, 2, magic);
        add_block(np, acc, s, b, x, xs, magic);
        return;
    }
    sum_direct(np, s, w, x, xs, 0, 2, magic);
    add_block(np, acc, s, a, x, xs, magic);
    if (quant_has_min(t))
        add_mins(np, acc, b, x, xs);
}

/* Four outputs from o on, n_out of them written, of n rows in np pairs. t and np are constants. */
ALWAYS_INLINE void direct(enum dtype t, int np, float *y, size_t y_stride, const struct mm_x *x,
                          int n, const struct matrix *w, int o, int n_out)
{
    const uint8_t *row[QUANT_ROWS];
    float32x4_t acc[TILE_PAIRS][STRIP_PAIRS], magic = vdupq_n_f32(0x1.8p23f);
    size_t size = (size_t)quant_block_size(t), xs = pair_stride(w->in);
    int blocks = w->in / QBLOCK / quant_subs(t), parts = quant_parts(t);
    UNROLL
    for (int i = 0; i < QUANT_ROWS; i++)
        row[i] = panel_row(w, o + i);
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int i = 0; i < STRIP_PAIRS; i++)
        acc[p][i] = vdupq_n_f32(0);
    struct row_ahead ahead = row_ahead_init(row[0], w->row_size, QUANT_ROWS, size);
    for (int b = 0; b < blocks; b++, ahead.p += ahead.step) {
        size_t at = (size_t)b * size;
        float32x4_t k[16];
        UNROLL
        for (int i = 0; i < QUANT_ROWS; i++)
            row_prefetch(&ahead, i, size);
        quant_scales_load(t, k, row, at);
        for (int g = 0; g < quant_subs(t) / parts; g++)
            UNROLL
        for (int p = 0; p < parts; p++, x++) {
            int8x16x2_t q[QUANT_ROWS];
            UNROLL
            for (int i = 0; i < QUANT_ROWS; i++)
                q[i] = unpack32(t, row[i] + at, g, p, false);
            block_direct(t, np, acc, q, quant_scales_of(t, k, g * parts + p), x, xs, magic);
        }
    }
    UNROLL
    for (int p = 0; p < np; p++)
        store_pair(y + 2 * (size_t)p * y_stride + o, y_stride, acc[p][0], acc[p][1], n_out,
                   2 * p + 1 < n, w->bias ? w->bias + o : NULL);
}

ALWAYS_INLINE void direct_rows(enum dtype t, float *y, size_t y_stride, const struct mm_x *x, int n,
                               const struct matrix *w, int o0, int o1)
{
    int passes = (n + 2 * TILE_PAIRS - 1) / (2 * TILE_PAIRS), pairs = (n + 1) / 2;
    for (int o = o0; o < o1; o += QUANT_ROWS)
        for (int i = 0; i < passes; i++) {
            int p0 = pairs * i / passes, p1 = pairs * (i + 1) / passes;
            int n_out = panel_min(QUANT_ROWS, o1 - o), rows = n - 2 * p0;
            float *to = y + 2 * (size_t)p0 * y_stride;
            const struct mm_x *from = x + (size_t)p0 * pair_stride(w->in);
            switch (p1 - p0) {
            case 1:
                direct(t, 1, to, y_stride, from, rows, w, o, n_out);
                break;
            case 2:
                direct(t, 2, to, y_stride, from, rows, w, o, n_out);
                break;
            case 3:
                direct(t, 3, to, y_stride, from, rows, w, o, n_out);
                break;
            default:
                direct(t, 4, to, y_stride, from, rows, w, o, n_out);
                break;
            }
        }
}

/* ---- one kernel per type ---- */

#define MM_PANEL(load_fn, tile_fn)                                                                 \
    {                                                                                              \
        .outs = PANEL_OUTS, .rows = 2 * TILE_PAIRS, .unit = 2, .chunk = CHUNK, .step = QBLOCK / 8, \
        .panel_size = sizeof(struct mm_w) * (PANEL_OUTS / 2 / STRIP_PAIRS) * (CHUNK / QBLOCK),     \
        .acc_row = PANEL_OUTS, .x_size = packed_size, .load = load_fn, .tile = tile_fn,            \
        .store = store                                                                             \
    }

#define MM_TYPE(name, t, tile_fn)                                                                  \
    static void load_##name(void *panel, const struct matrix *w, int o, int n_out, int k0, int k1) \
    {                                                                                              \
        load_panel(t, panel, w, o, n_out, k0, k1);                                                 \
    }                                                                                              \
    static const struct panel_kernel panel_##name = MM_PANEL(load_##name, tile_fn);                \
    static void pack_##name(void *xp, const float *x, size_t stride, int n, int in, int r0,        \
                            int r1)                                                                \
    {                                                                                              \
        pack_any(t, xp, x, stride, n, in, r0, r1);                                                 \
    }                                                                                              \
    static void run_##name(float *y, size_t y_stride, const void *xp, int n,                       \
                           const struct matrix *w, int o0, int o1, void *scratch)                  \
    {                                                                                              \
        run_any(t, &panel_##name, y, y_stride, xp, n, w, o0, o1, scratch);                         \
    }

static void pack_any(enum dtype t, void *xp, const float *x, size_t stride, int n, int in, int r0,
                     int r1)
{
    if (n == 1)
        matmul_dotprod(t)->pack(xp, x, stride, n, in, r0, r1);
    else
        pack_pairs(xp, x, stride, n, in, r0, r1);
}

ALWAYS_INLINE void run_any(enum dtype t, const struct panel_kernel *p, float *y, size_t y_stride,
                           const void *xp, int n, const struct matrix *w, int o0, int o1,
                           void *scratch)
{
    if (n == 1)
        matmul_dotprod(t)->run(y, y_stride, xp, n, w, o0, o1, scratch);
    else if (n <= DIRECT_ROWS)
        direct_rows(t, y, y_stride, xp, n, w, o0, o1);
    else
        panel_run(p, y, y_stride, xp, n, w, o0, o1, scratch);
}

MM_TYPE(q8_0, DTYPE_Q8_0, tile_plain)
MM_TYPE(q4_0, DTYPE_Q4_0, tile_plain)
MM_TYPE(q5_0, DTYPE_Q5_0, tile_plain)
MM_TYPE(q4_k, DTYPE_Q4_K, tile_min)
MM_TYPE(q5_k, DTYPE_Q5_K, tile_min)
MM_TYPE(q6_k, DTYPE_Q6_K, tile_halves)
MM_TYPE(q4_1, DTYPE_Q4_1, tile_min)
MM_TYPE(q5_1, DTYPE_Q5_1, tile_min)
MM_TYPE(iq4_nl, DTYPE_IQ4_NL, tile_plain)

static size_t scratch_size(int in)
{
    (void)in;
    return panel_scratch(&panel_q8_0);
}

#define MM_KERNEL(name_)                                                                           \
    {                                                                                              \
        .name = "i8mm", .in_multiple = QBLOCK, .row_step = 2, .out_step = PANEL_OUTS,              \
        .packed_size = packed_size, .scratch_size = scratch_size, .pack = pack_##name_,            \
        .run = run_##name_                                                                         \
    }

static const struct matmul_kernel kernels_mm[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = MM_KERNEL(q8_0),     [DTYPE_Q4_0] = MM_KERNEL(q4_0),
    [DTYPE_Q5_0] = MM_KERNEL(q5_0),     [DTYPE_Q4_K] = MM_KERNEL(q4_k),
    [DTYPE_Q5_K] = MM_KERNEL(q5_k),     [DTYPE_Q6_K] = MM_KERNEL(q6_k),
    [DTYPE_Q4_1] = MM_KERNEL(q4_1),     [DTYPE_Q5_1] = MM_KERNEL(q5_1),
    [DTYPE_IQ4_NL] = MM_KERNEL(iq4_nl),
};

void kernels_init_i8mm(struct kernels *k)
{
    for (int t = DTYPE_Q8_0; t < DTYPE_COUNT; t++)
        k->matmul[t] = &kernels_mm[t];
}
