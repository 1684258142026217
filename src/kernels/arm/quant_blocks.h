/* Blocks of quantised weights in NEON registers, and activations in blocks of int8, shared by the
 * kernels that sum products of int8 in int32.
 *
 * x is quantised in blocks of 32: d = max|x| / 127, q = x / d rounded to nearest. Weights are w = a
 * * u (or a * u - m for types with a min: Q4_K, Q5_K, Q4_1, Q5_1) with small integers u. A block
 * adds to a (row, output)
 *
 *   acc = fma(float(sum q u), a * d, acc), then with a min acc = fma(-m, d * sum q, acc)
 *
 * in the order of blocks. Q6_K, which has a scale per 16 elements, does the first line for each
 * half. The integer sums are exact, so kernels may compute them in any order and still give equal
 * bits. */
#ifndef PV_KERNELS_ARM_QUANT_BLOCKS_H
#define PV_KERNELS_ARM_QUANT_BLOCKS_H

#include "base/load.h"
#include "kernels/arm/lanes.h"
#include "kernels/arm/panel.h"
#include "tensor/quant.h"

enum {
    QBLOCK = 32,   /* elements of a block of x */
    QUANT_ROWS = 4 /* weight rows whose scales are read together */
};

ALWAYS_INLINE int quant_block_size(enum dtype t)
{
    switch (t) {
    case DTYPE_Q8_0:
        return 34;
    case DTYPE_Q4_0:
        return 18;
    case DTYPE_Q5_0:
        return 22;
    case DTYPE_Q4_K:
        return 144;
    case DTYPE_Q5_K:
        return 176;
    case DTYPE_Q4_1:
        return 20;
    case DTYPE_Q5_1:
        return 24;
    case DTYPE_IQ4_NL:
        return 18;
    default:
        return 210; /* Q6_K */
    }
}

/* Blocks of QBLOCK elements in one block of the type. */
ALWAYS_INLINE int quant_subs(enum dtype t)
{
    return t == DTYPE_Q4_K || t == DTYPE_Q5_K || t == DTYPE_Q6_K ? 8 : 1;
}

ALWAYS_INLINE bool quant_has_min(enum dtype t)
{
    return t == DTYPE_Q4_K || t == DTYPE_Q5_K || t == DTYPE_Q4_1 || t == DTYPE_Q5_1;
}

/* Number of parts per group. Inner loops take a block in groups; the parts of a group share the
 * bytes that they are unpacked from, so a loop over groups unrolls over parts. Sub-block = group *
 * parts + part. */
ALWAYS_INLINE int quant_parts(enum dtype t)
{
    return t == DTYPE_Q6_K ? 4 : t == DTYPE_Q4_K || t == DTYPE_Q5_K ? 2 : 1;
}

ALWAYS_INLINE uint8x16_t load16(const uint8_t *p)
{
    return vld1q_u8(p);
}

ALWAYS_INLINE int8x16x2_t as_s8(uint8x16_t lo, uint8x16_t hi)
{
    int8x16x2_t v = { { vreinterpretq_s8_u8(lo), vreinterpretq_s8_u8(hi) } };
    return v;
}

/* All ones for elements whose bit in `bits` (four bytes, repeated) is set. */
ALWAYS_INLINE uint8x16_t fifth_set(uint8x16_t bits, bool high)
{
    static const uint8_t select[16] = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    static const uint8_t byte[2][16] = { { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 },
                                         { 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3 } };
    return vtstq_u8(vqtbl1q_u8(bits, vld1q_u8(byte[high])), vld1q_u8(select));
}

/* Q5_0: subtract 16 from elements whose bit is not set. */
ALWAYS_INLINE uint8x16_t fifth_bit(uint8x16_t low, uint8x16_t bits, bool high)
{
    return vorrq_u8(low, vbicq_u8(vdupq_n_u8(0xf0), fifth_set(bits, high)));
}

/* Q5_1: add 16 to elements whose bit is set. */
ALWAYS_INLINE uint8x16_t fifth_added(uint8x16_t low, uint8x16_t bits, bool high)
{
    return vorrq_u8(low, vandq_u8(vdupq_n_u8(16), fifth_set(bits, high)));
}

/* Move the high bits `part` of Q6_K, or `bit` of Q5_K, to bit 4 and up. */
ALWAYS_INLINE uint8x16_t high6(uint8x16_t h, int part)
{
    uint8x16_t mask = vdupq_n_u8(0x30);
    switch (part) {
    case 0:
        return vandq_u8(vshlq_n_u8(h, 4), mask);
    case 1:
        return vandq_u8(vshlq_n_u8(h, 2), mask);
    case 2:
        return vandq_u8(h, mask);
    default:
        return vandq_u8(vshrq_n_u8(h, 2), mask);
    }
}

