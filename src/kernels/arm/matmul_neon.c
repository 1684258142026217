/* Products by F32, F16 and BF16 weights with baseline NEON.
 *
 * y[r][o] = sum_i x[r][i] W[o][i]: weights are widened to f32, x stays f32. Lane l of one vector
 * accumulator per (row, output) sums the elements i = l mod 4 in rising order by fused
 * multiply-add; at the end the lanes are added as (0 + 1) + (2 + 3). Every path below keeps this
 * sequence. `in` is padded with zeros to a multiple of 8, in x and in the weights read.
 *
 * F16 is widened by integer shifts, twice as fast as FCVTL on the Neoverse cores: a half's bits
 * placed under an f32 exponent are the value times 2^-112 (subnormals included). x is packed times
 * 2^96 and the sums are multiplied by 2^16, all exact. */
#include "kernels/arm/arm.h"
#include "kernels/arm/lanes.h"
#include "kernels/arm/panel.h"

enum {
    LONE_OUTS = 16,   /* outputs of a lone row's pass, */
    LONE_STEP = 8,    /* so many side by side, a cache line of each or two: more would not fit in
                         the ways of L1 where rows are a power of two long */
    PLAIN_OUTS = 16,  /* outputs of a panel */
    STRIP = 4,        /* outputs of a register block */
    PASS_ROWS = 4,    /* rows of a pass in which a strip's weights are widened in registers */
    TWIN_OUTS = 2,    /* outputs of a pass of more rows than that, */
    DIRECT_ROWS = 8,  /* and its rows at most; with more, weights are widened to a panel */
    PACK_ROWS = 8,    /* rows that one thread packs: those of a tile share cache lines */
    TILE_ROWS = 6,    /* rows of a register block over a panel */
    PLAIN_CHUNK = 512 /* elements: panel chunk 32 KiB, x of a tile 12 KiB */
};

static const struct panel_kernel f32_panel;

static int pad8(int in)
{
    return (in + 7) & ~7;
}

static size_t plain_packed_size(int n, int in)
{
    return sizeof(float) * (size_t)n * (size_t)pad8(in);
}

/* Packed rows lie tile by tile as [k / 4][row of the tile][4], so that the loads of a tile are one
 * stream at fixed distances. Up to DIRECT_ROWS rows are one tile. Returns the tile of a row. */
static struct panel_part tile_of(int n, int in, int row)
{
    struct panel_part all = { .row = 0, .rows = n };
    return n <= DIRECT_ROWS ? all : panel_part_of(&f32_panel, n, in, row);
}

static void pack_scaled(float *xp, const float *x, size_t stride, int n, int in, int r0, int r1,
                        float scale)
{
    for (int r = r0; r < r1; r++) {
        struct panel_part tile = tile_of(n, in, r);
        const float *src = x + (size_t)r * stride;
        float *dst = xp + (size_t)tile.row * (size_t)pad8(in) + 4 * (size_t)(r - tile.row);
        size_t step = 4 * (size_t)tile.rows;
        int i = 0;
        for (; i + 4 <= in; i += 4, dst += step)
            vst1q_f32(dst, vmulq_n_f32(vld1q_f32(src + i), scale));
        for (; i < pad8(in); i += 4, dst += step)
            for (int j = 0; j < 4; j++)
                dst[j] = i + j < in ? src[i + j] * scale : 0;
    }
}

static void plain_pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    pack_scaled(xp, x, stride, n, in, r0, r1, 1.0f);
}

static void f16_pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    pack_scaled(xp, x, stride, n, in, r0, r1, 0x1p96f);
}

/* ---- widening ---- */

