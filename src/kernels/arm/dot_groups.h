/* Quantised products by dot products of int8, four outputs at a time (quant_blocks.h has the
 * formulas): with SDOT if the including file is compiled for it, otherwise with widening
 * multiplies.
 *
 * The lanes of the four outputs are added pairwise into one vector of four sums, so the float part
 * of a block is one multiply and one fused multiply-add for four outputs. Weights are unpacked once
 * for up to DOT_ROWS rows. The weight rows of a group are far apart (panel.h: struct far_walk). */
#ifndef PV_KERNELS_ARM_DOT_GROUPS_H
#define PV_KERNELS_ARM_DOT_GROUPS_H

#include "kernels/arm/quant_blocks.h"

enum {
    DOT_OUTS = QUANT_ROWS,
    DOT_ROWS = 4,   /* rows per register block */
    LONE_OUTS = 16, /* outputs per pass with one row of x, */
    LONE_APART = 4  /* if they are at least so many rows apart */
};

/* A block of one packed row. */
struct dot_x {
    int8_t q[QBLOCK];
    float d;
    union {
        float sum;       /* d * sum q, for types with a min */
        int32_t minus_8; /* -8 sum q, for Q4_0 */
    };
};

/* Vectors whose lanes add up to the sum of 16 (dot16) and of 32 (dot32) products. */
#if defined(__ARM_FEATURE_DOTPROD)
ALWAYS_INLINE int32x4_t dot16(int8x16_t w, int8x16_t x)
{
    return vdotq_s32(vdupq_n_s32(0), w, x);
}

ALWAYS_INLINE int32x4_t dot32(int8x16x2_t w, int8x16x2_t x)
{
    return vdotq_s32(dot16(w.val[0], x.val[0]), w.val[1], x.val[1]);
}
#else
ALWAYS_INLINE int32x4_t dot16(int8x16_t w, int8x16_t x)
{
    int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    return vpadalq_s16(vpaddlq_s16(lo), vmull_high_s8(w, x));
}

/* The sum of two products fits into int16: 2 * 128 * 127. */
ALWAYS_INLINE int32x4_t dot32(int8x16x2_t w, int8x16x2_t x)
{
    int16x8_t lo = vmull_s8(vget_low_s8(w.val[0]), vget_low_s8(x.val[0]));
    int16x8_t hi = vmull_high_s8(w.val[0], x.val[0]);
    lo = vmlal_s8(lo, vget_low_s8(w.val[1]), vget_low_s8(x.val[1]));
    hi = vmlal_high_s8(hi, w.val[1], x.val[1]);
    return vpadalq_s16(vpaddlq_s16(lo), hi);
}
#endif

static size_t dot_packed_size(int n, int in)
{
    return sizeof(struct dot_x) * (size_t)n * (size_t)(in / QBLOCK);
}

static size_t dot_scratch_size(int in)
{
    (void)in;
    return 0;
}

ALWAYS_INLINE void dot_pack(enum dtype t, void *xp, const float *x, size_t stride, int in, int r0,
                            int r1)
{
    int blocks = in / QBLOCK;
    for (int r = r0; r < r1; r++) {
        struct dot_x *dst = (struct dot_x *)xp + (size_t)r * (size_t)blocks;
        const float *src = x + (size_t)r * stride;
        for (int b = 0; b < blocks; b++) {
            int sum;
            dst[b].d = quantise32(dst[b].q, src + b * QBLOCK, &sum);
            if (t == DTYPE_Q4_0)
                dst[b].minus_8 = -8 * sum;
            else
                dst[b].sum = dst[b].d * (float)sum;
        }
    }
}

static void pack_sums(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    (void)n;
    dot_pack(DTYPE_Q8_0, xp, x, stride, in, r0, r1);
}

static void pack_q4_0(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    (void)n;
    dot_pack(DTYPE_Q4_0, xp, x, stride, in, r0, r1);
}

