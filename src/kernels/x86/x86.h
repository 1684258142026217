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

/* Sixteen rows of a matrix are worked on together. Taken far apart, each followed by its
 * neighbours, they make sixteen long streams, which the hardware fetches ahead; sixteen
 * neighbouring rows do not (rows of 952 bytes on one core: 21 GB/s against 11). Outputs [o, o + 16
 * * apart) are then o + i, o + i + apart, ... for i < apart. Returns `apart` for a range of `count`
 * outputs, 0: too few. */
static inline int rows_apart(const struct matrix *w, int count)
{
    size_t most = (size_t)(1 << 30) / (16 * w->row_size) + 1; /* offsets have 32 bits */
    int apart = count / 16;
    return (size_t)apart < most ? apart : (int)most;
}

#endif
