/* Quantised products with SDOT: four products of int8 added to each lane of int32. */
#include "kernels/arm/arm.h"
#include "kernels/arm/quant.h"

ALWAYS_INLINE int32x4_t dot16(int8x16_t w, int8x16_t x)
{
    return vdotq_s32(vdupq_n_s32(0), w, x);
}

ALWAYS_INLINE int32x4_t dot32(int8x16x2_t w, int8x16x2_t x)
{
    return vdotq_s32(dot16(w.val[0], x.val[0]), w.val[1], x.val[1]);
}

#define DOT_NAME "dotprod"
#define DOT_TABLE matmul_dotprod
#include "kernels/arm/quant_dot.h"

void kernels_init_dotprod(struct kernels *k)
{
    dot_init(k);
}
