/* Shared by the kernels of matmul_few_packed_hopper.cu: their arguments, a slot of packed weights
 * as a lane holds it, the extra terms of Q4_K, and the final operations on sums. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_SLOT_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_SLOT_HOPPER_CUH

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/matmul_few_mma.cuh"
#include "kernels/cuda/norm.h"

enum {
    MAX_STAGES = 16,
    LINE = TILE_COLS * 2, /* bytes: a row of x in a tile */
    MOST_OCTETS = 36,     /* most octets of a tile */
    MOST_WARPS = 18,      /* most warps that multiply */
    BARS_SIZE = MAX_STAGES * 24
};

struct packed_job {
    void *y;
    size_t y_stride;
    const float *bias, *bias2;
    int out, tile0; /* tile0: its first tile */
};

/* Where q, k and v of a lone row go. */
struct packed_heads {
    const float *cos, *sin; /* [d / 2] */
    uint16_t *q16;
    struct kv_pages kv;
    const struct staged_run *run;
    int d, shift; /* d = 16 << shift */
};

/* A tile is `octets` octets of a matrix, or (gated) half of them from each of two matrices, or
 * (paired) half of them from each half of a head. Two octets are a unit. A step is `slots` slots of
 * K of a tile; a stage is a step's data in the ring: x (unless it is a lone row), quants, scales,
 * and for Q4_K the sums of x. */
struct packed_args {
    CUtensorMap w[DEVICE_MAX_JOBS], scale[DEVICE_MAX_JOBS], x;
    struct packed_job job[DEVICE_MAX_JOBS];
    int n_jobs, n, tiles, octets;
    int wm, wk;                                  /* warps: units at a time, warps per unit */
    int slots, steps, stages, in_slots;          /* in_slots: slots of all of K */
    int x_size, w_size, half_scales, stage_size; /* bytes; half_scales: of one matrix's octets */
    int ring_size, row_size;                     /* row_size: bytes after the ring for a lone row */
    int add, gated, paired, y_bf16;
    struct few_norm norm; /* its pointers: to the launch's first row */
    int in;
    const uint16_t *row; /* the lone row */
    int flight, late;    /* most stages in flight until x has arrived, and then */
    int wk_inverse;      /* 65536 / wk, rounded up */
    uint32_t two_23;     /* bits of 2^23, passed to keep them in a register */
    int unit_w, unit_scale, other_w, other_scale; /* bytes between units, between octets */
    struct packed_heads heads;
    /* For several rows: blocks that share the K of a tile, warpgroups, how many of the wk warps are
     * in one block, slots from step to step; and memory for the exchange between such blocks. */
    int parts, groups, wk_here, step_slots, warps, single; /* single: use mma */
    float *partial;
    int *counter; /* per tile; zero before and after a launch */
};

#ifdef HOPPER_CODE

__device__ static inline int job_of(const packed_args &a, int tile)
{
    int j = 0;
    while (j + 1 < a.n_jobs && tile >= a.job[j + 1].tile0)
        j++;
    return j;
}

/* Number of adjacent octets of a tile. */
__device__ static inline int octets_each(const packed_args &a)
{
    return a.gated ? a.octets / 2 : a.octets;
}

/* Index of a tile's first octet in its matrix. */
__device__ static inline int first_octet(const packed_args &a, const packed_job &j, int tile)
{
    return (tile - j.tile0) * octets_each(a);
}

/* Barriers: a stage is full, a stage is empty. */
__device__ static inline uint32_t full_bar(uint32_t bars, int stage)
{
    return bars + stage * 16;
}

__device__ static inline uint32_t empty_bar(uint32_t bars, int stage)
{
    return bars + stage * 16 + 8;
}

/* Q4_K: the sums of x of a stage are ready. */
__device__ static inline uint32_t summed_bar(uint32_t bars, int stage)
{
    return bars + MAX_STAGES * 16 + stage * 8;
}

/* ---- a slot ---- */

/* A lane's part of a slot of a unit: quants and scales of its two rows. */
template <enum dtype T> struct packed_slot {
    uint4 q[2];
    uint2 d[2];                   /* f16; Q4_K: .x has scale and min of the super-block, */
    uint32_t factors[2], mins[2]; /* which apply to these, one byte per block */
};

/* Offsets of the two octets of a unit in a stage. */
struct packed_unit {
    int w[2], scale[2];
};

__device__ static inline packed_unit unit_of(const packed_args &a, int unit, int scales)
{
    packed_unit u;
    int each = octets_each(a);
#pragma unroll
    for (int o = 0; o < 2; o++) {
        bool two = a.gated;
        int octet = two ? unit : 2 * unit + o;
        octet = octet < each ? octet : each - 1; /* odd number of octets: computed but not stored */
        u.w[o] = (octet * a.slots) * OCTET_SLOT + (two ? o * (a.w_size / 2) : 0);
        u.scale[o] = octet * a.slots * scales + (two ? o * a.half_scales : 0);
    }
    return u;
}

