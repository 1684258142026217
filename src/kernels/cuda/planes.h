/* The layout of quantised matrices on the device. A `slot` is what one warp multiplies at a time:
 * 64 elements of Q8_0, 128 of Q4_0 and Q4_K. Eight rows are an octet. The quants of a matrix are
 *
 *     [octet][slot][lane] 16 bytes,  lane = 4 * (row % 8) + t,
 *
 * so that a warp reads an octet as one stream of 512-byte pieces. For every block of 32 elements in
 * the slot, a lane holds the elements 8 p + 2 t and 8 p + 2 t + 1 for p = 0 .. 3, called e0 .. e7:
 * those that it passes to two mma, in the order of x.
 *
 *   - Q8_0: two words per block, e0 e2 e1 e3 and e4 e6 e5 e7 as bytes, lowest first: a pair of
 *     16-bit numbers is a word masked, or shifted by 8 and masked.
 *   - Q4_0: one word per block: pair p (e2p, e2p+1) has its nibbles at bits 4 p and 16 + 4 p.
 *   - Q4_K: the same, rotated left by 3 bits: pair p is at bits 3 and 19 after rotating right by
 *     4 p.
 *
 * The scales are [octet][slot][row] of 2 (Q8_0) or 4 (Q4_0) f16, and for Q4_K [octet][slot /
 * 2][row] of the 16 bytes at the head of a super-block. Rows beyond `out` and elements beyond `in`
 * are zero. */
#ifndef PV_KERNELS_CUDA_PLANES_H
#define PV_KERNELS_CUDA_PLANES_H

#include "kernels/cuda/cuda.h"

enum { OCTET = 8, QUANT_BLOCK = 32, OCTET_SLOT = 512 /* bytes */ };

__host__ __device__ static inline bool has_blocks(enum dtype t)
{
    return t == DTYPE_Q8_0 || t == DTYPE_Q4_0 || t == DTYPE_Q4_K;
}

/* Elements of a row in one slot; plain types: 64, as their rows are padded. */
__host__ __device__ static constexpr int slot_elements(enum dtype t)
{
    return t == DTYPE_Q4_0 || t == DTYPE_Q4_K ? 128 : 64;
}

/* Bytes of the scales of an octet and a slot; of two slots for Q4_K. */
__host__ __device__ static constexpr int slot_scales(enum dtype t)
{
    return t == DTYPE_Q8_0 ? 32 : t == DTYPE_Q4_0 ? 64 : t == DTYPE_Q4_K ? 128 : 0;
}

/* Slots that share one piece of scales. */
__host__ __device__ static constexpr int slots_per_scale(enum dtype t)
{
    return t == DTYPE_Q4_K ? 2 : 1;
}

__host__ __device__ static inline int slots_of(enum dtype t, int in)
{
    int k = slot_elements(t) * slots_per_scale(t);
    return (in + k - 1) / k * slots_per_scale(t);
}

static inline int octets_of(int out)
{
    return (out + OCTET - 1) / OCTET;
}

/* The (scale, min) pairs 4 h .. 4 h + 3 of a super-block, a byte each, from its 12 packed bytes. */
__device__ static inline void q4_k_pairs(uint32_t *scale, uint32_t *min, uint32_t s0, uint32_t s1,
                                         uint32_t s2, int h)
{
    *scale = h ? (s2 & 0x0f0f0f0fu) | (s0 >> 2 & 0x30303030u) : s0 & 0x3f3f3f3fu;
    *min = h ? (s2 >> 4 & 0x0f0f0f0fu) | (s1 >> 2 & 0x30303030u) : s1 & 0x3f3f3f3fu;
}

/* Byte i of a word as a float, without the slow conversion: 2^23 + b, minus 2^23. */
__device__ static inline float byte_float(uint32_t word, int i)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u | (unsigned)i)) - 8388608.0f;
}

__device__ static inline float f16_float(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* Element e of the eight in a word of Q4_0; for Q4_K, after rotating the word right by 3. */
__device__ static inline int plane_nibble(uint32_t word, int e)
{
    return (int)(word >> (e / 2 * 4 + e % 2 * 16) & 15);
}

#endif
