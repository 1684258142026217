/* Rows of an F8 cache on GPUs (tensor/f8.h): rounding, and reading codes as BF16.
 *
 * A code whose sign and magnitude are moved to the places of BF16's is the number times 2^-120,
 * subnormal codes included. One multiplication by 2^(e + 120) gives the number times 2^e, exactly;
 * the exponent's byte is e + 247, so that this factor as BF16 is just the byte, shifted. */
#ifndef PV_KERNELS_CUDA_F8_CUH
#define PV_KERNELS_CUDA_F8_CUH

#include "kernels/cuda/cuda.h"

extern "C" {
#include "tensor/f8.h"
}

/* A row's factor as BF16, twice. Finite for any byte, so that a row that was never written, whose
 * codes count as zero, is zero. */
__device__ static inline uint32_t f8_factors(uint32_t exponent)
{
    return min(exponent, 254u) * 0x00800080u;
}

/* Four codes as BF16. */
__device__ static inline uint2 f8_read4(uint32_t codes, uint32_t factors)
{
    uint32_t lo = __byte_perm(codes, 0, 0x1404), hi = __byte_perm(codes, 0, 0x3424);
    lo = (lo & 0x80008000u) | (lo & 0x7f007f00u) >> 4;
    hi = (hi & 0x80008000u) | (hi & 0x7f007f00u) >> 4;
    /* Minus zero is what can be added without changing a zero's sign. */
    return make_uint2(fma_bf16x2(lo, factors, 0x80008000u), fma_bf16x2(hi, factors, 0x80008000u));
}

/* Eight codes, as one piece of a tile. */
__device__ static inline uint4 f8_read8(uint32_t lo, uint32_t hi, uint32_t factors)
{
    uint2 a = f8_read4(lo, factors), b = f8_read4(hi, factors);
    return make_uint4(a.x, a.y, b.x, b.y);
}

/* One code. */
__device__ static inline uint16_t f8_read(uint8_t code, uint8_t exponent)
{
    return (uint16_t)f8_read4(code, f8_factors(exponent)).x;
}

/* The same as in tensor/f8.h. */
__device__ static inline float f8_limit_row(float x)
{
    return x < F8_ROW_MOST ? x > -F8_ROW_MOST ? x : -F8_ROW_MOST : F8_ROW_MOST;
}

__device__ static inline uint32_t f8_exponent_byte(float most)
{
    uint32_t u = __float_as_uint(most);
    int e = (int)(u >> 23) - 127 - 8 + ((u & 0x7fffffu) > 0x600000u ? 1 : 0);
    return (uint32_t)(F8_EXPONENT_BIAS + max(e, (int)F8_EXPONENT_LEAST));
}

__device__ static inline float f8_scale(uint32_t exponent)
{
    return __uint_as_float((127 + F8_EXPONENT_BIAS - exponent) << 23);
}

/* x is within 448. */
__device__ static inline uint32_t f8_round(float x)
{
    uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80u, mag = u & 0x7fffffffu;
    uint32_t small = __float_as_uint(__uint_as_float(mag) + 16384.0f) - 0x46800000u;
    uint32_t large = ((mag + 0x7ffffu + (mag >> 20 & 1)) >> 20) - (120u << 3);
    return sign | (mag < 0x3c800000u ? small : large);
}

__device__ static inline uint32_t f8_round4(const float *x, float scale)
{
    return f8_round(x[0] * scale) | f8_round(x[1] * scale) << 8 | f8_round(x[2] * scale) << 16 |
           f8_round(x[3] * scale) << 24;
}

/* Bytes of K, and of V, of one head in a page: codes, then exponents. */
__host__ __device__ static inline int64_t f8_head_size(int d)
{
    return (int64_t)KV_CHUNK * (d + 1);
}

/* One head of K or V in one page. */
struct f8_rows {
    const uint8_t *code;     /* [KV_CHUNK, d] */
    const uint8_t *exponent; /* [KV_CHUNK] */
};

__device__ static inline struct f8_rows f8_page(const void *base, int64_t step, int page, int head,
                                                int d)
{
    struct f8_rows r;
    r.code = (const uint8_t *)base + page * step * 2 + head * f8_head_size(d);
    r.exponent = r.code + KV_CHUNK * d;
    return r;
}

/* Numbers 8 c .. 8 c + 7 of a row; those from d on are zero. */
__device__ static inline uint4 f8_piece(const struct f8_rows &rows, int row, int c, int d)
{
    const uint8_t *code = rows.code + row * d + c * 8;
    uint32_t at[2] = { 0, 0 };
    if (d % 8 == 0 && c * 8 < d) {
        uint2 x = *(const uint2 *)code;
        at[0] = x.x, at[1] = x.y;
    }
    for (int i = 0; i < 8 && d % 8 != 0; i++)
        if (c * 8 + i < d)
            at[i / 4] |= (uint32_t)code[i] << i % 4 * 8;
    return f8_read8(at[0], at[1], f8_factors(rows.exponent[row]));
}

#endif
