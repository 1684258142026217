/* FP8 rows of a lossy KV cache: E4M3 codes, and one exponent for each row.
 *
 * E4M3 (the OCP's 8-bit format "FP8 E4M3") has a sign, 4 bits of exponent with bias 7 and 3 bits of
 * fraction. Its largest number is 448; there are no infinities; 0x7f and 0xff are NaN. A row, which
 * is the key or the value of one head in one slot, is stored as codes times 2^e, where e is the
 * smallest exponent with which no number of the row exceeds 448. So what is stored is a function of
 * the row alone. Every stored number is exact in BF16. */
#ifndef PV_TENSOR_F8_H
#define PV_TENSOR_F8_H

#include "tensor/half.h"

#include <stdbool.h>

/* The largest number of a row: 448 * 2^7. GPUs build the factor of a row directly from the byte of
 * its exponent (kernels/cuda/f8.cuh), which limits e to 7. */
#define F8_ROW_MOST 57344.0f

enum { F8_EXPONENT_BIAS = 247, F8_EXPONENT_LEAST = -100, F8_NAN = 0x7f };

/* Rounds to nearest even; saturates at 448; NaN becomes NaN. */
static inline uint8_t f8_from_f32(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 24 & 0x80u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return (uint8_t)(sign | F8_NAN);
    if (mag >= 0x43e00000u) /* 448 */
        return (uint8_t)(sign | 0x7eu);
    if (mag < 0x3c800000u) /* below 2^-6: a multiple of 2^-9, which is the last bit of 2^14 + f */
        return (uint8_t)(sign | (f32_bits(f32_from_bits(mag) + 16384.0f) - f32_bits(16384.0f)));
    return (uint8_t)(sign | (((mag + 0x7ffffu + (mag >> 20 & 1)) >> 20) - (120u << 3)));
}

/* The number of a code that is not NaN. Without branches, so that compilers vectorise it. */
static inline float f8_finite(uint8_t c)
{
    uint32_t mag = c & 0x7f;
    float small = f32_from_bits((mag << 20) + (121u << 23)) - 0.015625f; /* exponent field zero */
    float f = mag < 8 ? small : f32_from_bits((mag << 20) + (120u << 23));
    return f32_from_bits(f32_bits(f) | (uint32_t)(c & 0x80) << 24);
}

static inline float f8_to_f32(uint8_t c)
{
    return (c & 0x7f) == F8_NAN ? f32_from_bits(0x7fc00000u | (uint32_t)(c & 0x80) << 24)
                                : f8_finite(c);
}

/* The byte that stores the exponent of a row whose largest magnitude is `most`, which is at most
 * F8_ROW_MOST. */
static inline uint8_t f8_exponent(float most)
{
    uint32_t u = f32_bits(most);
    int e = (int)(u >> 23) - 127 - 8 + ((u & 0x7fffffu) > 0x600000u); /* 448 is 1.75 * 2^8 */
    return (uint8_t)(F8_EXPONENT_BIAS + (e > F8_EXPONENT_LEAST ? e : F8_EXPONENT_LEAST));
}

/* 2^e of a stored byte. Memory that was never written is zero, and its numbers are zero. */
static inline float f8_factor(uint8_t exponent)
{
    return exponent > 120 ? f32_from_bits((uint32_t)(exponent - 120) << 23) : 0;
}

/* 2^-e, by which a row is multiplied before it is rounded. */
static inline float f8_inverse(uint8_t exponent)
{
    return f32_from_bits((uint32_t)(127 + F8_EXPONENT_BIAS - exponent) << 23);
}

/* A number of a row as the cache may hold it: finite. NaN counts as the largest. */
static inline float f8_limit(float f)
{
    return f < F8_ROW_MOST ? f > -F8_ROW_MOST ? f : -F8_ROW_MOST : F8_ROW_MOST;
}

#endif
