/* Repacked weights for SDOT and SMMLA, made when a model is opened: the blocks of four outputs (a
 * strip) are stored together in the order of the inner loops, so that nothing must be gathered,
 * paired or added across lanes. Products have the same bits as with the weights in the file's
 * order.
 *
 * A vector has eight values of each output of a pair: q[step][pair] of a block of 32, step 0..3,
 * pair 0..1. SMMLA takes it as it is. SDOT takes it with the same eight values of x twice; one
 * pairwise addition then gives the sums of four outputs.
 *
 * A strip is one long stream of units. A unit has a block of the file's type for each of the four
 * outputs, stored as a head and groups:
 *
 *   type    head         group
 *   Q8_0                 d[4] (f16), 8 vectors
 *   Q4_0                 d[4], 4 vectors: steps 0, 1 in the low halves of the bytes, 2, 3 in the
 *                        high ones, as signed numbers
 *   IQ4_NL               the same, as indices of levels
 *   Q4_K    d[4], min[4] 4 of: scales of two blocks, 8 vectors: one block in the low halves of the
 *                        bytes, the next in the high ones
 *   Q5_K    the same     the same, 2 vectors of fifth bits (by pairs, bit 2 step + block)
 *   Q6_K    d[4], pad    8 of: scales, for each pair 3 vectors: steps 0, 1, 2 in the high six bits
 *                        of the bytes, signed; step 3 in the low two of all three
 *
 * Scales of K-quants are small integers, stored as bf16: two numbers of an output (scale and min,
 * or the scales of both halves of Q6_K) share 32 bits, so that one AND and one shift convert them
 * to f32. */
#ifndef PV_KERNELS_ARM_REPACKED_QUANT_H
#define PV_KERNELS_ARM_REPACKED_QUANT_H

#include "kernels/arm/quant_blocks.h"

enum { REPACKED_OUTS = 4, REPACKED_STEPS = 4, REPACKED_PAIRS = 2, REPACKED_VECTOR = 16 };

/* repacked_quant.c: bytes of a repacked matrix; and the function that repacks outputs [o0, o1). */
size_t repacked_size(const struct matrix *w);
void repack(void *to, const struct matrix *w, int o0, int o1);

ALWAYS_INLINE size_t repacked_head(enum dtype t)
{
    return quant_subs(t) > 1 ? REPACKED_VECTOR : 0;
}

/* Groups per unit, and (repacked_parts) blocks of 32 per group. */
ALWAYS_INLINE int repacked_groups(enum dtype t)
{
    return t == DTYPE_Q6_K ? 8 : quant_subs(t) > 1 ? 4 : 1;
}

ALWAYS_INLINE int repacked_parts(enum dtype t)
{
    return t == DTYPE_Q4_K || t == DTYPE_Q5_K ? 2 : 1;
}

ALWAYS_INLINE size_t repacked_group_size(enum dtype t)
{
    switch (t) {
    case DTYPE_Q8_0:
        return 8 + 8 * REPACKED_VECTOR;
    case DTYPE_Q4_K:
        return 10 * REPACKED_VECTOR;
    case DTYPE_Q5_K:
        return 12 * REPACKED_VECTOR;
    case DTYPE_Q6_K:
        return 7 * REPACKED_VECTOR;
    default:
        return 8 + 4 * REPACKED_VECTOR; /* Q4_0, IQ4_NL */
    }
}

ALWAYS_INLINE size_t repacked_unit(enum dtype t)
{
    return repacked_head(t) + (size_t)repacked_groups(t) * repacked_group_size(t);
}

/* The strip of outputs 4 i .. 4 i + 3. */
ALWAYS_INLINE const uint8_t *repacked_strip(const struct matrix *w, enum dtype t, int i)
{
    size_t units = (size_t)(w->in / QBLOCK / quant_subs(t));
    return (const uint8_t *)w->repacked + (size_t)i * units * repacked_unit(t);
}

/* The unpacked integers are too large by a factor of 2^repacked_shift. */
ALWAYS_INLINE int repacked_shift(enum dtype t)
{
    return t == DTYPE_Q4_0 ? 4 : t == DTYPE_Q6_K ? 2 : 0;
}

ALWAYS_INLINE int8x16_t as_signed(uint8x16_t v)
{
    return vreinterpretq_s8_u8(v);
}

