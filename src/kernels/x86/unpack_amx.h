/* 16-bit weights and K-quants to bf16, into A tiles: 16 output rows, 32 values of each a tile.
 * Quantised values are formed in f32 and rounded once (doc/kernels.md). */
#ifndef PV_KERNELS_X86_UNPACK_AMX_H
#define PV_KERNELS_X86_UNPACK_AMX_H

#include "tensor/dtype.h"

/* Sixteen row pieces of the same length somewhere in a weight matrix. */
struct row_pieces {
    const uint8_t *base; /* piece r begins at base + at[r] */
    int32_t at[16];
    int n;           /* values of a piece: a multiple of 32 and of the type's block */
    ptrdiff_t ahead; /* what will be read next lies this far on: it is fetched meanwhile */
};

/* Tile i (values 32 i .. 32 i + 31) goes to dst + 512 i. */
typedef void unpack_fn(uint16_t *dst, const struct row_pieces *p);

/* NULL for the types that have other kernels. */
unpack_fn *unpack_find(enum dtype t);
/* f16 = hi + lo exactly, both bf16. */
void unpack_f16(uint16_t *hi, uint16_t *lo, const struct row_pieces *p);

#endif
