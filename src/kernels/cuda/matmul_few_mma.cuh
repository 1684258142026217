/* Multiplies one slot of a unit by the rows of x in shared memory, for each type of weights.
 *
 * The order of k inside an mma is free as long as both operands agree. For plain types a lane takes
 * elements 8 t .. 8 t + 7 of every 32: 16 bytes of a row for BF16, which feed two mma. Quantised
 * blocks are stored in mma's order (planes.h) and multiplied exactly, as integers; the sum of a
 * block of 32 is then scaled in f32 and added. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_MMA_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_MMA_CUH

#include "kernels/cuda/matmul_few.h"

/* Offset of unit u (16 bytes) of a row of x in its part of a stage: [part of 64 bytes][row][t].
 * Rows of odd parts are swapped in pairs, so that eight units of a row fall into different banks.
 */
template <enum dtype T, int NT> __device__ static inline int few_x_place(int row, int u)
{
    int part = T == DTYPE_F16 ? u / 8 * 2 + u % 2 : u / 4;
    int t = T == DTYPE_F16 ? u % 8 / 2 : u % 4;
    row ^= part & 1;
    if (has_blocks(T)) /* eight rows of a unit fall into different banks */
        t ^= row / 2 & 3;
    return (part * NT * 8 + row) * 64 + t * 16;
}

template <int NT>
__device__ static inline uint4 few_x_load(const uint8_t *x, int part, int nt, int lane)
{
    int row = nt * 8 + (lane / 4 ^ (part & 1));
    return *(const uint4 *)(x + (part * NT * 8 + row) * 64 + lane % 4 * 16);
}

/* Load x for the two mma of a block of 32. */
template <int NT>
__device__ static inline void few_x_block(uint32_t b[4], const uint8_t *x, int block, int nt,
                                          int lane)
{
    int row = lane % 8 ^ (block & 1), t = lane / 8 ^ (row / 2 & 3);
    load_matrix4(b, x + (block * NT * 8 + nt * 8 + row) * 64 + t * 16);
}

/* Offset in plain rows of 128 bytes: [octet][half][row][t], with rows swapped in the second half.
 */
__device__ static inline int few_plain_place(int octet, int row, int u)
{
    int half = u / 4;
    return ((octet * 2 + half) * 8 + (row ^ half)) * 64 + u % 4 * 16;
}

template <int MT>
__device__ static inline void few_plain_load(uint4 a[MT][2], const uint8_t *w, int half, int lane)
{
#pragma unroll
    for (int o = 0; o < 2 * MT; o++)
        a[o / 2][o % 2] =
            *(const uint4 *)(w + ((o * 2 + half) * 8 + (lane / 4 ^ half)) * 64 + lane % 4 * 16);
}

template <int MT, int NT>
__device__ static inline void few_slot_bf16(float acc[MT][NT][4], const uint8_t *w,
                                            const uint8_t *x, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 a[MT][2];
        few_plain_load<MT>(a, w, half, lane);
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            uint4 b = few_x_load<NT>(x, half, nt, lane);
            uint32_t b0[2] = { b.x, b.y }, b1[2] = { b.z, b.w };
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                uint32_t a0[4] = { a[mt][0].x, a[mt][1].x, a[mt][0].y, a[mt][1].y };
                uint32_t a1[4] = { a[mt][0].z, a[mt][1].z, a[mt][0].w, a[mt][1].w };
                mma_bf16(acc[mt][nt], a0, b0);
                mma_bf16(acc[mt][nt], a1, b1);
            }
        }
    }
}

__device__ static inline uint32_t few_word(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* F16 weights are exact in TF32; x is rounded to TF32. */
template <int MT, int NT>
__device__ static inline void few_slot_f16(float acc[MT][NT][4], const uint8_t *w, const uint8_t *x,
                                           int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 a[MT][2];
        few_plain_load<MT>(a, w, half, lane);
#pragma unroll
        for (int e = 0; e < 4; e++) { /* elements 2 e and 2 e + 1 of the eight */
            uint32_t am[MT][4];
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                uint32_t u0 = few_word(a[mt][0], e), u1 = few_word(a[mt][1], e);
                am[mt][0] = __float_as_uint(f16_float(u0 & 0xffffu));
                am[mt][1] = __float_as_uint(f16_float(u1 & 0xffffu));
                am[mt][2] = __float_as_uint(f16_float(u0 >> 16));
                am[mt][3] = __float_as_uint(f16_float(u1 >> 16));
            }
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
                uint4 v = few_x_load<NT>(x, half * 2 + e / 2, nt, lane);
                uint32_t b[2] = { tf32_round(__uint_as_float(few_word(v, e % 2 * 2))),
                                  tf32_round(__uint_as_float(few_word(v, e % 2 * 2 + 1))) };
#pragma unroll
                for (int mt = 0; mt < MT; mt++)
                    mma_tf32(acc[mt][nt], am[mt], b);
            }
        }
    }
}