ALWAYS_INLINE float32x4_t sums_of(const int32x4_t *s)
{
    return vcvtq_f32_s32(vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3])));
}

ALWAYS_INLINE void dot_block(enum dtype t, int nr, float32x4_t *acc, const int8x16x2_t *w,
                             struct quant_scales a, const struct dot_x *x, size_t xs)
{
    UNROLL
    for (int r = 0; r < nr; r++, x += xs) {
        int8x16x2_t q = { { vld1q_s8(x->q), vld1q_s8(x->q + 16) } };
        int32x4_t s[DOT_OUTS];
        if (t == DTYPE_Q6_K) {
            UNROLL
            for (int o = 0; o < DOT_OUTS; o++)
                s[o] = dot16(w[o].val[0], q.val[0]);
            acc[r] = vfmaq_f32(acc[r], sums_of(s), vmulq_n_f32(a.a, x->d));
            UNROLL
            for (int o = 0; o < DOT_OUTS; o++)
                s[o] = dot16(w[o].val[1], q.val[1]);
            acc[r] = vfmaq_f32(acc[r], sums_of(s), vmulq_n_f32(a.b, x->d));
            continue;
        }
        UNROLL
        for (int o = 0; o < DOT_OUTS; o++)
            s[o] = dot32(w[o], q);
        if (t == DTYPE_Q4_0) {
            int32x4_t sum = vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
            sum = vaddq_s32(sum, vdupq_n_s32(x->minus_8));
            acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(sum), vmulq_n_f32(a.a, x->d));
            continue;
        }
        acc[r] = vfmaq_f32(acc[r], sums_of(s), vmulq_n_f32(a.a, x->d));
        if (quant_has_min(t))
            acc[r] = vfmsq_f32(acc[r], a.b, vdupq_n_f32(x->sum));
    }
}

/* Compute the outputs of f, in `sets` of four, for nr rows. t, sets and nr are compile-time
 * constants. */
ALWAYS_INLINE void dot_group(enum dtype t, int sets, int nr, float *y, size_t y_stride,
                             const struct dot_x *x, size_t xs, const struct matrix *w,
                             const struct far_walk *f)
{
    const uint8_t *row[LONE_OUTS];
    float32x4_t acc[LONE_OUTS / DOT_OUTS][DOT_ROWS];
    size_t size = (size_t)quant_block_size(t);
    int subs = quant_subs(t), parts = quant_parts(t), blocks = w->in / QBLOCK / subs;
    UNROLL
    for (int i = 0; i < sets * DOT_OUTS; i++)
        row[i] = far_row(f, w, i);
    UNROLL
    for (int s = 0; s < sets; s++)
        UNROLL
    for (int r = 0; r < nr; r++)
        acc[s][r] = vdupq_n_f32(0);
    for (int b = 0; b < blocks; b++, x += subs) {
        size_t at = (size_t)b * size;
        UNROLL
        for (int s = 0; s < sets; s++) {
            const uint8_t *const *from = row + s * DOT_OUTS;
            float32x4_t k[16];
            quant_scales_load(t, k, from, at);
            for (int g = 0; g < subs / parts; g++)
                UNROLL
            for (int p = 0; p < parts; p++) {
                int8x16x2_t q[DOT_OUTS];
                int sub = g * parts + p;
                UNROLL
                for (int i = 0; i < DOT_OUTS; i++)
                    q[i] = unpack32(t, from[i] + at, g, p, true);
                dot_block(t, nr, acc[s], q, quant_scales_of(t, k, sub), x + sub, xs);
            }
        }
    }
    UNROLL
    for (int s = 0; s < sets; s++)
        UNROLL
    for (int r = 0; r < nr; r++) {
        int o = f->o + s * DOT_OUTS * f->apart;
        store4_apart(y + (size_t)r * y_stride + o, (size_t)f->apart, acc[s][r],
                     f->n_out - s * DOT_OUTS, w->bias ? w->bias + o : NULL);
    }
}

/* One row. Types with blocks of 32 leave enough registers for sixteen streams of weights, which are
 * used unless they would be short. */