ALWAYS_INLINE uint8x16_t high5(uint8x16_t h, int bit)
{
    return vandq_u8(vshlq_u8(h, vdupq_n_s8((int8_t)(4 - bit))), vdupq_n_u8(16));
}

ALWAYS_INLINE uint8x16_t nibble(uint8x16_t v, bool high)
{
    return high ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
}

ALWAYS_INLINE int8x16x2_t unpack_q6(const uint8_t *p, int group, int part)
{
    const uint8_t *ql = p + 64 * group + 32 * (part & 1), *qh = p + 128 + 32 * group;
    int8x16_t offset = vdupq_n_s8(32);
    uint8x16_t lo = vorrq_u8(nibble(load16(ql), part >= 2), high6(load16(qh), part));
    uint8x16_t hi = vorrq_u8(nibble(load16(ql + 16), part >= 2), high6(load16(qh + 16), part));
    int8x16x2_t v = as_s8(lo, hi);
    v.val[0] = vsubq_s8(v.val[0], offset);
    v.val[1] = vsubq_s8(v.val[1], offset);
    return v;
}

/* Q4_1, Q5_1 and IQ4_NL. */
ALWAYS_INLINE int8x16x2_t unpack_simple(enum dtype t, const uint8_t *p)
{
    uint8x16_t v = load16(p + (t == DTYPE_Q5_1 ? 8 : t == DTYPE_Q4_1 ? 4 : 2));
    uint8x16_t lo = nibble(v, false), hi = nibble(v, true);
    if (t == DTYPE_Q5_1) {
        uint8x16_t bits = vreinterpretq_u8_u32(vdupq_n_u32(load_le32(p + 4)));
        lo = fifth_added(lo, bits, false);
        hi = fifth_added(hi, bits, true);
    }
    if (t == DTYPE_IQ4_NL) {
        uint8x16_t levels = vreinterpretq_u8_s8(vld1q_s8(iq4_nl_levels));
        lo = vqtbl1q_u8(levels, lo);
        hi = vqtbl1q_u8(levels, hi);
    }
    return as_s8(lo, hi);
}

/* Unpack the 32 integers u of one sub-block of the block at p. With `raw`, Q4_0 stays 0..15, and
 * the caller must subtract 8 sum q. */
ALWAYS_INLINE int8x16x2_t unpack32(enum dtype t, const uint8_t *p, int group, int part, bool raw)
{
    if (t == DTYPE_Q8_0)
        return as_s8(load16(p + 2), load16(p + 18));
    if (t == DTYPE_Q4_0) {
        uint8x16_t v = load16(p + 2), offset = vdupq_n_u8(8);
        uint8x16_t lo = nibble(v, false), hi = nibble(v, true);
        return raw ? as_s8(lo, hi) : as_s8(vsubq_u8(lo, offset), vsubq_u8(hi, offset));
    }
    if (t == DTYPE_Q5_0) {
        uint8x16_t v = load16(p + 6), bits = vreinterpretq_u8_u32(vdupq_n_u32(load_le32(p + 2)));
        return as_s8(fifth_bit(nibble(v, false), bits, false),
                     fifth_bit(nibble(v, true), bits, true));
    }
    if (t == DTYPE_Q4_1 || t == DTYPE_Q5_1 || t == DTYPE_IQ4_NL)
        return unpack_simple(t, p);
    if (t == DTYPE_Q6_K)
        return unpack_q6(p, group, part);
    const uint8_t *qs = p + (t == DTYPE_Q5_K ? 48 : 16) + 32 * group;
    uint8x16_t lo = nibble(load16(qs), part), hi = nibble(load16(qs + 16), part);
    if (t == DTYPE_Q5_K) {
        lo = vorrq_u8(lo, high5(load16(p + 16), 2 * group + part));
        hi = vorrq_u8(hi, high5(load16(p + 32), 2 * group + part));
    }
    return as_s8(lo, hi);
}

/* ---- scales ---- */

/* f16 of four rows to f32. They are collected in general registers, because the vector pipes are
 * busier. */
ALWAYS_INLINE float32x4_t load_f16x4(const uint8_t *const *row, size_t at)
{
    uint64_t lo = load_le16(row[0] + at) | (uint32_t)load_le16(row[1] + at) << 16;
    uint64_t hi = load_le16(row[2] + at) | (uint32_t)load_le16(row[3] + at) << 16;
    return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(lo | hi << 32)));
}

