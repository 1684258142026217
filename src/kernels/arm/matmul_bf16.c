/* Products with BF16 weights by BFMMLA, which adds to a 2x2 block of sums the products of two
 * weight rows and two rows of x over four elements of `in`.
 *
 * x is rounded to bf16 and packed in pairs of rows, four elements of one, four of the other; a last
 * row without a partner is paired with itself. With few rows of x, weight rows are paired in
 * registers (two ZIPs for 2 x 8 elements); with many, in a panel.
 *
 * BFMMLA has its own rounding, so all paths use it, in ascending order over `in` in steps of four,
 * with one accumulator per 2x2 block. Its result for one (row, output) does not depend on the
 * partners. `in` is padded with zeros to a multiple of 8.
 *
 * bf16 vectors are only loaded or made from loaded integers: gcc 12 miscompiles constant ones. */
#include "kernels/arm/arm.h"
#include "kernels/arm/lanes.h"
#include "kernels/arm/panel.h"

enum {
    PANEL_OUTS = 32,
    STRIP_PAIRS = 4,  /* pairs of outputs per register block */
    TILE_PAIRS = 6,   /* pairs of rows per register block over a panel: 24 accumulators hide the
                         latency of BFMMLA (5 cycles, 4 per cycle on Neoverse-V1) */
    DIRECT_PAIRS = 4, /* up to so many pairs, weights are paired in registers */
    LONE_PAIRS = 8,   /* pairs of outputs with one pair of rows: enough independent chains */
    CHUNK = 512       /* elements: panel chunk 32 KiB, x of a tile 12 KiB */
};

static int pad8(int in)
{
    return (in + 7) & ~7;
}

/* Elements from one packed pair to the next: an odd number of whole cache lines, so that pairs of
 * power-of-two length do not fall into the same sets of L1. */
static size_t pair_stride(int in)
{
    return ((2 * (size_t)pad8(in) + 63) & ~(size_t)63) + 32;
}

static size_t packed_size(int n, int in)
{
    return sizeof(uint16_t) * (size_t)((n + 1) / 2) * pair_stride(in);
}

ALWAYS_INLINE void pack_four(uint16_t *dst, const float *a, const float *b)
{
    bfloat16x8_t v = vcvtq_low_bf16_f32(vld1q_f32(a));
    v = vcvtq_high_bf16_f32(v, vld1q_f32(b));
    vst1q_u16(dst, vreinterpretq_u16_bf16(v));
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    for (int r = r0; r < r1; r += 2) {
        const float *a = x + (size_t)r * stride, *b = r + 1 < n ? a + stride : a;
        uint16_t *dst = (uint16_t *)xp + (size_t)(r / 2) * pair_stride(in);
        int i = 0;
        for (; i + 4 <= in; i += 4, dst += 8)
            pack_four(dst, a + i, b + i);
        for (; i < pad8(in); i += 4, dst += 8) {
            float tail[2][4] = { { 0 } };
            for (int j = 0; i + j < in; j++) {
                tail[0][j] = a[i + j];
                tail[1][j] = b[i + j];
            }
            pack_four(dst, tail[0], tail[1]);
        }
    }
}

/* ---- weights ---- */

/* Eight elements of a row. */
ALWAYS_INLINE uint64x2_t load8(const uint8_t *p)
{
    return vreinterpretq_u64_u8(vld1q_u8(p));
}

/* Elements 0..3, then 4..7, of rows a and b. */
ALWAYS_INLINE void pair_up(bfloat16x8_t *out, uint64x2_t a, uint64x2_t b)
{
    out[0] = vreinterpretq_bf16_u64(vzip1q_u64(a, b));
    out[1] = vreinterpretq_bf16_u64(vzip2q_u64(a, b));
}

ALWAYS_INLINE bfloat16x8_t load_x(const uint16_t *p)
{
    return vreinterpretq_bf16_u16(vld1q_u16(p));
}

/* ---- few rows ---- */

ALWAYS_INLINE void direct_step(int mp, int np, float32x4_t (*acc)[DIRECT_PAIRS],
                               const uint8_t *const *row, size_t at, const uint16_t *x, size_t xs)
{
    bfloat16x8_t b[DIRECT_PAIRS][2];
    UNROLL
    for (int p = 0; p < np; p++) {
        b[p][0] = load_x(x + (size_t)p * xs);
        b[p][1] = load_x(x + (size_t)p * xs + 8);
    }
    UNROLL
    for (int o = 0; o < mp; o++) {
        bfloat16x8_t a[2];
        pair_up(a, load8(row[2 * o] + at), load8(row[2 * o + 1] + at));
        UNROLL
        for (int p = 0; p < np; p++)
            acc[o][p] = vbfmmlaq_f32(acc[o][p], a[0], b[p][0]);
        UNROLL
        for (int p = 0; p < np; p++)
            acc[o][p] = vbfmmlaq_f32(acc[o][p], a[1], b[p][1]);
        keep_order();
    }
}

