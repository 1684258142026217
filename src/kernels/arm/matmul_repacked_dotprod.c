/* Products with repacked weights (repacked_quant.h) by SDOT.
 *
 * For each row of x, eight SDOT and one pairwise addition give the integer sums of a strip's four
 * outputs; the float part is that of quant_blocks.h. The strips of a pass are far apart (panel.h:
 * struct far_walk), each one long stream. */
#include "kernels/arm/arm.h"
#include "kernels/arm/repacked_quant.h"

enum {
    DOT_ROWS = 4,   /* rows per register block */
    LONE_STRIPS = 4 /* strips per pass with one row */
};

/* A block of one packed row: vector i has values 8 i to 8 i + 7, twice. */
struct repacked_x {
    int8_t q[REPACKED_STEPS][REPACKED_VECTOR];
    float d;
    float sum; /* d * sum q */
    float pad[2];
};

static size_t packed_size(int n, int in)
{
    return sizeof(struct repacked_x) * (size_t)n * (size_t)(in / QBLOCK);
}

static size_t scratch_size(int in)
{
    (void)in;
    return 0;
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    int blocks = in / QBLOCK;
    (void)n;
    for (int r = r0; r < r1; r++) {
        struct repacked_x *dst = (struct repacked_x *)xp + (size_t)r * (size_t)blocks;
        const float *src = x + (size_t)r * stride;
        for (int b = 0; b < blocks; b++) {
            int8_t q[QBLOCK];
            int sum;
            dst[b].d = quantise32(q, src + b * QBLOCK, &sum);
            dst[b].sum = dst[b].d * (float)sum;
            for (int i = 0; i < REPACKED_STEPS; i++) {
                int8x8_t v = vld1_s8(q + 8 * i);
                vst1q_s8(dst[b].q[i], vcombine_s8(v, v));
            }
        }
    }
}

/* Multiply steps [i0, i1) of a block by one row: returns the sums of four outputs. */
ALWAYS_INLINE float32x4_t strip_sums(enum dtype t, int8x16_t (*q)[REPACKED_PAIRS],
                                     const struct repacked_x *x, int i0, int i1)
{
    int32x4_t s[REPACKED_PAIRS] = { fresh_zero(), fresh_zero() };
    UNROLL
    for (int i = i0; i < i1; i++) {
        int8x16_t v = vld1q_s8(x->q[i]);
        s[0] = vdotq_s32(s[0], q[i][0], v);
        s[1] = vdotq_s32(s[1], q[i][1], v);
    }
    int32x4_t sum = vpaddq_s32(s[0], s[1]);
    return repacked_shift(t) == 4   ? vcvtq_n_f32_s32(sum, 4)
           : repacked_shift(t) == 2 ? vcvtq_n_f32_s32(sum, 2)
                                    : vcvtq_f32_s32(sum);
}

ALWAYS_INLINE void strip_block(enum dtype t, int nr, float32x4_t *acc,
                               int8x16_t (*q)[REPACKED_PAIRS], struct quant_scales k,
                               const struct repacked_x *x, size_t xs)
{
    UNROLL
    for (int r = 0; r < nr; r++, x += xs) {
        int end = t == DTYPE_Q6_K ? REPACKED_STEPS / 2 : REPACKED_STEPS;
        acc[r] = vfmaq_f32(acc[r], strip_sums(t, q, x, 0, end), vmulq_n_f32(k.a, x->d));
        if (t == DTYPE_Q6_K)
            acc[r] =
                vfmaq_f32(acc[r], strip_sums(t, q, x, end, REPACKED_STEPS), vmulq_n_f32(k.b, x->d));
        if (quant_has_min(t))
            acc[r] = vfmsq_n_f32(acc[r], k.b, x->sum);
    }
}