/* Split a vector of bytes with a number in each half: low halves to lo, high halves to hi. */
ALWAYS_INLINE void repacked_halves(enum dtype t, int8x16_t *lo, int8x16_t *hi, const uint8_t *p)
{
    uint8x16_t v = vld1q_u8(p);
    if (t == DTYPE_Q4_0) {
        *lo = as_signed(vshlq_n_u8(v, 4));
        *hi = as_signed(vandq_u8(v, vdupq_n_u8(0xf0)));
        return;
    }
    *lo = as_signed(nibble(v, false));
    *hi = as_signed(nibble(v, true));
    if (t == DTYPE_IQ4_NL) {
        int8x16_t levels = vld1q_s8(iq4_nl_levels);
        *lo = vqtbl1q_s8(levels, vreinterpretq_u8_s8(*lo));
        *hi = vqtbl1q_s8(levels, vreinterpretq_u8_s8(*hi));
    }
}

/* Put bit `bit` of h into bit 4 of v; the other bits of v stay. */
ALWAYS_INLINE int8x16_t repacked_fifth(int8x16_t v, uint8x16_t h, int bit)
{
    uint8x16_t at = bit < 4 ? vshlq_n_u8(h, 4 - (bit & 3)) : bit == 4 ? h : vshrq_n_u8(h, bit & 3);
    return as_signed(vbslq_u8(vdupq_n_u8(16), at, vreinterpretq_u8_s8(v)));
}

ALWAYS_INLINE void repacked_six(int8x16_t (*q)[REPACKED_PAIRS], const uint8_t *p)
{
    uint8x16_t mask = vdupq_n_u8(0xfc);
    UNROLL
    for (int o = 0; o < REPACKED_PAIRS; o++, p += 3 * REPACKED_VECTOR) {
        uint8x16_t v[3] = { vld1q_u8(p), vld1q_u8(p + REPACKED_VECTOR),
                            vld1q_u8(p + 2 * REPACKED_VECTOR) };
        UNROLL
        for (int i = 0; i < 3; i++)
            q[i][o] = as_signed(vandq_u8(v[i], mask));
        uint8x16_t last = vsliq_n_u8(reuse_after(v[2], q[2][o]), v[1], 2);
        q[3][o] = as_signed(vshlq_n_u8(vsliq_n_u8(last, v[0], 4), 2));
    }
}

/* Unpack block `part` of the group at p. */
ALWAYS_INLINE void repacked_quants(enum dtype t, int8x16_t (*q)[REPACKED_PAIRS], const uint8_t *p,
                                   int part)
{
    int8x16_t other;
    if (t == DTYPE_Q6_K) {
        repacked_six(q, p + REPACKED_VECTOR);
        return;
    }
    UNROLL
    for (int i = 0; i < REPACKED_STEPS; i++)
        UNROLL
    for (int o = 0; o < REPACKED_PAIRS; o++) {
        size_t at = (size_t)(i * REPACKED_PAIRS + o) * REPACKED_VECTOR;
        if (t == DTYPE_Q8_0) {
            q[i][o] = vld1q_s8((const int8_t *)p + 8 + at);
        } else if (repacked_parts(t) == 2) {
            repacked_halves(t, part ? &other : &q[i][o], part ? &q[i][o] : &other,
                            p + 2 * REPACKED_VECTOR + at);
            if (t == DTYPE_Q5_K)
                q[i][o] = repacked_fifth(q[i][o], vld1q_u8(p + (size_t)(10 + o) * REPACKED_VECTOR),
                                         2 * i + part);
        } else if (i < REPACKED_STEPS / 2) {
            repacked_halves(t, &q[i][o], &q[i + 2][o], p + 8 + at);
        }
    }
}

/* Load the head of a unit: d and the factor of mins. */
ALWAYS_INLINE struct quant_scales repacked_unit_scales(enum dtype t, const uint8_t *p)
{
    struct quant_scales k = { vdupq_n_f32(0), vdupq_n_f32(0) };
    if (quant_subs(t) > 1) {
        float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
        k.a = vcvt_f32_f16(vget_low_f16(h));
        k.b = t == DTYPE_Q6_K ? k.a : vcvt_high_f32_f16(h);
    }
    return k;
}

/* Scales of block `part` of the group at p, as quant_scales_of gives them. */
ALWAYS_INLINE struct quant_scales repacked_scales(enum dtype t, struct quant_scales unit,
                                                  const uint8_t *p, int part)
{
    struct quant_scales k;
    if (quant_subs(t) > 1) {
        uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(p + (size_t)part * REPACKED_VECTOR));
        k.a = vmulq_f32(vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000))), unit.a);
        k.b = vmulq_f32(vreinterpretq_f32_u32(vshlq_n_u32(v, 16)), unit.b);
    } else {
        k.a = k.b = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
    }
    return k;
}

#endif
