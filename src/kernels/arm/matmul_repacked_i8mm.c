/* Products with repacked weights (repacked_quant.h) by SMMLA (smmla.h explains the method). A
 * single row uses the SDOT kernel, which gives the same bits. */
#include "kernels/arm/repacked_quant.h"
#include "kernels/arm/smmla.h"

enum { DIRECT_STRIPS = 4 /* most strips per pass */ };

/* The type for which add_block should compute: unpacked blocks without halves or mins are all
 * alike. */
ALWAYS_INLINE enum dtype repacked_kind(enum dtype t)
{
    return t == DTYPE_Q6_K || quant_has_min(t) ? t : DTYPE_Q8_0;
}

/* Unpack block `part` of the group at p. */
ALWAYS_INLINE void repacked_block(enum dtype t, struct mm_block *w, struct quant_scales unit,
                                  const uint8_t *p, int part)
{
    struct quant_scales k = repacked_scales(t, unit, p, part);
    repacked_quants(t, w->q, p, part);
    w->a[0] = vzip1q_f32(k.a, k.a);
    w->a[1] = vzip2q_f32(k.a, k.a);
    w->b[0] = vzip1q_f32(k.b, k.b);
    w->b[1] = vzip2q_f32(k.b, k.b);
}

/* ---- panels ---- */

ALWAYS_INLINE void load_panel(enum dtype t, void *panel, const struct matrix *w, int o, int n_out,
                              int k0, int k1)
{
    size_t unit_size = repacked_unit(t), size = repacked_group_size(t);
    int values = QBLOCK * quant_subs(t);
    for (int i = 0; i < n_out; i += STRIP_OUTS) {
        struct mm_w *dst = (struct mm_w *)panel + (size_t)(i / STRIP_OUTS) * (CHUNK / QBLOCK);
        const uint8_t *p = repacked_strip(w, t, (o + i) / STRIP_OUTS);
        p += (size_t)(k0 / values) * unit_size;
        for (int k = k0; k < k1; k += values) {
            struct quant_scales unit = repacked_unit_scales(t, p);
            p += repacked_head(t);
            for (int g = 0; g < repacked_groups(t); g++, p += size)
                UNROLL
            for (int part = 0; part < repacked_parts(t); part++, dst++) {
                struct mm_block block;
                repacked_block(t, &block, unit, p, part);
                block_write(repacked_kind(t), dst, &block);
            }
        }
    }
}

/* ---- few rows ---- */

/* Multiply `sets` strips of f by n rows in np pairs. t, sets and np are compile-time constants. */
ALWAYS_INLINE void direct(enum dtype t, int sets, int np, float *y, size_t y_stride,
                          const struct mm_x *x, int n, const struct matrix *w,
                          const struct far_walk *f, int o1)
{
    const uint8_t *from[DIRECT_STRIPS];
    float32x4_t acc[DIRECT_STRIPS][TILE_PAIRS][STRIP_PAIRS];
    int units = w->in / QBLOCK / quant_subs(t);
    UNROLL
    for (int s = 0; s < sets; s++) {
        from[s] = repacked_strip(w, t, f->o + panel_min(s, f->n_out - 1) * f->apart);
        UNROLL
        for (int p = 0; p < np; p++)
            UNROLL
        for (int i = 0; i < STRIP_PAIRS; i++)
            acc[s][p][i] = vdupq_n_f32(0);
    }
    for (int u = 0; u < units; u++) {
        struct quant_scales unit[DIRECT_STRIPS];
        UNROLL
        for (int s = 0; s < sets; s++) {
            unit[s] = repacked_unit_scales(t, from[s]);
            from[s] += repacked_head(t);
        }
        for (int g = 0; g < repacked_groups(t); g++) {
            UNROLL
            for (int s = 0; s < sets; s++) {
                UNROLL
                for (int part = 0; part < repacked_parts(t); part++) {
                    struct mm_block block;
                    repacked_block(t, &block, unit[s], from[s], part);
                    add_block(repacked_kind(t), repacked_shift(t), np, acc[s], &block,
                              x + part * np);
                }
                from[s] += repacked_group_size(t);
            }
            x += repacked_parts(t) * np;
        }
    }
    UNROLL
    for (int s = 0; s < sets; s++)
        UNROLL
    for (int p = 0; p < np; p++) {
        int o = (f->o + s * f->apart) * STRIP_OUTS;
        if (s < f->n_out)
            store_pair(y + 2 * (size_t)p * y_stride + o, y_stride, acc[s][p][0], acc[s][p][1],
                       o1 - o, 2 * p + 1 < n, w->bias ? w->bias + o : NULL);
    }
}

/* Uses as many strips at a time as registers and the work per strip allow: with fewer rows, memory
 * bandwidth matters more, and it is best with many long streams. */