ALWAYS_INLINE float32x4x2_t widen8(enum dtype t, const uint8_t *p)
{
    float32x4x2_t v;
    if (t == DTYPE_F32) {
        v.val[0] = vreinterpretq_f32_u8(vld1q_u8(p));
        v.val[1] = vreinterpretq_f32_u8(vld1q_u8(p + 16));
    } else if (t == DTYPE_BF16) {
        uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));
        v.val[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16));
        v.val[1] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(h), 16));
    } else {
        int16x8_t h = vreinterpretq_s16_u8(vld1q_u8(p));
        int32x4_t mask = vdupq_n_s32((int32_t)0x8fffffffu);
        v.val[0] = vreinterpretq_f32_s32(vandq_s32(vshll_n_s16(vget_low_s16(h), 13), mask));
        v.val[1] = vreinterpretq_f32_s32(vandq_s32(vshll_n_s16(vget_high_s16(h), 13), mask));
    }
    return v;
}

/* Four accumulators to four sums. */
ALWAYS_INLINE float32x4_t sum4(const float32x4_t *a)
{
    return vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3]));
}

/* ---- few rows: weights from memory to registers ---- */

ALWAYS_INLINE void direct_step(enum dtype t, int mo, int nr, float32x4_t (*acc)[DIRECT_ROWS],
                               const uint8_t *const *row, size_t at, const float *x)
{
    float32x4x2_t w[LONE_OUTS]; /* mo of them */
    UNROLL
    for (int o = 0; o < mo; o++)
        w[o] = widen8(t, row[o] + at);
    UNROLL
    for (int r = 0; r < nr; r++) {
        float32x4_t lo = vld1q_f32(x + 4 * r), hi = vld1q_f32(x + 4 * (nr + r));
        UNROLL
        for (int o = 0; o < mo; o++)
            acc[o][r] = vfmaq_f32(acc[o][r], w[o].val[0], lo);
        UNROLL
        for (int o = 0; o < mo; o++)
            acc[o][r] = vfmaq_f32(acc[o][r], w[o].val[1], hi);
        if (r % 2)
            keep_order();
    }
}

/* Write the sums of the accumulators to y: of outputs in groups of four, and of two outputs. */
ALWAYS_INLINE void strip_store(enum dtype t, int mo, int nr, float *y, size_t y_stride,
                               float32x4_t (*acc)[DIRECT_ROWS], const struct matrix *w,
                               const struct far_walk *f)
{
    UNROLL
    for (int r = 0; r < nr; r++)
        UNROLL
    for (int i = 0; i < mo; i += 4) {
        int o = f->o + i * f->apart;
        if (i >= f->n_out)
            continue;
        float32x4_t four[4] = { acc[i][r], acc[i + 1][r], acc[i + 2][r], acc[i + 3][r] };
        float32x4_t v = sum4(four);
        if (t == DTYPE_F16)
            v = vmulq_n_f32(v, 0x1p16f);
        store4_apart(y + (size_t)r * y_stride + o, (size_t)f->apart, v, f->n_out - i,
                     w->bias ? w->bias + o : NULL);
    }
}

ALWAYS_INLINE void twin_store(enum dtype t, int nr, float *y, size_t y_stride,
                              float32x4_t (*acc)[DIRECT_ROWS], const struct matrix *w,
                              const struct far_walk *f)
{
    UNROLL
    for (int r = 0; r < nr; r++) {
        float32x4_t four[4] = { acc[0][r], acc[1][r], acc[0][r], acc[1][r] };
        float32x4_t v = sum4(four);
        if (t == DTYPE_F16)
            v = vmulq_n_f32(v, 0x1p16f);
        store4_apart(y + (size_t)r * y_stride + f->o, (size_t)f->apart, v,
                     panel_min(TWIN_OUTS, f->n_out), w->bias ? w->bias + f->o : NULL);
    }
}