ALWAYS_INLINE void dot_lone(enum dtype t, float *y, const struct dot_x *x, const struct matrix *w,
                            int o0, int o1)
{
    int far = quant_subs(t) == 1 ? (o1 - o0) / LONE_OUTS : 0;
    int end = far >= LONE_APART ? o0 + far * LONE_OUTS : o0;
    struct far_walk many = far_walk(o0, end, LONE_OUTS), rest = far_walk(end, o1, DOT_OUTS);
    while (quant_subs(t) == 1 && far_next(&many))
        dot_group(t, LONE_OUTS / DOT_OUTS, 1, y, 0, x, 0, w, &many);
    while (far_next(&rest))
        dot_group(t, 1, 1, y, 0, x, 0, w, &rest);
}

ALWAYS_INLINE void dot_run(enum dtype t, float *y, size_t y_stride, const void *xp, int n,
                           const struct matrix *w, int o0, int o1)
{
    size_t xs = (size_t)(w->in / QBLOCK);
    struct far_walk f = far_walk(o0, o1, DOT_OUTS);
    if (n == 1) {
        dot_lone(t, y, xp, w, o0, o1);
        return;
    }
    while (far_next(&f)) {
        const struct dot_x *x = xp;
        int r = 0;
        for (; r + DOT_ROWS <= n; r += DOT_ROWS)
            dot_group(t, 1, DOT_ROWS, y + (size_t)r * y_stride, y_stride, x + (size_t)r * xs, xs, w,
                      &f);
        for (; r < n; r++)
            dot_group(t, 1, 1, y + (size_t)r * y_stride, y_stride, x + (size_t)r * xs, xs, w, &f);
    }
}

#define DOT_RUN(name, t)                                                                           \
    static void name(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,     \
                     int o0, int o1, void *scratch)                                                \
    {                                                                                              \
        (void)scratch;                                                                             \
        dot_run(t, y, y_stride, xp, n, w, o0, o1);                                                 \
    }

DOT_RUN(run_q8_0, DTYPE_Q8_0)
DOT_RUN(run_q4_0, DTYPE_Q4_0)
DOT_RUN(run_q5_0, DTYPE_Q5_0)
DOT_RUN(run_q4_k, DTYPE_Q4_K)
DOT_RUN(run_q5_k, DTYPE_Q5_K)
DOT_RUN(run_q6_k, DTYPE_Q6_K)
DOT_RUN(run_q4_1, DTYPE_Q4_1)
DOT_RUN(run_q5_1, DTYPE_Q5_1)
DOT_RUN(run_iq4_nl, DTYPE_IQ4_NL)

#define DOT_KERNEL(pack_fn, run_fn)                                                                \
    {                                                                                              \
        .name = "dot", .in_multiple = QBLOCK, .row_step = 1, .out_step = DOT_OUTS,                 \
        .packed_size = dot_packed_size, .scratch_size = dot_scratch_size, .pack = pack_fn,         \
        .run = run_fn                                                                              \
    }

static const struct matmul_kernel dot_kernels[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = DOT_KERNEL(pack_sums, run_q8_0),
    [DTYPE_Q4_0] = DOT_KERNEL(pack_q4_0, run_q4_0),
    [DTYPE_Q5_0] = DOT_KERNEL(pack_sums, run_q5_0),
    [DTYPE_Q4_K] = DOT_KERNEL(pack_sums, run_q4_k),
    [DTYPE_Q5_K] = DOT_KERNEL(pack_sums, run_q5_k),
    [DTYPE_Q6_K] = DOT_KERNEL(pack_sums, run_q6_k),
    [DTYPE_Q4_1] = DOT_KERNEL(pack_sums, run_q4_1),
    [DTYPE_Q5_1] = DOT_KERNEL(pack_sums, run_q5_1),
    [DTYPE_IQ4_NL] = DOT_KERNEL(pack_sums, run_iq4_nl),
};

#endif