/* Compute the outputs of f, in mp pairs, for n rows in np pairs. mp and np are compile-time
 * constants. */
ALWAYS_INLINE void direct(int mp, int np, float *y, size_t y_stride, const uint16_t *x, int n,
                          const struct matrix *w, const struct far_walk *f)
{
    size_t xs = pair_stride(w->in);
    const uint8_t *row[2 * LONE_PAIRS];
    float32x4_t acc[LONE_PAIRS][DIRECT_PAIRS];
    int k = 0;
    UNROLL
    for (int i = 0; i < 2 * mp; i++)
        row[i] = far_row(f, w, i);
    UNROLL
    for (int i = 0; i < mp; i++)
        UNROLL
    for (int p = 0; p < np; p++)
        acc[i][p] = vdupq_n_f32(0);
    /* Takes one cache line of each of eight rows at a time: more would exceed the associativity of
     * L1 if the length of rows is a power of two. */
    for (; k + 32 <= w->in; k += 32)
        UNROLL
    for (int i = 0; i < mp; i += STRIP_PAIRS)
        for (int j = k; j < k + 32; j += 8)
            direct_step(STRIP_PAIRS, np, acc + i, row + 2 * i, 2 * (size_t)j, x + 2 * (size_t)j,
                        xs);
    for (; k + 8 <= w->in; k += 8)
        direct_step(mp, np, acc, row, 2 * (size_t)k, x + 2 * (size_t)k, xs);
    if (k < w->in) {
        const uint8_t *tail[2 * LONE_PAIRS];
        uint8_t buf[2 * LONE_PAIRS][16];
        panel_tail(buf[0], sizeof *buf, w, f->o, f->apart, 2 * mp, 2 * (size_t)k,
                   2 * (size_t)(w->in - k));
        UNROLL
        for (int i = 0; i < 2 * mp; i++)
            tail[i] = buf[i];
        direct_step(mp, np, acc, tail, 0, x + 2 * (size_t)k, xs);
    }

    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int i = 0; i < mp; i += 2) {
        int o = f->o + 2 * i * f->apart;
        if (2 * i < f->n_out)
            store_pair_apart(y + 2 * (size_t)p * y_stride + o, y_stride, (size_t)f->apart,
                             acc[i][p], acc[i + 1][p], f->n_out - 2 * i, 2 * p + 1 < n,
                             w->bias ? w->bias + o : NULL);
    }
}

static void direct_rows(float *y, size_t y_stride, const uint16_t *x, int n, const struct matrix *w,
                        int o0, int o1)
{
    int pairs = (n + 1) / 2;
    struct far_walk f = far_walk(o0, o1, pairs == 1 ? 2 * LONE_PAIRS : 2 * STRIP_PAIRS);
    while (far_next(&f))
        switch (pairs) {
        case 1:
            direct(LONE_PAIRS, 1, y, y_stride, x, n, w, &f);
            break;
        case 2:
            direct(STRIP_PAIRS, 2, y, y_stride, x, n, w, &f);
            break;
        case 3:
            direct(STRIP_PAIRS, 3, y, y_stride, x, n, w, &f);
            break;
        default:
            direct(STRIP_PAIRS, 4, y, y_stride, x, n, w, &f);
            break;
        }
}

/* ---- many rows: panels [strip][k / 4][pair of the strip][2 rows][4] ---- */

ALWAYS_INLINE void store_panel(uint16_t *dst, uint64x2_t a, uint64x2_t b)
{
    bfloat16x8_t v[2];
    pair_up(v, a, b);
    vst1q_u16(dst, vreinterpretq_u16_bf16(v[0]));
    vst1q_u16(dst + 8 * STRIP_PAIRS, vreinterpretq_u16_bf16(v[1]));
}