/* The outputs of f, mo of them, of nr rows. mo, nr and t are constants. */
ALWAYS_INLINE void direct(enum dtype t, int mo, int nr, float *y, size_t y_stride, const float *x,
                          const struct matrix *w, const struct far_walk *f)
{
    size_t size = t == DTYPE_F32 ? 4 : 2;
    const uint8_t *row[LONE_OUTS];
    float32x4_t acc[LONE_OUTS][DIRECT_ROWS];
    int side = mo < LONE_STEP ? mo : LONE_STEP, k = 0;
    UNROLL
    for (int i = 0; i < mo; i++) {
        row[i] = far_row(f, w, i);
        UNROLL
        for (int r = 0; r < nr; r++)
            acc[i][r] = vdupq_n_f32(0);
    }
    for (; k + 32 <= w->in; k += 32)
        UNROLL
    for (int i = 0; i < mo; i += side)
        for (int j = k; j < k + 32; j += 8)
            direct_step(t, side, nr, acc + i, row + i, (size_t)j * size, x + (size_t)(j * nr));
    for (; k + 8 <= w->in; k += 8)
        direct_step(t, mo, nr, acc, row, (size_t)k * size, x + (size_t)(k * nr));
    if (k < w->in) {
        const uint8_t *tail[LONE_OUTS];
        uint8_t buf[LONE_OUTS][32];
        panel_tail(buf[0], sizeof *buf, w, f->o, f->apart, mo, (size_t)k * size,
                   (size_t)(w->in - k) * size);
        UNROLL
        for (int i = 0; i < mo; i++)
            tail[i] = buf[i];
        direct_step(t, mo, nr, acc, tail, 0, x + (size_t)(k * nr));
    }

    if (mo == TWIN_OUTS)
        twin_store(t, nr, y, y_stride, acc, w, f);
    else
        strip_store(t, mo, nr, y, y_stride, acc, w, f);
}

ALWAYS_INLINE void direct_pass(enum dtype t, float *y, size_t y_stride, const float *x, int n,
                               const struct matrix *w, const struct far_walk *f)
{
    switch (n) {
    case 1:
        direct(t, STRIP, 1, y, y_stride, x, w, f);
        break;
    case 2:
        direct(t, STRIP, 2, y, y_stride, x, w, f);
        break;
    case 3:
        direct(t, STRIP, 3, y, y_stride, x, w, f);
        break;
    case 4:
        direct(t, STRIP, 4, y, y_stride, x, w, f);
        break;
    case 5:
        direct(t, TWIN_OUTS, 5, y, y_stride, x, w, f);
        break;
    case 6:
        direct(t, TWIN_OUTS, 6, y, y_stride, x, w, f);
        break;
    case 7:
        direct(t, TWIN_OUTS, 7, y, y_stride, x, w, f);
        break;
    default:
        direct(t, TWIN_OUTS, 8, y, y_stride, x, w, f);
        break;
    }
}

ALWAYS_INLINE void direct_rows(enum dtype t, float *y, size_t y_stride, const float *x, int n,
                               const struct matrix *w, int o0, int o1)
{
    struct far_walk lone = far_walk(o0, n == 1 ? o1 : o0, LONE_OUTS);
    struct far_walk f = far_walk(n == 1 ? o1 : o0, o1, n <= PASS_ROWS ? STRIP : TWIN_OUTS);
    while (far_next(&lone))
        direct(t, LONE_OUTS, 1, y, y_stride, x, w, &lone);
    while (far_next(&f))
        direct_pass(t, y, y_stride, x, n, w, &f);
}

/* ---- many rows: panels in f32, [strip][k / 4][output of the strip][4] ---- */

ALWAYS_INLINE void store_panel(float *dst, float32x4x2_t v)
{
    vst1q_f32(dst, v.val[0]);
    vst1q_f32(dst + 4 * STRIP, v.val[1]);
}

