/* The layout of repacked K-quants, Q4_1 and Q5_1: a template, compiled once per instruction set.
 * Lines of dwords of VEC outputs, [plane][tile][block][line]. */
#ifndef PV_KERNELS_X86_QUANT_REPACKED_H
#define PV_KERNELS_X86_QUANT_REPACKED_H

#include "kernels/kernels.h"
#include "kernels/x86/quant_unpack.h"

/* Bytes of a tile in one plane. */
static inline size_t quant_repacked_tile(const struct matrix *w)
{
    size_t lines = repacked_lines(w->dtype) / repacked_planes(w->dtype);
    return (size_t)(w->in / dtype_block(w->dtype)) * lines * VEC * 4;
}

/* Bytes from plane to plane: not a multiple of a page, because lines of all planes would then fall
 * into the same few cache sets. */
static inline size_t quant_repacked_plane(const struct matrix *w)
{
    size_t tiles = (size_t)((w->out + VEC - 1) / VEC);
    return (tiles * quant_repacked_tile(w) + 4095) / 4096 * 4096 + 9 * 64;
}

static inline size_t quant_repacked_size(const struct matrix *w)
{
    return repacked_planes(w->dtype) * quant_repacked_plane(w);
}

/* Set t to the VEC outputs from o on. */
static inline void quant_repacked_rows(struct tile_rows *t, const struct matrix *w, int o)
{
    t->repacked = (const uint8_t *)w->repacked + (size_t)(o / VEC) * quant_repacked_tile(w);
    t->plane = quant_repacked_plane(w);
}

#ifdef __AVX512F__
/* quant_avx512.c: dot products for any number of rows, and the repacking. */
extern const struct matmul_kernel quant_repacked_mins, quant_repacked_q6_K;
#endif

#endif
