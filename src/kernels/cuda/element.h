/* Access to elements of the types that kernels exchange (F32, BF16, F16), one at a time or 16 bytes
 * at a time, and grid sizes for elementwise kernels. */
#ifndef PV_KERNELS_CUDA_ELEMENT_H
#define PV_KERNELS_CUDA_ELEMENT_H

#include "kernels/cuda/cuda.h"

enum { ELEMENT_THREADS = 256 }; /* of a block */

struct bf16 {
    uint16_t bits;
};

__device__ static inline float to_float(float x)
{
    return x;
}

__device__ static inline float to_float(bf16 x)
{
    return bf16_float(x.bits);
}

__device__ static inline float to_float(__half x)
{
    return __half2float(x);
}

__device__ static inline void from_float(float *y, float x)
{
    *y = x;
}

__device__ static inline void from_float(bf16 *y, float x)
{
    y->bits = (uint16_t)pack_bf16(x, 0);
}

__device__ static inline void from_float(__half *y, float x)
{
    *y = __float2half_rn(x);
}

/* N numbers as one or two accesses of 16 bytes, or of 8. */
template <int N, class T> __device__ static inline void load_vec(float v[N], const T *p)
{
    constexpr int BYTES = N * (int)sizeof(T);
    static_assert(BYTES == 8 || BYTES % 16 == 0, "whole accesses");
    union {
        uint4 u[(BYTES + 15) / 16];
        uint2 half;
        T t[N];
    } a;
    if (BYTES == 8)
        a.half = *(const uint2 *)p;
    else
        for (int i = 0; i < BYTES / 16; i++)
            a.u[i] = ((const uint4 *)p)[i];
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = to_float(a.t[i]);
}

template <int N> __device__ static inline void store_vec(float *p, const float v[N])
{
#pragma unroll
    for (int i = 0; i < N; i += 4)
        *(float4 *)(p + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
}

template <int N> __device__ static inline void store_vec(bf16 *p, const float v[N])
{
    uint32_t u[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        u[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
    if (N == 4)
        *(uint2 *)p = make_uint2(u[0], u[1]);
    else
        for (int i = 0; i + 3 < N / 2; i += 4)
            *(uint4 *)(p + 2 * i) = make_uint4(u[i], u[i + 1], u[i + 2], u[i + 3]);
}

template <int N> __device__ static inline void store_vec(__half *p, const float v[N])
{
    union {
        uint2 u[N / 4];
        uint16_t pad[N];
    } a;
    __half *h = (__half *)a.pad;
#pragma unroll
    for (int i = 0; i < N; i++)
        h[i] = __float2half_rn(v[i]);
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        ((uint2 *)p)[i] = a.u[i];
}

__device__ static inline float warp_sum(float v)
{
#pragma unroll
    for (int i = 16; i; i >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, i);
    return v;
}

/* i is piece `col` of row `row`, of `pieces` to a row. 64-bit divisions only if necessary. */
__device__ static inline void split(size_t i, size_t pieces, size_t *row, size_t *col)
{
    if ((i | pieces) >> 32)
        *row = i / pieces;
    else
        *row = (uint32_t)i / (uint32_t)pieces;
    *col = i - *row * pieces;
}

/* Blocks for `units` pieces of work, one per thread; threads loop if there are more. */
static inline dim3 grid_for(const struct device_work *w, size_t units)
{
    size_t blocks = (units + ELEMENT_THREADS - 1) / ELEMENT_THREADS,
           most = (size_t)w->gpu->n_sm * 32;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

static inline bool aligned(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

static inline void unknown_type(struct device_work *w, const char *what)
{
    work_check(w, cudaErrorInvalidValue, what);
}

#endif
