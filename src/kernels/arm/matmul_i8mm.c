/* Quantised products with SMMLA, which adds to a 2x2 block of int32 sums the products of two weight
 * rows and two rows of x over eight elements (quant_blocks.h has the formulas).
 *
 * Rows of x are quantised and packed in pairs, eight elements of one, eight of the other; a last
 * row without a partner is paired with itself. A block of four weight rows (a strip) is unpacked
 * and paired, its scales spread over the 2x2 blocks: in registers when there are few rows of x,
 * otherwise in panels of int8 that many rows share. Either way a strip's block stays in eight
 * registers while up to TILE_PAIRS pairs of rows pass by, each with its float accumulators in
 * registers too. A lone row goes through the SDOT kernels: integer sums are exact and the float
 * part is the same, so the bits are too.
 *
 * Integer sums start from the bits of 1.5 * 2^23 instead of zero: the sum is then the low bits of a
 * float near 1.5 * 2^23 and one subtraction turns it into f32, where SCVTF would take two slots of
 * half of the vector pipes. That is exact below 2^22; a block of 32 reaches 32 * 128 * 127. For
 * Q4_0 in registers they start lower by 8 sum q, which spares taking 8 off each weight. */
#include "kernels/arm/arm.h"
#include "kernels/arm/panel.h"
#include "kernels/arm/quant_blocks.h"

#include <string.h>

enum {
    PANEL_OUTS = 32,
    STRIP_PAIRS = 2, /* pairs of outputs of a register block */
    STRIP_OUTS = 2 * STRIP_PAIRS,
    STEPS = QBLOCK / 8, /* SMMLA of a block */
    TILE_PAIRS = 7,     /* pairs of rows of a register block: 14 accumulators, 8 weights */
    DIRECT_ROWS = 2 * TILE_PAIRS, /* up to here weights are unpacked in registers */
    CHUNK = 512,                  /* elements: panel chunk 24 KiB, x of a tile 11 KiB */
    START = 0x4b400000            /* bits of 1.5 * 2^23 */
};

/* A block of one packed pair of rows; each vector is spread over the 2x2 block, rows inside. */
struct mm_x {
    int8_t q[STEPS][16];
    float d[4];
    union {
        float sum[4];     /* d * sum q */
        int32_t start[4]; /* Q4_0: START - 8 sum q */
    };
};

/* A block of one strip of a panel, outputs outside. b: the min, or the second half's scale. */
struct mm_w {
    int8_t q[STEPS][STRIP_PAIRS][16];
    float a[STRIP_PAIRS][4];
    float b[STRIP_PAIRS][4];
};

/* The same in registers. */
struct mm_block {
    int8x16_t q[STEPS][STRIP_PAIRS];
    float32x4_t a[STRIP_PAIRS], b[STRIP_PAIRS];
};

/* Packed pairs are [tile of pairs][block][pair of the tile]: the loads of a tile are one stream, at
 * fixed distances. Pairs of a tile, for n rows: */
static int tile_pairs(int n)
{
    return panel_min((n + 1) / 2, TILE_PAIRS);
}

static size_t packed_size(int n, int in)
{
    size_t one = matmul_dotprod(DTYPE_Q8_0)->packed_size(1, in);
    int wide = tile_pairs(n), tiles = ((n + 1) / 2 + wide - 1) / wide;
    return n == 1 ? one : sizeof(struct mm_x) * (size_t)(tiles * wide) * (size_t)(in / QBLOCK);
}

ALWAYS_INLINE void pack_block(enum dtype t, struct mm_x *dst, const float *a, const float *b)
{
    const float *row[2] = { a, b };
    for (int r = 0; r < 2; r++) {
        int8_t q[QBLOCK];
        int sum;
        float d = quantise32(q, row[r], &sum), scaled = d * (float)sum;
        for (int i = 0; i < STEPS; i++)
            memcpy(dst->q[i] + 8 * r, q + 8 * i, 8);
        dst->d[r] = dst->d[r + 2] = d;
        if (t == DTYPE_Q4_0)
            dst->start[r] = dst->start[r + 2] = START - 8 * sum;
        else
            dst->sum[r] = dst->sum[r + 2] = scaled;
    }
}

ALWAYS_INLINE void pack_pairs(enum dtype t, void *xp, const float *x, size_t stride, int n, int in,
                              int r0, int r1)
{
    int wide = tile_pairs(n), blocks = in / QBLOCK;
    for (int r = r0; r < r1; r += 2) {
        const float *a = x + (size_t)r * stride, *b = r + 1 < n ? a + stride : a;
        int tile = r / 2 / wide, pair = r / 2 % wide;
        struct mm_x *dst = (struct mm_x *)xp + (size_t)tile * (size_t)(blocks * wide) + pair;
        for (int i = 0; i < in; i += QBLOCK, dst += wide)
            pack_block(t, dst, a + i, b + i);
    }
}

/* ---- blocks of weights ---- */

ALWAYS_INLINE bool has_second(enum dtype t)
{
    return t == DTYPE_Q6_K || quant_has_min(t);
}

