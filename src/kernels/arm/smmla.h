/* Shared by the SMMLA kernels (matmul_i8mm.c: weights as in the file, matmul_repacked_i8mm.c:
 * repacked weights). quant_blocks.h has the formulas.
 *
 * SMMLA adds to a 2x2 block of int32 sums the products of two weight rows and two rows of x over
 * eight elements. Rows of x are quantised and packed in pairs, eight elements of one, eight of the
 * other; a last row without a partner is paired with itself. A block of four weight rows (a strip)
 * is unpacked and paired, and its scales are spread over the 2x2 blocks: in registers if there are
 * few rows of x, otherwise in panels of int8 that many rows share. In both cases a strip's block
 * stays in eight registers while up to TILE_PAIRS pairs of rows are multiplied by it, with their
 * float accumulators in registers too.
 *
 * Integer sums start from the bits of 1.5 * 2^23 instead of zero. The sum is then the low bits of a
 * float near 1.5 * 2^23, and one subtraction converts it to f32, where SCVTF would take two slots
 * of half of the vector pipes. That is exact below 2^22; a block of 32 reaches at most 32 * 128 *
 * 127. If the unpacked weights are too large by 2^shift, the start is 1.5 * 2^(23 - shift), whose
 * last bit is worth 2^-shift, so the sums are right. */
#ifndef PV_KERNELS_ARM_SMMLA_H
#define PV_KERNELS_ARM_SMMLA_H

#include "kernels/arm/arm.h"
#include "kernels/arm/panel.h"
#include "kernels/arm/quant_blocks.h"

#include <string.h>

enum {
    PANEL_OUTS = 32,
    STRIP_PAIRS = 2, /* pairs of outputs per register block */
    STRIP_OUTS = 2 * STRIP_PAIRS,
    STEPS = QBLOCK / 8,           /* SMMLA steps per block */
    TILE_PAIRS = 7,               /* pairs of rows per register block: 14 accumulators, 8 weights */
    DIRECT_ROWS = 2 * TILE_PAIRS, /* up to so many rows, weights are unpacked in registers */
    CHUNK = 512,                  /* elements: panel chunk 24 KiB, x of a tile 11 KiB */
    START = 0x4b400000            /* bits of 1.5 * 2^23 */
};

/* A block of one packed pair of rows; each vector is in the layout of the 2x2 block, rows inside.
 */
struct mm_x {
    int8_t q[STEPS][16];
    float d[4];
    union {
        float sum[4];     /* d * sum q */
        int32_t start[4]; /* Q4_0: START - 8 sum q */
    };
};

/* A block of one strip of a panel, outputs outside. b: the min, or the scale of the second half. */
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

/* Packed pairs are stored as [tile of pairs][block][pair of the tile]: the loads of a tile are one
 * stream at fixed distances. Number of pairs per tile, for n rows: */
static inline int tile_pairs(int n)
{
    return panel_min((n + 1) / 2, TILE_PAIRS);
}

/* Bytes of n > 1 packed rows. */
static inline size_t pairs_size(int n, int in)
{
    int wide = tile_pairs(n), tiles = ((n + 1) / 2 + wide - 1) / wide;
    return sizeof(struct mm_x) * (size_t)(tiles * wide) * (size_t)(in / QBLOCK);
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

/* Make a block from four unpacked rows and their scales. */
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

/* ---- register blocks ---- */

/* Add to acc the sums of steps [i0, i1) of a block for one pair of rows, times the scales. */
ALWAYS_INLINE void add_sums(float32x4_t *acc, const struct mm_block *w, const float32x4_t *scale,
                            const int8x16_t *q, float32x4_t d, int i0, int i1, const int32_t *start,
                            float32x4_t magic)
{
    int32x4_t s[STRIP_PAIRS];
    UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        s[o] = fresh_load(start);
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

/* Multiply a block of a strip, whose integers are too large by 2^shift, by np pairs of rows. t,
 * shift and np are compile-time constants; of t it only matters whether it has mins, halves, or
 * weights that are 8 too large. Returns x, for loads that must stay after this (keep_after). */
ALWAYS_INLINE const struct mm_x *add_block(enum dtype t, int shift, int np,
                                           float32x4_t (*acc)[STRIP_PAIRS],
                                           const struct mm_block *w, const struct mm_x *x)
{
    /* Bits of 1.5 * 2^23, 2^21 and 2^19. */
    static const _Alignas(16)
        int32_t starts[3][4] = { { START, START, START, START },
                                 { 0x4a400000, 0x4a400000, 0x4a400000, 0x4a400000 },
                                 { 0x49400000, 0x49400000, 0x49400000, 0x49400000 } };
    float32x4_t magic = vdupq_n_f32(shift == 4 ? 0x1.8p19f : shift == 2 ? 0x1.8p21f : 0x1.8p23f);
    UNROLL
    for (int p = 0; p < np; p++) {
        const int32_t *start = t == DTYPE_Q4_0 ? x[p].start : starts[shift / 2];
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

/* Multiply np pairs of rows by one strip; mem: accumulators [row pair][output pair][4]. */
ALWAYS_INLINE void strip_run(enum dtype t, int shift, int np, const struct panel_tile *tile,
                             float *mem, const struct mm_w *w, const uint8_t *ahead)
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
        x = add_block(t, shift, np, acc, &block, x) + TILE_PAIRS;
    }
    UNROLL
    for (int p = 0; p < np; p++)
        UNROLL
    for (int o = 0; o < STRIP_PAIRS; o++)
        vst1q_f32(mem + (size_t)p * 2 * PANEL_OUTS + 4 * o, acc[p][o]);
}

ALWAYS_INLINE void tile_run(enum dtype t, int shift, const struct panel_tile *tile)
{
    const uint8_t *ahead = tile->ahead;
    for (int s = 0; 2 * s * STRIP_PAIRS < tile->outs; s++) {
        float *mem = tile->acc + (size_t)s * STRIP_PAIRS * 4;
        const struct mm_w *w = (const struct mm_w *)tile->panel + (size_t)s * (CHUNK / QBLOCK);
        switch ((tile->rows + 1) / 2) {
        case 1:
            strip_run(t, shift, 1, tile, mem, w, ahead);
            break;
        case 2:
            strip_run(t, shift, 2, tile, mem, w, ahead);
            break;
        case 3:
            strip_run(t, shift, 3, tile, mem, w, ahead);
            break;
        case 4:
            strip_run(t, shift, 4, tile, mem, w, ahead);
            break;
        case 5:
            strip_run(t, shift, 5, tile, mem, w, ahead);
            break;
        case 6:
            strip_run(t, shift, 6, tile, mem, w, ahead);
            break;
        default:
            strip_run(t, shift, 7, tile, mem, w, ahead);
            break;
        }
        ahead += (size_t)((tile->k1 - tile->k0) / QBLOCK) * PANEL_LINE;
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

#define MM_PANEL(load_fn, tile_fn)                                                                 \
    {                                                                                              \
        .outs = PANEL_OUTS, .rows = 2 * TILE_PAIRS, .unit = 2 * TILE_PAIRS, .chunk = CHUNK,        \
        .step = QBLOCK / 8,                                                                        \
        .panel_size = sizeof(struct mm_w) * (PANEL_OUTS / 2 / STRIP_PAIRS) * (CHUNK / QBLOCK),     \
        .acc_row = PANEL_OUTS, .x_size = pairs_size, .load = load_fn, .tile = tile_fn,             \
        .store = store                                                                             \
    }

#endif
