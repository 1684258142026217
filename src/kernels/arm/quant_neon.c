/* Quantised products with baseline NEON: int8 products widened to int16, two of them added there
 * (2 * 128 * 127 fits), then widened to int32. */
#include "kernels/arm/arm.h"
#include "kernels/arm/quant.h"

ALWAYS_INLINE int32x4_t dot32(int8x16x2_t w, int8x16x2_t x)
{
    int16x8_t lo = vmull_s8(vget_low_s8(w.val[0]), vget_low_s8(x.val[0]));
    int16x8_t hi = vmull_high_s8(w.val[0], x.val[0]);
    lo = vmlal_s8(lo, vget_low_s8(w.val[1]), vget_low_s8(x.val[1]));
    hi = vmlal_high_s8(hi, w.val[1], x.val[1]);
    return vpadalq_s16(vpaddlq_s16(lo), hi);
}

ALWAYS_INLINE int32x4_t dot16(int8x16_t w, int8x16_t x)
{
    int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    return vpadalq_s16(vpaddlq_s16(lo), vmull_high_s8(w, x));
}

#define DOT_NAME "neon"
#define DOT_TABLE matmul_quant_neon
#include "kernels/arm/quant_dot.h"

void quant_init_neon(struct kernels *k)
{
    dot_init(k);
}
