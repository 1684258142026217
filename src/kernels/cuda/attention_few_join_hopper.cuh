/* Joins the partial results of attention_few_hopper.cu, in a separate kernel that starts while the
 * other still runs. (Joining by the last thread block to arrive, in the same launch, was slower: it
 * needs a fence, a counter and three more dependent accesses to L2.) */
#ifndef PV_KERNELS_CUDA_ATTENTION_FEW_JOIN_HOPPER_CUH
#define PV_KERNELS_CUDA_ATTENTION_FEW_JOIN_HOPPER_CUH

#include "kernels/cuda/attention_few_hopper.cuh"

/* Join one head of one row of part: warp w adds up splits w, w + JOIN_WARPS, ..., then the warps'
 * results are added in order. BATCH: splits of a warp that are loaded at once. With smaller batches
 * more blocks run at a time, which helps with many rows; the sums are the same. */
template <int D, int SPLIT, int BATCH>
__global__ void __launch_bounds__(JOIN_WARPS * 32, BATCH == 1  ? 6
                                                   : BATCH < 9 ? 4
                                                   : D > 64    ? 3
                                                               : 2)
    split_join_kernel(const __grid_constant__ split_args a)
{
    constexpr int N = D / 64; /* pairs of columns per lane */
    __shared__ float2 shared_out[JOIN_WARPS][N * 32];
    __shared__ float shared_sum[JOIN_WARPS];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, row = (int)blockIdx.y, n;
    const split_slice &s = a.slice[a.slice_of[row]];
    const struct staged_run *run = &a.staged->run[s.run];
    size_t at = (size_t)row * a.n_heads + blockIdx.x;
    const float2 *top = a.top + at * a.splits;
    const float2 *part = (const float2 *)(a.part + at * a.splits * D);
    float most = -INFINITY, sum = 0;
    float2 out[N] = {};
    dep_launch();
    n = run->first_slot + run->pending + s.row0 + row - s.part + 1;
    dep_wait();
    n = run->has_parents ? a.limit[row] : n;
    n = (n + SPLIT - 1) / SPLIT;
    for (int s0 = warp; s0 < n || s0 == warp; s0 += JOIN_WARPS * BATCH) {
        float2 x[BATCH][N], t[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) /* all loads start before the maximum is known */
            if (s0 + k * JOIN_WARPS < n) {
                t[k] = top[s0 + k * JOIN_WARPS];
#pragma unroll
                for (int i = 0; i < N; i++)
                    x[k][i] = part[(size_t)(s0 + k * JOIN_WARPS) * (D / 2) + i * 32 + lane];
            }
        if (s0 == warp) {
            for (int i = lane; i < n; i += 32)
                most = fmaxf(most, top[i].x);
            for (int bit = 16; bit > 0; bit /= 2)
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (s0 + k * JOIN_WARPS >= n)
                continue;
            float weight = exp2_fast((t[k].x - most) * a.scale);
            sum = fmaf(t[k].y, weight, sum);
#pragma unroll
            for (int i = 0; i < N; i++) {
                out[i].x = fmaf(x[k][i].x, weight, out[i].x);
                out[i].y = fmaf(x[k][i].y, weight, out[i].y);
            }
        }
    }
    for (int i = 0; i < N; i++)
        shared_out[warp][i * 32 + lane] = out[i];
    if (lane == 0)
        shared_sum[warp] = sum;
    __syncthreads();
    if ((int)threadIdx.x >= D / 2)
        return;
    sum = 0;
    out[0] = make_float2(0, 0);
    for (int w = 0; w < JOIN_WARPS; w++) {
        sum += shared_sum[w];
        out[0].x += shared_out[w][threadIdx.x].x;
        out[0].y += shared_out[w][threadIdx.x].y;
    }
    sum = 1.0f / sum;
    at = ((size_t)(s.row + row - s.part) * a.n_heads + blockIdx.x) * D + threadIdx.x * 2;
    if (a.f32)
        *(float2 *)((float *)a.out + at) = make_float2(out[0].x * sum, out[0].y * sum);
    else
        *(uint32_t *)((uint16_t *)a.out + at) =
            bf16_bits(out[0].x * sum) | bf16_bits(out[0].y * sum) << 16;
}

#endif
