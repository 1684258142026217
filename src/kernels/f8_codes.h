/* Reading the codes of an F8 cache, compiled once for each instruction set. */
#ifndef PV_KERNELS_F8_CODES_H
#define PV_KERNELS_F8_CODES_H

#include "tensor/f8.h"

/* y[i] = codes[i] * factors[i] as BF16: exact, so that the upper half of the f32 number is all of
 * it. A plain loop that compilers vectorise. */
static inline void f8_to_bf16(uint16_t *restrict y, const uint8_t *restrict codes,
                              const float *restrict factors, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = (uint16_t)(f32_bits(f8_finite(codes[i]) * factors[i]) >> 16);
}

#endif