/* From four unpacked rows and their scales. */
ALWAYS_INLINE void block_pair(struct mm_block *w, const int8x16x2_t *rows, struct quant_scales k)
{
    UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        UNROLL
    for (int h = 0; h < 2; h++) {
        int64x2_t a = vreinterpretq_s64_s8(rows[2 * o].val[h]);
        int64x2_t b = vreinterpretq_s64_s8(rows[2 * o + 1].val[h]);
        w->q[2 * h][o] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
        w->q[2 * h + 1][o] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
    }
    w->a[0] = vzip1q_f32(k.a, k.a);
    w->a[1] = vzip2q_f32(k.a, k.a);
    w->b[0] = vzip1q_f32(k.b, k.b);
    w->b[1] = vzip2q_f32(k.b, k.b);
}

ALWAYS_INLINE void block_write(enum dtype t, struct mm_w *dst, const struct mm_block *w)
{
    UNROLL
    for (int i = 0; i < STEPS; i++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        vst1q_s8(dst->q[i][o], w->q[i][o]);
    UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++) {
        vst1q_f32(dst->a[o], w->a[o]);
        if (has_second(t))
            vst1q_f32(dst->b[o], w->b[o]);
    }
}

ALWAYS_INLINE void block_read(enum dtype t, struct mm_block *w, const struct mm_w *src)
{
    UNROLL
    for (int i = 0; i < STEPS; i++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        w->q[i][o] = vld1q_s8(src->q[i][o]);
    UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++) {
        w->a[o] = vld1q_f32(src->a[o]);
        w->b[o] = has_second(t) ? vld1q_f32(src->b[o]) : w->a[o];
    }
}

ALWAYS_INLINE void load_strip(enum dtype t, struct mm_w *dst, const struct matrix *w, int o, int k0,
                              int k1)
{
    int subs = quant_subs(t), parts = quant_parts(t);
    size_t size = (size_t)quant_block_size(t), end = (size_t)(k1 / QBLOCK / subs) * size;
    const uint8_t *row[STRIP_OUTS];
    for (int i = 0; i < STRIP_OUTS; i++)
        row[i] = panel_row(w, o + i);
    for (size_t at = (size_t)(k0 / QBLOCK / subs) * size; at < end; at += size) {
        float32x4_t k[16];
        quant_scales_load(t, k, row, at);
        for (int g = 0; g < subs / parts; g++)
            UNROLL
        for (int p = 0; p < parts; p++, dst++) {
            int8x16x2_t q[STRIP_OUTS];
            struct mm_block block;
            UNROLL
            for (int i = 0; i < STRIP_OUTS; i++)
                q[i] = unpack32(t, row[i] + at, g, p, false);
            block_pair(&block, q, quant_scales_of(t, k, g * parts + p));
            block_write(t, dst, &block);
        }
    }
}

ALWAYS_INLINE void load_panel(enum dtype t, void *panel, const struct matrix *w, int o, int n_out,
                              int k0, int k1)
{
    struct mm_w *dst = panel;
    for (int i = 0; i < n_out; i += STRIP_OUTS, dst += CHUNK / QBLOCK)
        load_strip(t, dst, w, o + i, k0, k1);
}

/* ---- register blocks ---- */