static void load(void *panel, const struct matrix *w, int o, int n_out, int k0, int k1)
{
    int strips = (n_out + 2 * STRIP_PAIRS - 1) / (2 * STRIP_PAIRS);
    for (int i = 0; i < strips * 2 * STRIP_PAIRS; i += 2) {
        const uint8_t *a = panel_row(w, o + i), *b = panel_row(w, o + i + 1);
        int pair = i / 2;
        uint16_t *dst = (uint16_t *)panel + (size_t)(pair / STRIP_PAIRS) * STRIP_PAIRS * 2 * CHUNK +
                        (size_t)(pair % STRIP_PAIRS) * 8;
        int k = k0;
        for (; k + 8 <= k1; k += 8, dst += 16 * STRIP_PAIRS)
            store_panel(dst, load8(a + 2 * (size_t)k), load8(b + 2 * (size_t)k));
        if (k < k1) {
            uint8_t buf[2][16];
            panel_tail(buf[0], sizeof *buf, w, o + i, 1, 2, 2 * (size_t)k, 2 * (size_t)(k1 - k));
            store_panel(dst, load8(buf[0]), load8(buf[1]));
        }
    }
}

/* Multiply np pairs of rows by one strip; mem: accumulators [row pair][output pair][4]. */
ALWAYS_INLINE void strip_run(int np, const struct panel_tile *t, float *mem, const uint16_t *panel,
                             const uint8_t *ahead)
{
    size_t xs = pair_stride(t->in);
    const uint16_t *x = (const uint16_t *)t->xp + (size_t)(t->row / 2) * xs + 2 * (size_t)t->k0;
    float32x4_t acc[TILE_PAIRS][STRIP_PAIRS];
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        acc[p][o] = t->k0 ? vld1q_f32(mem + (size_t)p * 2 * PANEL_OUTS + 4 * o) : vdupq_n_f32(0);
    for (int k = t->k0; k < t->k1; k += 4, x += 8, panel += 8 * STRIP_PAIRS) {
        bfloat16x8_t a[STRIP_PAIRS];
        __builtin_prefetch(ahead, 0, 2);
        ahead += PANEL_LINE;
        UNROLL
        for (int o = 0; o < STRIP_PAIRS; o++)
            a[o] = load_x(panel + 8 * o);
        UNROLL
        for (int p = 0; p < np; p++) {
            bfloat16x8_t b = load_x(x + (size_t)p * xs);
            UNROLL
            for (int o = 0; o < STRIP_PAIRS; o++)
                acc[p][o] = vbfmmlaq_f32(acc[p][o], a[o], b);
            keep_order();
        }
    }
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        vst1q_f32(mem + (size_t)p * 2 * PANEL_OUTS + 4 * o, acc[p][o]);
}

static void tile(const struct panel_tile *t)
{
    const uint8_t *ahead = t->ahead;
    for (int s = 0; 2 * s * STRIP_PAIRS < t->outs; s++) {
        float *mem = t->acc + (size_t)s * STRIP_PAIRS * 4;
        const uint16_t *panel = (const uint16_t *)t->panel + (size_t)s * STRIP_PAIRS * 2 * CHUNK;
        switch ((t->rows + 1) / 2) {
        case 1:
            strip_run(1, t, mem, panel, ahead);
            break;
        case 2:
            strip_run(2, t, mem, panel, ahead);
            break;
        case 3:
            strip_run(3, t, mem, panel, ahead);
            break;
        case 4:
            strip_run(4, t, mem, panel, ahead);
            break;
        case 5:
            strip_run(5, t, mem, panel, ahead);
            break;
        default:
            strip_run(6, t, mem, panel, ahead);
            break;
        }
        ahead += (size_t)((t->k1 - t->k0) / 4) * PANEL_LINE;
    }
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

static const struct panel_kernel panel = {
    .outs = PANEL_OUTS,
    .rows = 2 * TILE_PAIRS,
    .unit = 2,
    .chunk = CHUNK,
    .step = 1, /* four strips, each one line per four elements */
    .panel_size = sizeof(uint16_t) * PANEL_OUTS * CHUNK,
    .acc_row = PANEL_OUTS,
    .x_size = packed_size,
    .load = load,
    .tile = tile,
    .store = store,
};

static size_t scratch_size(int in)
{
    (void)in;
    return panel_scratch(&panel);
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    if (n <= 2 * DIRECT_PAIRS)
        direct_rows(y, y_stride, xp, n, w, o0, o1);
    else
        panel_run(&panel, y, y_stride, xp, n, w, o0, o1, scratch);
}

static const struct matmul_kernel kernel = {
    .name = "bf16",
    .in_multiple = 1,
    .row_step = 2,
    .out_step = PANEL_OUTS,
    .packed_size = packed_size,
    .scratch_size = scratch_size,
    .pack = pack,
    .run = run,
};

void kernels_init_bf16(struct kernels *k)
{
    k->matmul[DTYPE_BF16] = k->matmul_any[DTYPE_BF16] = &kernel;
}
