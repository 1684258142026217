/* 16-bit floats, one value at a time: IEEE half and bfloat16, both rounding to nearest even. */
#ifndef PV_TENSOR_HALF_H
#define PV_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 64); /* NaN stays a quiet NaN */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= 0x7c00) /* infinity and NaN */
        return f32_from_bits(sign | 0x7f800000u | (mag & 0x3ff) << 13);
    if (mag >= 0x0400) /* normal: rebias the exponent from 15 to 127 */
        return f32_from_bits(sign | ((mag << 13) + (112u << 23)));
    return f32_from_bits(sign | f32_bits((float)mag * 0x1p-24f)); /* zero and subnormal */
}

static inline uint16_t f16_from_f32(float f)
{
    uint32_t u = f32_bits(f), sign = (u >> 16) & 0x8000, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | ((mag >> 13) & 0x3ff));
    if (mag >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000u) { /* below 2^-14: adding 0.5 leaves the subnormal in the low bits */
        float shifted = f32_from_bits(mag) + 0.5f;
        return (uint16_t)(sign | (f32_bits(shifted) - 0x3f000000u));
    }
    mag += 0xfff + ((mag >> 13) & 1);
    return (uint16_t)(sign | ((mag - (112u << 23)) >> 13));
}

#endif