ALWAYS_INLINE void direct_rows(enum dtype t, float *y, size_t y_stride, const struct mm_x *x, int n,
                               const struct matrix *w, int o0, int o1)
{
    int np = (n + 1) / 2, sets = np == 1 ? 4 : np <= 3 ? 2 : 1;
    struct far_walk f = far_walk(o0 / STRIP_OUTS, (o1 + STRIP_OUTS - 1) / STRIP_OUTS, sets);
    while (far_next(&f))
        switch (np) {
        case 1:
            direct(t, 4, 1, y, y_stride, x, n, w, &f, o1);
            break;
        case 2:
            direct(t, 2, 2, y, y_stride, x, n, w, &f, o1);
            break;
        case 3:
            direct(t, 2, 3, y, y_stride, x, n, w, &f, o1);
            break;
        case 4:
            direct(t, 1, 4, y, y_stride, x, n, w, &f, o1);
            break;
        case 5:
            direct(t, 1, 5, y, y_stride, x, n, w, &f, o1);
            break;
        case 6:
            direct(t, 1, 6, y, y_stride, x, n, w, &f, o1);
            break;
        default:
            direct(t, 1, 7, y, y_stride, x, n, w, &f, o1);
            break;
        }
}

/* ---- one kernel per type ---- */

static size_t packed_size(int n, int in)
{
    return n == 1 ? matmul_repacked_dotprod.packed_size(1, in) : pairs_size(n, in);
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n == 1)
        matmul_repacked_dotprod.pack(xp, x, stride, n, in, r0, r1);
    else
        pack_pairs(DTYPE_Q8_0, xp, x, stride, n, in, r0, r1);
}

ALWAYS_INLINE void run_any(enum dtype t, const struct panel_kernel *p, float *y, size_t y_stride,
                           const void *xp, int n, const struct matrix *w, int o0, int o1,
                           void *scratch)
{
    if (n == 1)
        matmul_repacked_dotprod.run(y, y_stride, xp, n, w, o0, o1, scratch);
    else if (n <= DIRECT_ROWS)
        direct_rows(t, y, y_stride, xp, n, w, o0, o1);
    else
        panel_run(p, y, y_stride, xp, n, w, o0, o1, scratch);
}

#define REPACKED_TYPE(name, t)                                                                     \
    static void load_##name(void *panel, const struct matrix *w, int o, int n_out, int k0, int k1) \
    {                                                                                              \
        load_panel(t, panel, w, o, n_out, k0, k1);                                                 \
    }                                                                                              \
    static void tile_##name(const struct panel_tile *tile)                                         \
    {                                                                                              \
        tile_run(repacked_kind(t), repacked_shift(t), tile);                                       \
    }                                                                                              \
    static const struct panel_kernel panel_##name = MM_PANEL(load_##name, tile_##name);            \
    static void run_##name(float *y, size_t y_stride, const void *xp, int n,                       \
                           const struct matrix *w, int o0, int o1, void *scratch)                  \
    {                                                                                              \
        run_any(t, &panel_##name, y, y_stride, xp, n, w, o0, o1, scratch);                         \
    }

REPACKED_TYPE(q8_0, DTYPE_Q8_0)
REPACKED_TYPE(q4_0, DTYPE_Q4_0)
REPACKED_TYPE(iq4_nl, DTYPE_IQ4_NL)
REPACKED_TYPE(q4_k, DTYPE_Q4_K)
REPACKED_TYPE(q5_k, DTYPE_Q5_K)
REPACKED_TYPE(q6_k, DTYPE_Q6_K)

static size_t scratch_size(int in)
{
    (void)in;
    return panel_scratch(&panel_q8_0);
}

#define REPACKED_KERNEL(name_)                                                                     \
    {                                                                                              \
        .name = "repacked-i8mm", .in_multiple = QBLOCK, .row_step = 2, .out_step = PANEL_OUTS,     \
        .packed_size = packed_size, .scratch_size = scratch_size, .pack = pack,                    \
        .run = run_##name_, .repacked_size = repacked_size, .repack = repack                       \
    }

static const struct matmul_kernel kernels_repacked[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = REPACKED_KERNEL(q8_0), [DTYPE_Q4_0] = REPACKED_KERNEL(q4_0),
    [DTYPE_Q4_K] = REPACKED_KERNEL(q4_k), [DTYPE_Q5_K] = REPACKED_KERNEL(q5_k),
    [DTYPE_Q6_K] = REPACKED_KERNEL(q6_k), [DTYPE_IQ4_NL] = REPACKED_KERNEL(iq4_nl),
};

void repacked_init_i8mm(struct kernels *k)
{
    for (int t = DTYPE_Q8_0; t < DTYPE_COUNT; t++)
        if (kernels_repacked[t].run)
            k->matmul_repacked[t] = &kernels_repacked[t];
}