/* Unpack the eight 6-bit scales and mins of Q4_K and Q5_K, one byte each. */
ALWAYS_INLINE void unpack_scales(const uint8_t *p, uint8x8_t *scale, uint8x8_t *min)
{
    uint32_t a = load_le32(p), b = load_le32(p + 4), c = load_le32(p + 8);
    uint64_t scale_hi = (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u);
    uint64_t min_hi = (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
    *scale = vcreate_u8((a & 0x3f3f3f3fu) | scale_hi << 32);
    *min = vcreate_u8((b & 0x3f3f3f3fu) | min_hi << 32);
}

/* Scales of a block of four rows: a, and in b for types with a min m, for Q6_K the second half's
 * scale. */
struct quant_scales {
    float32x4_t a, b;
};

/* Byte i of four rows, for i = 0..7, as f32 times the rows' d. */
ALWAYS_INLINE void spread_scales(float32x4_t *out, const uint8x8_t *v, float32x4_t d)
{
    uint8x8x2_t even = vzip_u8(v[0], v[2]), odd = vzip_u8(v[1], v[3]);
    for (int i = 0; i < 2; i++) {
        uint8x8x2_t four = vzip_u8(even.val[i], odd.val[i]);
        for (int j = 0; j < 2; j++) {
            uint16x8_t h = vmovl_u8(four.val[j]);
            float32x4_t *dst = out + 4 * i + 2 * j;
            dst[0] = vmulq_f32(vcvtq_f32_u32(vmovl_u16(vget_low_u16(h))), d);
            dst[1] = vmulq_f32(vcvtq_f32_u32(vmovl_u16(vget_high_u16(h))), d);
        }
    }
}

ALWAYS_INLINE void spread_signed(float32x4_t *out, const int8x8_t *v, float32x4_t d)
{
    int8x8x2_t even = vzip_s8(v[0], v[2]), odd = vzip_s8(v[1], v[3]);
    for (int i = 0; i < 2; i++) {
        int8x8x2_t four = vzip_s8(even.val[i], odd.val[i]);
        for (int j = 0; j < 2; j++) {
            int16x8_t h = vmovl_s8(four.val[j]);
            float32x4_t *dst = out + 4 * i + 2 * j;
            dst[0] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(h))), d);
            dst[1] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(h))), d);
        }
    }
}

/* Load the scales of the sub-blocks of the block at byte `at` of four rows: a in [0, 8) (Q6_K: of
 * the halves, [0, 16)), m in [8, 16). */
ALWAYS_INLINE void quant_scales_load(enum dtype t, float32x4_t *out, const uint8_t *const *row,
                                     size_t at)
{
    if (t == DTYPE_Q6_K) {
        int8x8_t lo[4], hi[4];
        float32x4_t d = load_f16x4(row, at + 208);
        UNROLL
        for (int o = 0; o < QUANT_ROWS; o++) {
            int8x16_t s = vreinterpretq_s8_u8(vld1q_u8(row[o] + at + 192));
            lo[o] = vget_low_s8(s);
            hi[o] = vget_high_s8(s);
        }
        spread_signed(out, lo, d);
        spread_signed(out + 8, hi, d);
        return;
    }
    if (quant_subs(t) == 1) {
        out[0] = load_f16x4(row, at);
        if (quant_has_min(t)) /* the file's min is added, ours is subtracted */
            out[8] = vnegq_f32(load_f16x4(row, at + 2));
        return;
    }
    uint8x8_t scale[4], min[4];
    UNROLL
    for (int o = 0; o < QUANT_ROWS; o++)
        unpack_scales(row[o] + at + 4, &scale[o], &min[o]);
    spread_scales(out, scale, load_f16x4(row, at));
    spread_scales(out + 8, min, load_f16x4(row, at + 2));
}

ALWAYS_INLINE struct quant_scales quant_scales_of(enum dtype t, const float32x4_t *k, int sub)
{
    if (t == DTYPE_Q6_K)
        return (struct quant_scales){ k[2 * sub], k[2 * sub + 1] };
    return (struct quant_scales){ k[sub], quant_has_min(t) ? k[8 + sub] : k[sub] };
}

/* ---- activations ---- */

/* Quantise 32 floats. Returns d, and in *sum the sum of q. */
ALWAYS_INLINE float quantise32(int8_t *q, const float *x, int *sum)
{
    float32x4_t v[8], top = vdupq_n_f32(0);
    int32x4_t total = vdupq_n_s32(0);
    int16x4_t h[8];
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        top = vmaxq_f32(top, vabsq_f32(v[i]));
    }
    float amax = vmaxvq_f32(top), d = 0, inverse = 0;
    if (amax > 1e-30f) { /* otherwise 127 / amax could overflow; the block becomes zero */
        d = amax / 127.0f;
        inverse = 127.0f / amax;
    }
    for (int i = 0; i < 8; i++) {
        int32x4_t n = vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse));
        total = vaddq_s32(total, n);
        h[i] = vmovn_s32(n);
    }
    for (int i = 0; i < 4; i++)
        vst1_s8(q + 8 * i, vmovn_s16(vcombine_s16(h[2 * i], h[2 * i + 1])));
    *sum = vaddvq_s32(total);
    return d;
}

#endif
