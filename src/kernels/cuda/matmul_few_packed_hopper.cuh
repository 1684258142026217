/* Several rows of x times packed weights: the TMA requests, the sums of x that Q4_K needs, and the
 * final operations on a sum. matmul_few_packed_group_hopper.cuh has the bodies of the kernels;
 * matmul_few_packed_one_row_hopper.cuh is for a single row. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_HOPPER_CUH

#include "kernels/cuda/matmul_few_packed_slot_hopper.cuh"

#ifdef HOPPER_CODE

/* ---- one thread: TMA requests ---- */

template <enum dtype T>
__device__ static inline void load_weights(const packed_args &a, uint32_t to, uint32_t full,
                                           int tile, int slot)
{
    constexpr int words = slot_scales(T) / slots_per_scale(T) / 4; /* words of scales per slot */
    uint32_t scales = to + a.w_size;
    int j = a.gated ? 0 : job_of(a, tile), octet = first_octet(a, a.job[j], tile);
    load_box3_once(to, &a.w[j], full, 0, slot, octet);
    load_box3_once(scales, &a.scale[j], full, slot * words, octet, 0);
    if (a.gated) {
        load_box3_once(to + a.w_size / 2, &a.w[1], full, 0, slot, octet);
        load_box3_once(scales + a.half_scales, &a.scale[1], full, slot * words, octet, 0);
    }
}

template <enum dtype T>
__device__ static inline void load_x(const packed_args &a, uint32_t to, uint32_t full, int slot)
{
    load_box3(to, &a.x, full, 0, 0, slot * (slot_elements(T) / TILE_COLS));
}

/* Progress of the thread that feeds the ring. */
struct packed_feed {
    int tile, step, total, early;
    int x_bytes, w_bytes;
};

/* ---- the warps that multiply ---- */

/* Accumulators per lane for N tiles of 8 columns. */
__host__ __device__ static constexpr int packed_sums(int n)
{
    return 4 * n;
}

/* Load x for the two mma of a block. `x` points to the slot, at this lane's place (share_of). */
template <int N>
__device__ static inline void x_block(uint32_t (&b)[4], const unsigned char *x, int odd, int block,
                                      int nt)
{
    load_matrix4(b, x + block / 2 * (N * 8 * LINE) + nt * 8 * LINE + (block % 2 ? odd : 0));
}

/* Subtract the excess of Q4_K (see q4_k_less), with the sums of x that another warp has computed:
 * [nt][lane]. */
template <int N>
__device__ static inline void take_less(float (&acc)[packed_sums(N)],
                                        const packed_slot<DTYPE_Q4_K> &slot, const uint2 *parts,
                                        int lane)
{
    q4_k_rows r = q4_k_rows_of(slot, lane);
#pragma unroll
    for (int nt = 0; nt < N; nt++) {
        uint2 v = parts[nt * 32 + lane];
        const uint32_t b[2] = { v.x, v.y };
        q4_k_less<1>(acc + nt * 4, r, b);
    }
}

/* Offset of the sums of x in a stage. */
__device__ static inline int parts_at(const packed_args &a)
{
    return a.x_size + a.w_size + a.half_scales * (a.gated ? 2 : 1);
}

/* Compute the sums of x over the blocks of a slot, in the form in which lanes multiply them: an mma
 * adds eight rows over a block, in two halves, to the columns `block` and `block` + 4. */
template <int N>
__device__ static inline void sum_slot(uint2 *parts, const unsigned char *x, int odd, int lane)
{
#pragma unroll 2
    for (int nt = 0; nt < N; nt++) {
        uint32_t part[3];
        float c[4] = {};
#pragma unroll
        for (int block = 0; block < 4; block++) {
            uint32_t one = lane / 4 % 4 == block ? 0x3f803f80u : 0, b[4];
            const uint32_t ones[2] = { one, one };
            x_block<N>(b, x, odd, block, nt);
            mma_bf16(c, b, ones);
        }
        split_sums(part, c[0] + c[2], c[1] + c[3]);
        parts[nt * 32 + lane] =
            lane % 4 < 2 ? make_uint2(part[0], part[2]) : make_uint2(part[1], 0);
    }
}

/* ---- the end of a tile ---- */

__device__ static inline void store(const packed_args &a, const packed_job &j, size_t at, float v)
{
    if (a.y_bf16)
        ((uint16_t *)j.y)[at] = (uint16_t)bf16_bits(v);
    else
        ((float *)j.y)[at] = v;
}

/* What an output needs in addition to its sum, loaded early: the old y, biases, the next norm's
 * weight. */
struct packed_ending {
    float old, bias, bias2, weight;
};

__device__ static inline void take_biases(packed_ending &e, const packed_args &a,
                                          const packed_job &j, int row)
{
    e.bias = j.bias ? j.bias[row] : 0;
    e.bias2 = j.bias2 ? j.bias2[row] : 0;
    e.weight = a.norm.weight ? a.norm.weight[row] : 0;
}

__device__ static inline void take_old(packed_ending &e, const packed_args &a, const packed_job &j,
                                       size_t at)
{
    e.old = a.add ? __ldcg((const float *)j.y + at) : 0;
}

/* The output for a sum v, and for v2, the sum of the same row of the second matrix; scale: 1 / rms
 * of the row of x. */
__device__ static inline float result(const packed_args &a, const packed_ending &e, float v,
                                      float v2, float scale)
{
    v = a.norm.squares ? fmaf(v, scale, e.bias) : v + e.bias;
    if (a.gated)
        v = gate_of(v) * (a.norm.squares ? fmaf(v2, scale, e.bias2) : v2 + e.bias2);
    return a.add ? e.old + v : v;
}

/* Offset of this lane's place in a swizzled tile, from a row of x. */
__device__ static inline int x_place(int lane)
{
    return lane % 8 * LINE + (lane / 8 ^ lane % 8) * 16;
}

/* Separate warps: compute the sums of x, stage by stage; a warp takes every `step`th slot from
 * `first` on. */
template <int N>
__device__ static inline void sum_stages(const packed_args &a, unsigned char *memory, uint32_t bars,
                                         int first, int step)
{
    constexpr int slot_x = slot_elements(DTYPE_Q4_K) * 2 * 8 * N;
    int lane = (int)threadIdx.x % 32, x_lane = x_place(lane), odd = (x_lane ^ 64) - x_lane;
    int total = (a.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x * a.steps;
    for (int i = 0, stage = 0, parity = 0; i < total; i++) {
        unsigned char *at = memory + stage * a.stage_size;
        barrier_wait(full_bar(bars, stage), parity);
        for (int slot = first; slot < a.slots; slot += step)
            sum_slot<N>((uint2 *)(at + parts_at(a)) + slot * N * 32, at + slot * slot_x + x_lane,
                        odd, lane);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(summed_bar(bars, stage));
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

#endif

#endif
