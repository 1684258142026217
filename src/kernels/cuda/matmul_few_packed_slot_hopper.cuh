/* What the kernels of matmul_few_packed_hopper.cu share: their arguments, a slot of packed weights
 * as a lane holds it, what Q4_K asks for beside its products, and the ends of sums. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_SLOT_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_SLOT_HOPPER_CUH

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/matmul_few_mma.cuh"
#include "kernels/cuda/norm.h"

enum {
    MAX_STAGES = 16,
    LINE = TILE_COLS * 2, /* bytes: a row of x in a tile */
    MOST_OCTETS = 36,     /* of a tile */
    MOST_WARPS = 18,      /* that multiply */
    BARS_SIZE = MAX_STAGES * 24
};

struct packed_job {
    void *y;
    size_t y_stride;
    const float *bias, *bias2;
    int out, tile0; /* its first tile */
};

/* What becomes of q, k and v of a lone row. */
struct packed_heads {
    const float *cos, *sin; /* [d / 2] */
    uint16_t *q16;
    struct kv_pages kv;
    const struct staged_run *run;
    int d, shift; /* 16 << shift is d */
};

/* A tile is `octets` of a matrix, or half of them from each of two, or (paired) half of them from
 * each half of a head; two octets are a unit. A step is `slots` of K of a tile, a stage what lies
 * in the ring of it: x unless it is a lone row, quants, scales, and of Q4_K sums of x. */
struct packed_args {
    CUtensorMap w[DEVICE_MAX_JOBS], scale[DEVICE_MAX_JOBS], x;
    struct packed_job job[DEVICE_MAX_JOBS];
    int n_jobs, n, tiles, octets;
    int wm, wk;                                  /* warps: of different units, of the same ones */
    int slots, steps, stages, in_slots;          /* in_slots: all of K */
    int x_size, w_size, half_scales, stage_size; /* bytes; half_scales: of a job's octets */
    int ring_size, row_size; /* row_size: what lies behind the ring for a lone row */
    int add, gated, paired, y_bf16;
    struct few_norm norm; /* its pointers: of the launch's first row */
    int in;
    const uint16_t *row; /* the lone one */
    int flight, late;    /* its stages that may be on the way until x is there, and after that */
    int wk_inverse;      /* 65536 / wk, rounded up */
    uint32_t two_23;     /* its bits: the assembler is to have them in a register */
    int unit_w, unit_scale, other_w, other_scale; /* bytes from unit to unit, octet to octet */
    struct packed_heads heads;
    /* Of several rows: blocks that share K of a tile, warpgroups of its units, those of wk that are
     * in a block, slots from step to step, and where such blocks meet. */
    int parts, groups, wk_here, step_slots, warps, single; /* single: by mma */
    float *partial;
    int *counter; /* of a tile: zero, and zero again afterwards */
};

#ifdef HOPPER_CODE

__device__ static inline int job_of(const packed_args &a, int tile)
{
    int j = 0;
    while (j + 1 < a.n_jobs && tile >= a.job[j + 1].tile0)
        j++;
    return j;
}

/* Octets of a tile that lie beside each other. */
__device__ static inline int octets_each(const packed_args &a)
{
    return a.gated ? a.octets / 2 : a.octets;
}

/* The first octet of a tile in its matrix. */
__device__ static inline int first_octet(const packed_args &a, const packed_job &j, int tile)
{
    return (tile - j.tile0) * octets_each(a);
}

/* Barriers: a stage is full, it is empty. */
__device__ static inline uint32_t full_bar(uint32_t bars, int stage)
{
    return bars + stage * 16;
}

__device__ static inline uint32_t empty_bar(uint32_t bars, int stage)
{
    return bars + stage * 16 + 8;
}

/* Q4_K: the sums of x of a stage are there. */
__device__ static inline uint32_t summed_bar(uint32_t bars, int stage)
{
    return bars + MAX_STAGES * 16 + stage * 8;
}

/* ---- a slot ---- */

/* What a lane holds of a slot and a unit: quants and scales of its two rows. */
template <enum dtype T> struct packed_slot {
    uint4 q[2];
    uint2 d[2];                   /* f16; Q4_K: .x has scale and min of the super-block, ... */
    uint32_t factors[2], mins[2]; /* ... which these are for, a byte to a block */
};

/* Where the two octets of a unit lie in a stage. */
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
        octet = octet < each ? octet : each - 1; /* an odd number: computed, never stored */
        u.w[o] = (octet * a.slots) * OCTET_SLOT + (two ? o * (a.w_size / 2) : 0);
        u.scale[o] = octet * a.slots * scales + (two ? o * a.half_scales : 0);
    }
    return u;
}

/* half: of a super-block, in Q4_K. */
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

/* The scale of a block of row o. Of Q4_K: 2^23 + factor, times d, less 2^23 d, which is exact.
 * two_23: the bits of 2^23 (Q4_K). */
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

/* ---- Q4_K: w = d factor q - d' min, and mma has (16 + q). What is too much by then is 16 d times
 * the sum over blocks of factor and the sum of x, and d' times that of min: products of the
 * integers with the blocks' sums, which two mma take in three parts of BF16 each, all 24 bits.
 * Their k is 4 part + block. ---- */

/* Two sums in three parts each. */
__device__ static inline void split_sums(uint32_t (&part)[3], float s0, float s1)
{
#pragma unroll
    for (int i = 0; i < 3; i++) {
        part[i] = pack_bf16(s0, s1);
        s0 -= bf16_float(part[i] & 0xffffu);
        s1 -= bf16_float(part[i] >> 16);
    }
}

/* A lane's part of a row's bytes as BF16: those of the blocks 2 (lane % 2) and the next. */
__device__ static inline uint32_t q4_k_row(uint32_t bytes, int lane)
{
    uint32_t v = __byte_perm(bytes, 0x43434343u, lane % 2 ? 0x4342u : 0x4140u);
    return fma_bf16x2(v, 0x3f803f80u, 0xc300c300u); /* 128 + b, less 128 */
}

struct q4_k_rows {
    uint32_t factors[4], mins[4];
    float d[2], min[2]; /* times -16 and -1 */
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

/* acc of rows i / 2 less what is too much; STEP 2: only the even ones, as acc[i / 2]. b: the sums
 * of x. */
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

/* A number of x ready for the next norm. A whole warp, octets complete; step: as octet_squares has
 * it. */
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
