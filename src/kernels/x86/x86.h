/* Declarations that the files of this folder share. */
#ifndef PV_KERNELS_X86_X86_H
#define PV_KERNELS_X86_X86_H

#include "kernels/kernels.h"

void elementwise_init_avx2(struct kernels *k);
void elementwise_init_avx512(struct kernels *k);
void attn_init_avx2(struct kernels *k);
void attn_init_avx512(struct kernels *k);
void quant_init_avx2(struct kernels *k);
void quant_init_avx512(struct kernels *k);
void quant_init_amx(struct kernels *k);

/* Sixteen rows of a matrix are processed together. If they are far apart, each followed by its
 * neighbours, they are sixteen long streams, which the hardware prefetches; sixteen neighbouring
 * rows are not (rows of 952 bytes on one core: 21 GB/s against 11). Outputs [o, o + 16 * apart) are
 * then taken as o + i, o + i + apart, ... for i < apart. Returns `apart` for a range of `count`
 * outputs; 0 if there are too few. */
static inline int rows_apart(const struct matrix *w, int count)
{
    size_t most = (size_t)(1 << 30) / (16 * w->row_size) + 1; /* so that offsets fit into 32 bits */
    int apart = count / 16;
    return (size_t)apart < most ? apart : (int)most;
}

#endif