/* A lane's part of a block for the two mma: rows lane / 4 and lane / 4 + 8. */
struct few_block {
    uint32_t a0[4], a1[4];
};

/* Signed bytes at bits 0 and 16 as BF16: 128 + the low 7 bits, minus 128, or minus 256 if negative.
 */
__device__ static inline uint32_t few_bytes_bf16(uint32_t v)
{
    uint32_t low = and_or(v, 0x007f007fu, 0x43004300u);
    uint32_t sign = and_or(v, 0x00800080u, 0x43004300u);
    return fma_bf16x2(sign, 0xbf80bf80u, low);
}

__device__ static inline void few_unpack_q8_0(few_block *b, uint4 r0, uint4 r1, int block)
{
    uint32_t w0 = few_word(r0, 2 * block), w1 = few_word(r1, 2 * block);
    uint32_t v0 = few_word(r0, 2 * block + 1), v1 = few_word(r1, 2 * block + 1);
    b->a0[0] = few_bytes_bf16(w0);
    b->a0[1] = few_bytes_bf16(w1);
    b->a0[2] = few_bytes_bf16(w0 >> 8);
    b->a0[3] = few_bytes_bf16(w1 >> 8);
    b->a1[0] = few_bytes_bf16(v0);
    b->a1[1] = few_bytes_bf16(v1);
    b->a1[2] = few_bytes_bf16(v0 >> 8);
    b->a1[3] = few_bytes_bf16(v1 >> 8);
}

/* Nibbles at bits 0 and 16, minus 8, as BF16: 128 + nibble, minus 136. */
__device__ static inline uint32_t few_nibbles_bf16(uint32_t v)
{
    return fma_bf16x2(and_or(v, 0x000f000fu, 0x43004300u), 0x3f803f80u, 0xc308c308u);
}

__device__ static inline void few_unpack_q4_0(few_block *b, uint4 r0, uint4 r1, int block)
{
    uint32_t w0 = few_word(r0, block), w1 = few_word(r1, block);
    b->a0[0] = few_nibbles_bf16(w0);
    b->a0[1] = few_nibbles_bf16(w1);
    b->a0[2] = few_nibbles_bf16(w0 >> 4);
    b->a0[3] = few_nibbles_bf16(w1 >> 4);
    b->a1[0] = few_nibbles_bf16(w0 >> 8);
    b->a1[1] = few_nibbles_bf16(w1 >> 8);
    b->a1[2] = few_nibbles_bf16(w0 >> 12);
    b->a1[3] = few_nibbles_bf16(w1 >> 12);
}

/* Nibbles at bits 3 and 19 (after a rotation) as BF16 of 16 + nibble, without an addition. */
__device__ static inline uint32_t few_nibbles_16(uint32_t w, int turn)
{
    return and_or(__funnelshift_r(w, w, (unsigned)turn), 0x00780078u, 0x41804180u);
}

__device__ static inline void few_unpack_q4_k(few_block *b, uint4 r0, uint4 r1, int block)
{
    uint32_t w0 = few_word(r0, block), w1 = few_word(r1, block);
    b->a0[0] = few_nibbles_16(w0, 0);
    b->a0[1] = few_nibbles_16(w1, 0);
    b->a0[2] = few_nibbles_16(w0, 4);
    b->a0[3] = few_nibbles_16(w1, 4);
    b->a1[0] = few_nibbles_16(w0, 8);
    b->a1[1] = few_nibbles_16(w1, 8);
    b->a1[2] = few_nibbles_16(w0, 12);
    b->a1[3] = few_nibbles_16(w1, 12);
}