ALWAYS_INLINE void plain_load(enum dtype t, float *panel, const struct matrix *w, int o, int n_out,
                              int k0, int k1)
{
    size_t size = t == DTYPE_F32 ? 4 : 2;
    for (int i = 0; i < (n_out + STRIP - 1) / STRIP * STRIP; i++) {
        const uint8_t *row = panel_row(w, o + i);
        float *dst = panel + (size_t)(i / STRIP) * STRIP * PLAIN_CHUNK + (size_t)(i % STRIP) * 4;
        int k = k0;
        for (; k + 8 <= k1; k += 8, dst += 8 * STRIP)
            store_panel(dst, widen8(t, row + (size_t)k * size));
        if (k < k1) {
            uint8_t buf[32];
            panel_tail(buf, sizeof buf, w, o + i, 1, 1, (size_t)k * size, (size_t)(k1 - k) * size);
            store_panel(dst, widen8(t, buf));
        }
    }
}

static void f32_load(void *panel, const struct matrix *w, int o, int n_out, int k0, int k1)
{
    plain_load(DTYPE_F32, panel, w, o, n_out, k0, k1);
}

static void f16_load(void *panel, const struct matrix *w, int o, int n_out, int k0, int k1)
{
    plain_load(DTYPE_F16, panel, w, o, n_out, k0, k1);
}

static void bf16_load(void *panel, const struct matrix *w, int o, int n_out, int k0, int k1)
{
    plain_load(DTYPE_BF16, panel, w, o, n_out, k0, k1);
}

/* nr rows by one strip; acc [row][PLAIN_OUTS][4], the strip's part. */
ALWAYS_INLINE void strip_run(int nr, const struct panel_tile *t, float *mem, const float *panel,
                             const uint8_t *ahead, size_t ahead_step)
{
    int k1 = t->k1;
    const float *x =
        (const float *)t->xp + (size_t)t->row * (size_t)pad8(t->in) + (size_t)nr * (size_t)t->k0;
    float32x4_t acc[TILE_ROWS][STRIP];
    UNROLL
    for (int r = 0; r < nr; r++)
        UNROLL
    for (int o = 0; o < STRIP; o++)
        acc[r][o] = t->k0 ? vld1q_f32(mem + ((size_t)r * PLAIN_OUTS + o) * 4) : vdupq_n_f32(0);
    for (int k = t->k0; k < k1; k += 4, x += 4 * nr, panel += 4 * STRIP) {
        float32x4_t w[STRIP];
        __builtin_prefetch(ahead, 0, 2);
        ahead += ahead_step;
        UNROLL
        for (int o = 0; o < STRIP; o++)
            w[o] = vld1q_f32(panel + 4 * o);
        UNROLL
        for (int r = 0; r < nr; r++) {
            float32x4_t v = vld1q_f32(x + 4 * r);
            UNROLL
            for (int o = 0; o < STRIP; o++)
                acc[r][o] = vfmaq_f32(acc[r][o], w[o], v);
            if (r % 2)
                keep_order();
        }
    }
    UNROLL
    for (int r = 0; r < nr; r++)
        UNROLL
    for (int o = 0; o < STRIP; o++)
        vst1q_f32(mem + ((size_t)r * PLAIN_OUTS + o) * 4, acc[r][o]);
}

static void plain_tile(const struct panel_tile *t)
{
    for (int s = 0; s < (t->outs + STRIP - 1) / STRIP; s++) {
        float *mem = t->acc + (size_t)s * STRIP * 4;
        const float *panel = (const float *)t->panel + (size_t)s * STRIP * PLAIN_CHUNK;
        /* The first strip prefetches; the others look at one line only. */
        size_t step = s == 0 ? PANEL_LINE : 0;
        switch (t->rows) {
        case 1:
            strip_run(1, t, mem, panel, t->ahead, step);
            break;
        case 2:
            strip_run(2, t, mem, panel, t->ahead, step);
            break;
        case 3:
            strip_run(3, t, mem, panel, t->ahead, step);
            break;
        case 4:
            strip_run(4, t, mem, panel, t->ahead, step);
            break;
        case 5:
            strip_run(5, t, mem, panel, t->ahead, step);
            break;
        default:
            strip_run(6, t, mem, panel, t->ahead, step);
            break;
        }
    }
}