/* Multiply `sets` strips of f by nr rows. t, sets and nr are compile-time constants. */
ALWAYS_INLINE void strips(enum dtype t, int sets, int nr, float *y, size_t y_stride,
                          const struct repacked_x *x, const struct matrix *w,
                          const struct far_walk *f, int o1)
{
    size_t xs = (size_t)(w->in / QBLOCK), size = repacked_group_size(t);
    const uint8_t *p[LONE_STRIPS];
    float32x4_t acc[LONE_STRIPS][DOT_ROWS];
    UNROLL
    for (int s = 0; s < sets; s++) {
        p[s] = repacked_strip(w, t, f->o + panel_min(s, f->n_out - 1) * f->apart);
        UNROLL
        for (int r = 0; r < nr; r++)
            acc[s][r] = vdupq_n_f32(0);
    }
    for (size_t b = 0; b < xs; b += (size_t)quant_subs(t)) {
        struct quant_scales unit[LONE_STRIPS];
        UNROLL
        for (int s = 0; s < sets; s++) {
            unit[s] = repacked_unit_scales(t, p[s]);
            p[s] += repacked_head(t);
        }
        for (int g = 0; g < repacked_groups(t); g++, x += repacked_parts(t))
            UNROLL
        for (int s = 0; s < sets; s++) {
            UNROLL
            for (int part = 0; part < repacked_parts(t); part++) {
                int8x16_t q[REPACKED_STEPS][REPACKED_PAIRS];
                repacked_quants(t, q, p[s], part);
                strip_block(t, nr, acc[s], q, repacked_scales(t, unit[s], p[s], part), x + part,
                            xs);
            }
            p[s] = keep_after(p[s] + size, acc[s][0]);
        }
    }
    UNROLL
    for (int s = 0; s < sets; s++)
        UNROLL
    for (int r = 0; r < nr; r++) {
        int o = (f->o + s * f->apart) * REPACKED_OUTS;
        if (s < f->n_out)
            store4(y + (size_t)r * y_stride + o, acc[s][r], o1 - o, w->bias ? w->bias + o : NULL);
    }
}

ALWAYS_INLINE void run_type(enum dtype t, float *y, size_t y_stride, const struct repacked_x *x,
                            int n, const struct matrix *w, int o0, int o1)
{
    int end = (o1 + REPACKED_OUTS - 1) / REPACKED_OUTS;
    struct far_walk f = far_walk(o0 / REPACKED_OUTS, end, n == 1 ? LONE_STRIPS : 1);
    size_t xs = (size_t)(w->in / QBLOCK);
    while (far_next(&f)) {
        if (n == 1) {
            strips(t, LONE_STRIPS, 1, y, y_stride, x, w, &f, o1);
            continue;
        }
        for (int r = 0; r < n; r += DOT_ROWS) {
            float *to = y + (size_t)r * y_stride;
            const struct repacked_x *from = x + (size_t)r * xs;
            if (n - r >= DOT_ROWS)
                strips(t, 1, DOT_ROWS, to, y_stride, from, w, &f, o1);
            else if (n - r == 3)
                strips(t, 1, 3, to, y_stride, from, w, &f, o1);
            else if (n - r == 2)
                strips(t, 1, 2, to, y_stride, from, w, &f, o1);
            else
                strips(t, 1, 1, to, y_stride, from, w, &f, o1);
        }
    }
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    (void)scratch;
    switch (w->dtype) {
    case DTYPE_Q8_0:
        run_type(DTYPE_Q8_0, y, y_stride, xp, n, w, o0, o1);
        break;
    case DTYPE_Q4_0:
        run_type(DTYPE_Q4_0, y, y_stride, xp, n, w, o0, o1);
        break;
    case DTYPE_IQ4_NL:
        run_type(DTYPE_IQ4_NL, y, y_stride, xp, n, w, o0, o1);
        break;
    case DTYPE_Q4_K:
        run_type(DTYPE_Q4_K, y, y_stride, xp, n, w, o0, o1);
        break;
    case DTYPE_Q5_K:
        run_type(DTYPE_Q5_K, y, y_stride, xp, n, w, o0, o1);
        break;
    default:
        run_type(DTYPE_Q6_K, y, y_stride, xp, n, w, o0, o1);
        break;
    }
}

const struct matmul_kernel matmul_repacked_dotprod = { .name = "repacked-dot",
                                                       .in_multiple = QBLOCK,
                                                       .row_step = 1,
                                                       .out_step = LONE_STRIPS * REPACKED_OUTS,
                                                       .packed_size = packed_size,
                                                       .scratch_size = scratch_size,
                                                       .pack = pack,
                                                       .run = run,
                                                       .repacked_size = repacked_size,
                                                       .repack = repack };

void repacked_init_dotprod(struct kernels *k)
{
    static const enum dtype types[] = { DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_IQ4_NL,
                                        DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        k->matmul_repacked[types[i]] = &matmul_repacked_dotprod;
}
