/* Shared by the kernels of sparse layers (experts.cu, experts_one_row_hopper.cu): tables of the
 * experts' matrices, and the choice of a row's experts by a warp. */
#ifndef PV_KERNELS_CUDA_EXPERTS_PARTS_CUH
#define PV_KERNELS_CUDA_EXPERTS_PARTS_CUH

#include "kernels/cuda/element.h"
#include "kernels/cuda/experts.h"

/* One expert's matrix of one role (gate, up or down). */
struct expert_plane {
    const uint8_t *w, *scale;
};

/* Made by experts_take. */
struct expert_table {
    struct expert_plane *plane; /* on the device: [3][n] of gate, up, down */
};

/* An integer in the order of x: a larger x has a larger key. NaN counts as minus infinity; the key
 * is never 0. */
__device__ static inline uint32_t logit_key(float x)
{
    uint32_t u = __float_as_uint(isnan(x) ? -INFINITY : x + 0.0f); /* turns -0 into 0 */
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

__device__ static inline uint32_t warp_max(uint32_t v)
{
#ifdef PV_CUDASIM
    for (int i = 16; i; i >>= 1) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, v, i);
        v = other > v ? other : v;
    }
    return v;
#else
    return __reduce_max_sync(0xffffffffu, v);
#endif
}

/* The lane's best expert that is not taken yet (bit i of `taken`: its i-th expert); key 0 if there
 * is none. */
__device__ static inline int best_of_lane(uint32_t *key, const float *logits, int n, uint32_t taken,
                                          int lane)
{
    int best = 0;
    *key = 0;
#pragma unroll 4
    for (int e = lane, i = 0; e < n; e += 32, i++) {
        uint32_t k = taken >> i & 1 ? 0 : logit_key(logits[e]);
        best = k > *key ? e : best;
        *key = k > *key ? k : *key;
    }
    return best;
}

/* Find the `used` (at most n) largest of n logits, the largest first, and among equals the lowest
 * index first. logits and chosen are in shared memory. Called by a whole warp. */
__device__ static inline void choose_experts(int *chosen, const float *logits, int n, int used,
                                             int lane)
{
    uint32_t taken = 0, key;
    int mine = best_of_lane(&key, logits, n, taken, lane);
#pragma unroll 1
    for (int k = 0; k < used; k++) {
        uint32_t most = warp_max(key);
        int best = (int)~warp_max(key == most ? ~(uint32_t)mine : 0);
        if (lane == 0)
            chosen[k] = best;
        if (mine == best) {
            taken |= 1u << (best / 32);
            mine = best_of_lane(&key, logits, n, taken, lane);
        }
    }
    __syncwarp();
}

/* Number of chosen experts with a lower index than the k-th chosen one. */
__device__ static inline int rank_of_expert(const int *chosen, int used, int k)
{
    int rank = 0;
    for (int i = 0; i < used; i++)
        rank += chosen[i] < chosen[k];
    return rank;
}

/* Sort the chosen experts in ascending order and compute their weights: the softmax over all
 * experts, with `normed` divided by the sum of the chosen ones. Called by a whole warp. */
__device__ static inline void weigh_experts(int *expert, float *weight, const int *chosen,
                                            const float *logits, int n, int used, bool normed,
                                            int lane)
{
    float top = logits[chosen[0]], sum = 0, part = 0, v = 0;
    for (int e = lane; e < n; e += 32)
        sum += expf(logits[e] - top);
    sum = warp_sum(sum);
    for (int k = 0; k < used && normed; k++) {
        if (k % 32 == 0)
            v = k + lane < used ? expf(logits[chosen[k + lane]] - top) / sum : 0;
        part += __shfl_sync(0xffffffffu, v, k % 32);
    }
    for (int k = lane; k < used; k += 32) {
        int rank = rank_of_expert(chosen, used, k);
        v = expf(logits[chosen[k]] - top) / sum;
        expert[rank] = chosen[k];
        weight[rank] = normed ? v / part : v;
    }
    __syncwarp();
}

/* ---- a lone row (experts_one_row_hopper.cu) ---- */

/* Everything after the router that a sparse layer does with one row. */
struct one_row_call {
    const struct expert_weights *e;
    const struct expert_table *table;
    const float *logits;
    const uint16_t *xn; /* [hidden] BF16 */
    uint16_t *mid;      /* [used, ffn], scratch */
    float *y;           /* [hidden] */
    bool add;
    struct few_norm norm; /* squares: of xn; weight: prepare y for the next norm */
};
/* Returns false, and does nothing, if this GPU or these matrices are not supported. The bits are
 * those of the kernels for more rows. */
bool experts_one_row(struct device_work *w, const struct one_row_call *c);

#endif
