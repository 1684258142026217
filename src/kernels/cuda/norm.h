/* RMSNorm without a separate kernel. The kernel that computes a row of x also stores the row times
 * the norm's weights, rounded to BF16 but not scaled, and the sum of squares of every octet (eight
 * numbers). The product that follows multiplies its results by the row's 1 / rms. The order of all
 * sums depends on the length of the row only, whichever kernel computes them. */
#ifndef PV_KERNELS_CUDA_NORM_H
#define PV_KERNELS_CUDA_NORM_H

#include "kernels/cuda/launch.h"

enum { NORM_OCTET = 8 };

/* The sum of the squares of an octet, in all of its lanes; those are `step` apart. */
__device__ static inline float octet_squares(float v, int step)
{
    float s = __fmul_rn(v, v);
    s += __shfl_xor_sync(0xffffffffu, s, step);
    s += __shfl_xor_sync(0xffffffffu, s, 2 * step);
    s += __shfl_xor_sync(0xffffffffu, s, 4 * step);
    return s;
}

/* 1 / rms of a row of dim (a multiple of 64) numbers from the sums of its octets, in two halves, so
 * that other loads can be issued in between. Called by a whole warp. */
__device__ static inline float norm_take(const float *squares, int dim)
{
    float sum = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x % 32 * 4; i < dim / NORM_OCTET; i += 128) {
        float4 v = __ldcg((const float4 *)(squares + i));
        sum = sum + v.x + v.y + v.z + v.w;
    }
    return sum;
}

__device__ static inline float norm_end(float sum, int dim, float eps)
{
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    return 1.0f / sqrtf(sum / (float)dim + eps);
}

/* The same for ROWS consecutive rows, of which `there` exist, with more loads in flight. */
template <int ROWS>
__device__ static inline void norm_take_rows(float (&sum)[ROWS], const float *squares, int dim,
                                             int there)
{
    constexpr int AT_ONCE = 2;
    int octets = dim / NORM_OCTET;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = 0;
    for (int i = (int)threadIdx.x % 32 * 4; i < octets; i += 128 * AT_ONCE) {
        float4 v[ROWS][AT_ONCE];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                v[r][k] = make_float4(0, 0, 0, 0);
                if (r < there && i + 128 * k < octets)
                    v[r][k] = __ldcg((const float4 *)(squares + (size_t)r * octets + i + 128 * k));
            }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                sum[r] = sum[r] + v[r][k].x + v[r][k].y + v[r][k].z + v[r][k].w;
    }
}

#endif
