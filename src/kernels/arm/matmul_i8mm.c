/* Quantised products with SMMLA on weights as stored in the file (smmla.h explains the method).
 *
 * A single row uses the SDOT kernels: integer sums are exact and the float part is the same, so the
 * bits are too. For Q4_0 unpacked in registers, the integer sums start at -8 sum q, which saves
 * subtracting 8 from each weight. */
#include "kernels/arm/smmla.h"

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

/* ---- few rows: weights unpacked and paired in registers ---- */

/* Compute the four outputs of f for n rows in np pairs. t and np are compile-time constants. */
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
            x = add_block(t, 0, np, acc, &block, x) + np;
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

static void tile_plain(const struct panel_tile *t)
{
    tile_run(DTYPE_Q8_0, 0, t);
}

static void tile_min(const struct panel_tile *t)
{
    tile_run(DTYPE_Q4_K, 0, t);
}

static void tile_halves(const struct panel_tile *t)
{
    tile_run(DTYPE_Q6_K, 0, t);
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

static size_t packed_size(int n, int in)
{
    return n == 1 ? matmul_dotprod(DTYPE_Q8_0)->packed_size(1, in) : pairs_size(n, in);
}

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
