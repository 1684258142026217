/* The Arm kernels: the functions that fill the table, in rising order of features, and what the
 * files share. */
#ifndef PV_KERNELS_ARM_ARM_H
#define PV_KERNELS_ARM_ARM_H

#include "kernels/kernels.h"

/* One function per instruction set; each replaces the kernels for which it has faster ones. */
void kernels_init_neon(struct kernels *k);     /* matmul_neon.c: F32, F16, BF16 */
void quant_init_neon(struct kernels *k);       /* quant_neon.c */
void elementwise_init_neon(struct kernels *k); /* elementwise_neon.c */
void kernels_init_dotprod(struct kernels *k);  /* SDOT: quantised products */
void kernels_init_i8mm(struct kernels *k);     /* SMMLA: quantised products of two rows and more */
void repacked_init_dotprod(struct kernels *k); /* the same two for repacked weights */
void repacked_init_i8mm(struct kernels *k);
void kernels_init_bf16(struct kernels *k); /* BFMMLA: BF16 products */
void attn_init_bf16(struct kernels *k);    /* BFMMLA: attention over BF16 */

/* The SDOT kernel of a quantised type, which the i8mm kernels use for single rows. */
const struct matmul_kernel *matmul_dotprod(enum dtype t);

/* The SDOT kernel for repacked weights, for all types that have one. */
extern const struct matmul_kernel matmul_repacked_dotprod;

/* The table's softmax; n may be any multiple of 4 here. */
float softmax_neon(float *p, const float *s, int n, int limit, float scale, float *max);

#endif