ALWAYS_INLINE void plain_store(float scale, float *y, size_t y_stride, const float *acc, int rows,
                               int n_out, const float *bias)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n_out; i += 4) {
            float32x4_t four[4];
            for (int j = 0; j < 4; j++)
                four[j] = vld1q_f32(acc + ((size_t)r * PLAIN_OUTS + i + j) * 4);
            float32x4_t v = sum4(four);
            if (scale != 1.0f)
                v = vmulq_n_f32(v, scale);
            store4(y + (size_t)r * y_stride + i, v, n_out - i, bias ? bias + i : NULL);
        }
}

static void wide_store(float *y, size_t y_stride, const float *acc, int rows, int n_out,
                       const float *bias)
{
    plain_store(1.0f, y, y_stride, acc, rows, n_out, bias);
}

static void f16_store(float *y, size_t y_stride, const float *acc, int rows, int n_out,
                      const float *bias)
{
    plain_store(0x1p16f, y, y_stride, acc, rows, n_out, bias);
}

#define PLAIN_PANEL(load_fn, store_fn)                                                             \
    {                                                                                              \
        .outs = PLAIN_OUTS, .rows = TILE_ROWS, .unit = 1, .chunk = PLAIN_CHUNK, .step = 4,         \
        .panel_size = sizeof(float) * PLAIN_OUTS * PLAIN_CHUNK, .acc_row = PLAIN_OUTS * 4,         \
        .x_size = plain_packed_size, .load = load_fn, .tile = plain_tile, .store = store_fn        \
    }

static const struct panel_kernel f32_panel = PLAIN_PANEL(f32_load, wide_store);
static const struct panel_kernel f16_panel = PLAIN_PANEL(f16_load, f16_store);
static const struct panel_kernel bf16_panel = PLAIN_PANEL(bf16_load, wide_store);

static size_t plain_scratch_size(int in)
{
    (void)in;
    return panel_scratch(&f32_panel);
}

static void f32_run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                    int o0, int o1, void *scratch)
{
    if (n <= DIRECT_ROWS)
        direct_rows(DTYPE_F32, y, y_stride, xp, n, w, o0, o1);
    else
        panel_run(&f32_panel, y, y_stride, xp, n, w, o0, o1, scratch);
}

static void f16_run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                    int o0, int o1, void *scratch)
{
    if (n <= DIRECT_ROWS)
        direct_rows(DTYPE_F16, y, y_stride, xp, n, w, o0, o1);
    else
        panel_run(&f16_panel, y, y_stride, xp, n, w, o0, o1, scratch);
}

static void bf16_run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    if (n <= DIRECT_ROWS)
        direct_rows(DTYPE_BF16, y, y_stride, xp, n, w, o0, o1);
    else
        panel_run(&bf16_panel, y, y_stride, xp, n, w, o0, o1, scratch);
}

#define PLAIN_KERNEL(pack_fn, run_fn)                                                              \
    {                                                                                              \
        .name = "neon", .in_multiple = 1, .row_step = PACK_ROWS, .out_step = PLAIN_OUTS,           \
        .packed_size = plain_packed_size, .scratch_size = plain_scratch_size, .pack = pack_fn,     \
        .run = run_fn                                                                              \
    }

static const struct matmul_kernel plain_f32 = PLAIN_KERNEL(plain_pack, f32_run);
static const struct matmul_kernel plain_f16 = PLAIN_KERNEL(f16_pack, f16_run);
static const struct matmul_kernel plain_bf16 = PLAIN_KERNEL(plain_pack, bf16_run);

void kernels_init_neon(struct kernels *k)
{
    k->matmul[DTYPE_F32] = k->matmul_any[DTYPE_F32] = &plain_f32;
    k->matmul[DTYPE_F16] = k->matmul_any[DTYPE_F16] = &plain_f16;
    k->matmul[DTYPE_BF16] = k->matmul_any[DTYPE_BF16] = &plain_bf16;
}
