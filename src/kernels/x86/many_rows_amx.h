/* Products of many rows by AMX tiles (many_rows_amx.c), shared by the kernels for BF16 and F16
 * weights, and the layout of their operands. A value is stored as one bf16 number, or more
 * precisely as the sum of two, in tiles that follow each other (planes). */
#ifndef PV_KERNELS_X86_MANY_ROWS_AMX_H
#define PV_KERNELS_X86_MANY_ROWS_AMX_H

#include "base/minmax.h"
#include "kernels/x86/tile_amx.h"

enum { GROUP = TILE_ROWS }; /* activation rows, or outputs, of one tile */

/* Where results go. */
struct target {
    float *y;
    size_t stride;
    const float *bias;
    int n;                            /* rows */
    int o1;                           /* end of the requested outputs */
    const struct matmul_fused *fused; /* NULL: results are stored in y */
};

static inline size_t groups_of(int n)
{
    return ((size_t)n + GROUP - 1) / GROUP;
}

/* Number of tiles for n values of `in`, in one plane. */
static inline int steps_of(int n)
{
    return (n + TILE_K - 1) / TILE_K;
}

/* Row o of a matrix; after the last row, the last is repeated, and its products are not stored. */
static inline const uint8_t *weight_row(const struct matrix *w, int o)
{
    return (const uint8_t *)w->data + (size_t)min_int(o, w->out - 1) * w->row_size;
}

/* Split the next 32 of n > 0 numbers of a row of F16 weights, with zeros after the last, into a row
 * of one tile and of the tile after it. */
static inline __attribute__((always_inline)) void split_row(uint8_t *to, const uint8_t *src, int n)
{
    unsigned mask = n < TILE_K ? (1u << n) - 1 : ~0u;
    split_f16_32(to, _mm256_maskz_loadu_epi16((__mmask16)mask, src),
                 _mm256_maskz_loadu_epi16((__mmask16)(mask >> 16), src + 32));
}

/* Store a C tile of outputs o, o + apart, ... and the rows of one group. */
static inline void put_tile(const struct target *t, const float *c, int o, int apart, int group)
{
    int r = group * GROUP;
    struct tile_place p = { .y = t->y + (size_t)r * t->stride + o,
                            .stride = t->stride,
                            .bias = t->bias ? t->bias + o : NULL,
                            .apart = apart,
                            .n_out = apart > 1 ? GROUP : min_int(GROUP, t->o1 - o),
                            .n_rows = min_int(GROUP, t->n - r) };
    store_tile(&p, c);
}

/* Copy values [k0, k1) of outputs o, o + apart, ... of a BF16 matrix into tiles, row after row as
 * in memory. After the last output, the last one is repeated; its products are computed but not
 * stored. */
void copy_tiles(uint8_t *dst, const struct matrix *w, int o, int apart, int k0, int k1);

/* Compute outputs [o0, t->o1) of all rows, with BF16 weights (one plane) or F16 weights (two
 * planes, pairs of values in the order of split_place). xp: [groups][steps][planes] tiles. */
void many_rows_run(const struct target *t, const uint8_t *xp, const struct matrix *w, int o0,
                   void *scratch);
size_t many_rows_scratch(void);
/* The same as `fused` of a struct matmul_kernel. */
void many_rows_fused(const struct matmul_fused *f, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch);

/* F16 weights (matmul_f16_amx.c). */
extern const struct matmul_kernel matmul_f16_amx;
extern const struct matmul_kernel matmul_f16_repacked_amx; /* repacked */

#endif