/* Q8_0 and Q4_0: adds a block's sum times its scale. */
template <enum dtype T, int MT, int NT>
__device__ static inline void few_slot_scaled(float acc[MT][NT][4], const uint8_t *w,
                                              const uint8_t *x, int lane)
{
    constexpr int BLOCKS = slot_elements(T) / QUANT_BLOCK;
    const uint8_t *scales = w + 2 * MT * OCTET_SLOT;
    uint4 r[2 * MT];
    uint2 d[2 * MT];
#pragma unroll
    for (int o = 0; o < 2 * MT; o++) {
        r[o] = *(const uint4 *)(w + o * OCTET_SLOT + lane * 16);
        if (T == DTYPE_Q8_0)
            d[o].x = *(const uint32_t *)(scales + (o * 8 + lane / 4) * 4);
        else
            d[o] = *(const uint2 *)(scales + (o * 8 + lane / 4) * 8);
    }
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        few_block a[MT];
        float s[2 * MT];
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
            if (T == DTYPE_Q8_0)
                few_unpack_q8_0(&a[mt], r[2 * mt], r[2 * mt + 1], block);
            else
                few_unpack_q4_0(&a[mt], r[2 * mt], r[2 * mt + 1], block);
        }
#pragma unroll
        for (int o = 0; o < 2 * MT; o++) {
            uint32_t pair = block < 2 ? d[o].x : d[o].y;
            s[o] = f16_float(block % 2 ? pair >> 16 : pair & 0xffffu);
        }
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            uint32_t b[4];
            few_x_block<NT>(b, x, block, nt, lane);
            uint32_t b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                float c[4];
                mma_bf16_first(c, a[mt].a0, b0);
                mma_bf16(c, a[mt].a1, b1);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    acc[mt][nt][i] = fmaf(s[2 * mt + i / 2], c[i], acc[mt][nt][i]);
            }
        }
    }
}

/* Q4_K, where w = scale * q - min: the sum over (16 + q) x is multiplied by scale, and (16 scale +
 * min) times the sum of x is subtracted; an mma with ones computes the sum of x. Lane t of a row
 * computes scale and min of block t and passes them to the others. */
template <int MT, int NT>
__device__ static inline void few_slot_q4_k(float acc[MT][NT][4], const uint8_t *w,
                                            const uint8_t *x, int lane, int slot)
{
    const uint8_t *heads = w + 2 * MT * OCTET_SLOT;
    const uint32_t ones[4] = { 0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u };
    uint4 r[2 * MT];
    float scale[2 * MT], less[2 * MT];
#pragma unroll
    for (int o = 0; o < 2 * MT; o++) {
        uint4 h = *(const uint4 *)(heads + (o * 8 + lane / 4) * 16);
        uint32_t scales, mins;
        r[o] = *(const uint4 *)(w + o * OCTET_SLOT + lane * 16);
        q4_k_pairs(&scales, &mins, h.y, h.z, h.w, slot & 1);
        scale[o] = f16_float(h.x & 0xffffu) * byte_float(scales, lane % 4);
        less[o] = fmaf(16.0f, scale[o], f16_float(h.x >> 16) * byte_float(mins, lane % 4));
    }
#pragma unroll
    for (int block = 0; block < 4; block++) {
        few_block a[MT];
        float s[2 * MT], l[2 * MT];
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
            few_unpack_q4_k(&a[mt], r[2 * mt], r[2 * mt + 1], block);
#pragma unroll
        for (int o = 0; o < 2 * MT; o++) {
            s[o] = __shfl_sync(0xffffffffu, scale[o], block, 4);
            l[o] = __shfl_sync(0xffffffffu, less[o], block, 4);
        }
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            uint32_t b[4];
            few_x_block<NT>(b, x, block, nt, lane);
            uint32_t b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
            float sum[4]; /* sums of x in columns 2 t and 2 t + 1, twice */
            mma_bf16_first(sum, ones, b0);
            mma_bf16(sum, ones, b1);
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                float c[4];
                mma_bf16_first(c, a[mt].a0, b0);
                mma_bf16(c, a[mt].a1, b1);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    acc[mt][nt][i] = fmaf(-l[2 * mt + i / 2], sum[i],
                                          fmaf(s[2 * mt + i / 2], c[i], acc[mt][nt][i]));
            }
        }
    }
}

template <enum dtype T, int MT, int NT>
__device__ static inline void few_slot(float acc[MT][NT][4], const uint8_t *w, const uint8_t *x,
                                       int lane, int slot)
{
    if constexpr (T == DTYPE_BF16)
        few_slot_bf16<MT, NT>(acc, w, x, lane);
    else if constexpr (T == DTYPE_F16)
        few_slot_f16<MT, NT>(acc, w, x, lane);
    else if constexpr (T == DTYPE_Q4_K)
        few_slot_q4_k<MT, NT>(acc, w, x, lane, slot);
    else
        few_slot_scaled<T, MT, NT>(acc, w, x, lane);
}

#endif
