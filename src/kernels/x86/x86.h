/* What the files of this folder tell each other. */
#ifndef PV_KERNELS_X86_X86_H
#define PV_KERNELS_X86_X86_H

#include "kernels/kernels.h"

void elementwise_init_avx2(struct kernels *k);
void elementwise_init_avx512(struct kernels *k);
void quant_init_avx2(struct kernels *k);
void quant_init_avx512(struct kernels *k);

#endif