/* Steps [i0, i1) of a block: its sums for one pair of rows, times the scales. */
ALWAYS_INLINE void add_sums(float32x4_t *acc, const struct mm_block *w, const float32x4_t *scale,
                            const int8x16_t *q, float32x4_t d, int i0, int i1, int32x4_t start,
                            float32x4_t magic)
{
    int32x4_t s[STRIP_PAIRS];
    UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        s[o] = start;
    UNROLL
    for (int i = i0; i < i1; i++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        s[o] = vmmlaq_s32(s[o], w->q[i][o], q[i]);
    UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        acc[o] = vfmaq_f32(acc[o], vsubq_f32(vreinterpretq_f32_s32(s[o]), magic),
                           vmulq_f32(scale[o], d));
}

/* A block of a strip for np pairs of rows. t and np are constants; of t only whether it has mins,
 * halves or weights that are 8 too large matters. Returns x. */
ALWAYS_INLINE const struct mm_x *add_block(enum dtype t, int np, float32x4_t (*acc)[STRIP_PAIRS],
                                           const struct mm_block *w, const struct mm_x *x)
{
    float32x4_t magic = vdupq_n_f32(0x1.8p23f);
    UNROLL
    for (int p = 0; p < np; p++) {
        int32x4_t start = t == DTYPE_Q4_0 ? vld1q_s32(x[p].start) : vreinterpretq_s32_f32(magic);
        float32x4_t d = vld1q_f32(x[p].d);
        int8x16_t q[STEPS];
        UNROLL
        for (int i = 0; i < STEPS; i++)
            q[i] = vld1q_s8(x[p].q[i]);
        add_sums(acc[p], w, w->a, q, d, 0, t == DTYPE_Q6_K ? 2 : STEPS, start, magic);
        if (t == DTYPE_Q6_K)
            add_sums(acc[p], w, w->b, q, d, 2, STEPS, start, magic);
        if (quant_has_min(t)) {
            float32x4_t sum = vld1q_f32(x[p].sum);
            UNROLL
            for (int o = 0; o < STRIP_PAIRS; o++)
                acc[p][o] = vfmsq_f32(acc[p][o], w->b[o], sum);
        }
        x = keep_after(x, acc[p][0]);
    }
    return x;
}

/* np pairs of rows by one strip; mem: accumulators [row pair][output pair][4]. */
ALWAYS_INLINE void strip_run(enum dtype t, int np, const struct panel_tile *tile, float *mem,
                             const struct mm_w *w, const uint8_t *ahead)
{
    const struct mm_x *x = (const struct mm_x *)tile->xp +
                           (size_t)(tile->row / 2) * (size_t)(tile->in / QBLOCK) +
                           (size_t)(tile->k0 / QBLOCK) * TILE_PAIRS;
    float32x4_t acc[TILE_PAIRS][STRIP_PAIRS];
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        acc[p][o] = tile->k0 ? vld1q_f32(mem + (size_t)p * 2 * PANEL_OUTS + 4 * o) : vdupq_n_f32(0);
    for (int k = tile->k0; k < tile->k1; k += QBLOCK, w++, ahead += PANEL_LINE) {
        struct mm_block block;
        __builtin_prefetch(ahead, 0, 2);
        block_read(t, &block, w);
        x = add_block(t, np, acc, &block, x) + TILE_PAIRS;
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
        case 4:
            strip_run(t, 4, tile, mem, w, ahead);
            break;
        case 5:
            strip_run(t, 5, tile, mem, w, ahead);
            break;
        case 6:
            strip_run(t, 6, tile, mem, w, ahead);
            break;
        default:
            strip_run(t, 7, tile, mem, w, ahead);
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

/* The four outputs of f, of n rows in np pairs. t and np are constants. */
ALWAYS_INLINE void direct(enum dtype t, int np, float *y, size_t y_stride, const struct mm_x *x,
                          int n, const struct matrix *w, const struct far_walk *f)
{
    const uint8_t *row[STRIP_OUTS];
    float32x4_t acc[TILE_PAIRS][STRIP_PAIRS];
    size_t size = (size_t)quant_block_size(t);
    int subs = quant_subs(t), parts = quant_parts(t), blocks = w->in / QBLOCK / subs;
    UNROLL
    for (int i = 0; i < STRIP_OUTS; i++)
        row[i] = far_row(f, w, i);
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int i = 0; i < STRIP_PAIRS; i++)
        acc[p][i] = vdupq_n_f32(0);
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)b * size;
        float32x4_t k[16];
        quant_scales_load(t, k, row, at);
        for (int g = 0; g < subs / parts; g++)
            UNROLL
        for (int p = 0; p < parts; p++) {
            int8x16x2_t q[STRIP_OUTS];
            struct mm_block block;
            UNROLL
            for (int i = 0; i < STRIP_OUTS; i++)
                q[i] = unpack32(t, row[i] + at, g, p, true);
            block_pair(&block, q, quant_scales_of(t, k, g * parts + p));
            x = add_block(t, np, acc, &block, x) + np;
        }
    }
    UNROLL
    for (int p = 0; p < np; p++)
        store_pair_apart(y + 2 * (size_t)p * y_stride + f->o, y_stride, (size_t)f->apart, acc[p][0],
                         acc[p][1], f->n_out, 2 * p + 1 < n, w->bias ? w->bias + f->o : NULL);
}

ALWAYS_INLINE void direct_rows(enum dtype t, float *y, size_t y_stride, const struct mm_x *x, int n,
                               const struct matrix *w, int o0, int o1)
{
    struct far_walk f = far_walk(o0, o1, STRIP_OUTS);
    while (far_next(&f))
        switch ((n + 1) / 2) {
        case 1:
            direct(t, 1, y, y_stride, x, n, w, &f);
            break;
        case 2:
            direct(t, 2, y, y_stride, x, n, w, &f);
            break;
        case 3:
            direct(t, 3, y, y_stride, x, n, w, &f);
            break;
        case 4:
            direct(t, 4, y, y_stride, x, n, w, &f);
            break;
        case 5:
            direct(t, 5, y, y_stride, x, n, w, &f);
            break;
        case 6:
            direct(t, 6, y, y_stride, x, n, w, &f);
            break;
        default:
            direct(t, 7, y, y_stride, x, n, w, &f);
            break;
        }
}

/* ---- one kernel per type ---- */

#define MM_PANEL(load_fn, tile_fn)                                                                 \
    {                                                                                              \
        .outs = PANEL_OUTS, .rows = 2 * TILE_PAIRS, .unit = 2 * TILE_PAIRS, .chunk = CHUNK,        \
        .step = QBLOCK / 8,                                                                        \
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

ALWAYS_INLINE void pack_any(enum dtype t, void *xp, const float *x, size_t stride, int n, int in,
                            int r0, int r1)
{
    if (n == 1)
        matmul_dotprod(t)->pack(xp, x, stride, n, in, r0, r1);
    else
        pack_pairs(t, xp, x, stride, n, in, r0, r1);
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