/* Load a slot; half: which half of a super-block (Q4_K). */
template <enum dtype T>
__device__ static inline void take_slot(packed_slot<T> &s, const unsigned char *w,
                                        const unsigned char *scales, const packed_unit &u, int slot,
                                        int half, int lane)
{
#pragma unroll
    for (int o = 0; o < 2; o++) {
        const unsigned char *d = scales + u.scale[o];
        s.q[o] = *(const uint4 *)(w + u.w[o] + slot * OCTET_SLOT + lane * 16);
        if constexpr (T == DTYPE_Q8_0) {
            s.d[o].x = *(const uint32_t *)(d + slot * 32 + lane / 4 * 4);
        } else if constexpr (T == DTYPE_Q4_0) {
            s.d[o] = *(const uint2 *)(d + slot * 64 + lane / 4 * 8);
        } else {
            uint4 h = *(const uint4 *)(d + (slot - half) * 64 + lane / 4 * 16);
            s.d[o].x = h.x;
            q4_k_pairs(&s.factors[o], &s.mins[o], h.y, h.z, h.w, half);
        }
    }
}

template <enum dtype T>
__device__ static inline void unpack(few_block &b, const packed_slot<T> &s, int block)
{
    if constexpr (T == DTYPE_Q8_0)
        few_unpack_q8_0(&b, s.q[0], s.q[1], block);
    else if constexpr (T == DTYPE_Q4_0)
        few_unpack_q4_0(&b, s.q[0], s.q[1], block);
    else
        few_unpack_q4_k(&b, s.q[0], s.q[1], block);
}

/* The scale of a block of row o. For Q4_K it is (2^23 + factor) times d, minus 2^23 d, which is
 * exact. two_23: the bits of 2^23 (Q4_K). */
template <enum dtype T>
__device__ static inline float scale_of(const packed_slot<T> &s, int o, int block,
                                        uint32_t two_23 = 0x4b000000u)
{
    if constexpr (T == DTYPE_Q4_K) {
        float d = f16_float(s.d[o].x & 0xffffu);
        uint32_t f = __byte_perm(s.factors[o], two_23, 0x7440u | (unsigned)block);
        return fmaf(d, __uint_as_float(f), d * -8388608.0f);
    } else {
        uint32_t pair = block < 2 ? s.d[o].x : s.d[o].y;
        return f16_float(block % 2 ? pair >> 16 : pair & 0xffffu);
    }
}

/* ---- Q4_K: w = d factor q - d' min, but mma computes with (16 + q). The excess is 16 d times the
 * sum over blocks of factor times the sum of x, plus d' times the sum of min times the sum of x.
 * These are products of integers with the blocks' sums of x. Two mma compute them with each sum
 * split into three BF16 parts, which hold all 24 bits. Their k is 4 part + block. ---- */

/* Split two sums into three BF16 parts each. */
__device__ static inline void split_sums(uint32_t (&part)[3], float s0, float s1)
{
#pragma unroll
    for (int i = 0; i < 3; i++) {
        part[i] = pack_bf16(s0, s1);
        s0 -= bf16_float(part[i] & 0xffffu);
        s1 -= bf16_float(part[i] >> 16);
    }
}

/* A lane's part of a row's bytes as BF16: blocks 2 (lane % 2) and the next. */
__device__ static inline uint32_t q4_k_row(uint32_t bytes, int lane)
{
    uint32_t v = __byte_perm(bytes, 0x43434343u, lane % 2 ? 0x4342u : 0x4140u);
    return fma_bf16x2(v, 0x3f803f80u, 0xc300c300u); /* 128 + b, minus 128 */
}

struct q4_k_rows {
    uint32_t factors[4], mins[4];
    float d[2], min[2]; /* times -16, times -1 */
};

__device__ static inline q4_k_rows q4_k_rows_of(const packed_slot<DTYPE_Q4_K> &s, int lane)
{
    q4_k_rows r;
#pragma unroll
    for (int o = 0; o < 2; o++) {
        r.factors[o] = r.factors[o + 2] = q4_k_row(s.factors[o], lane);
        r.mins[o] = r.mins[o + 2] = q4_k_row(s.mins[o], lane);
        r.d[o] = -16.0f * f16_float(s.d[o].x & 0xffffu);
        r.min[o] = -f16_float(s.d[o].x >> 16);
    }
    return r;
}

/* Subtract the excess from acc, whose element i belongs to row i / 2; STEP 2: only even elements,
 * stored as acc[i / 2]. b: the sums of x. */
template <int STEP>
__device__ static inline void q4_k_less(float *acc, const q4_k_rows &r, const uint32_t (&b)[2])
{
    float f[4], m[4];
    mma_bf16_first(f, r.factors, b);
    mma_bf16_first(m, r.mins, b);
#pragma unroll
    for (int i = 0; i < 4; i += STEP) {
        float v = fmaf(r.d[i / 2], f[i], acc[i / STEP]);
        acc[i / STEP] = fmaf(r.min[i / 2], m[i], v);
    }
}

/* ---- the end of a sum ---- */

__device__ static inline float gate_of(float v)
{
    return v / (1.0f + __expf(-v));
}

/* Prepare a number of x for the next norm. Called by a whole warp, with complete octets; step: as
 * in octet_squares. */
__device__ static inline void leave_norm(const packed_args &a, bool there, int out, int col,
                                         int row, float v, float weight, int step)
{
    float s = octet_squares(v, step);
    if (!there)
        return;
    a.norm.xn[(size_t)col * out + row] = (uint16_t)bf16_bits(v * weight);
    if (row % NORM_OCTET == 0)
        a.norm.sums[(size_t)col * (out / NORM_OCTET) + row / NORM_OCTET] = s;
}

#endif

#endif
