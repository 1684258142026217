/* Vectors of sixteen floats: what the templates of this folder need of AVX-512 F, BW, DQ, VL.
 * vec_avx2.h has the same names at eight. */
#ifndef PV_KERNELS_X86_VEC_AVX512_H
#define PV_KERNELS_X86_VEC_AVX512_H

#include "kernels/x86/transpose_avx512.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { VEC = 16 };

typedef __m512 vec;
typedef __m512i ivec;

/* clang takes minutes to build unrolled loops with the checks of -fsanitize=undefined; gcc's build
 * has them. */
#ifdef __clang__
#define INLINE static inline __attribute__((always_inline, no_sanitize("undefined")))
#else
#define INLINE static inline __attribute__((always_inline))
#endif

INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE vec vec_set(float f)
{
    return _mm512_set1_ps(f);
}

INLINE vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE void vec_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}

/* A mask of the lanes below n. */
INLINE __mmask16 vec_mask(int n)
{
    return (__mmask16)((1u << n) - 1);
}

/* Load the first n < VEC elements, followed by zeros; memory after them is not accessed. */
INLINE vec vec_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(vec_mask(n), p);
}

INLINE void vec_store_part(float *p, vec v, int n)
{
    _mm512_mask_storeu_ps(p, vec_mask(n), v);
}

/* v in the lanes below n, f in the rest. */
INLINE vec vec_keep(vec v, int n, float f)
{
    return _mm512_mask_mov_ps(vec_set(f), vec_mask(n), v);
}

/* v in the lanes where a < b, w in the rest. */
INLINE vec vec_below(vec a, vec b, vec v, vec w)
{
    return _mm512_mask_mov_ps(w, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), v);
}

/* Repeat the two, or four, numbers at p in all lanes. */
INLINE vec vec_set_2(const float *p)
{
    double two;
    memcpy(&two, p, sizeof two);
    return _mm512_castpd_ps(_mm512_set1_pd(two));
}

INLINE vec vec_set_4(const float *p)
{
    return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
}

/* a0 b0 a1 b1 ... */
INLINE void vec_interleave(vec to[2], vec a, vec b)
{
    const ivec lo = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const ivec hi = _mm512_add_epi32(lo, _mm512_set1_epi32(8));
    to[0] = _mm512_permutex2var_ps(a, lo, b);
    to[1] = _mm512_permutex2var_ps(a, hi, b);
}

/* Transpose VEC rows in place. */
INLINE void vec_turn(vec r[VEC])
{
    ivec t[VEC];
    for (int i = 0; i < VEC; i++)
        t[i] = _mm512_castps_si512(r[i]);
    transpose_16x16(t);
    for (int i = 0; i < VEC; i++)
        r[i] = _mm512_castsi512_ps(t[i]);
}

/* In each group of two, or four, lanes, repeat the number of lane j. */
INLINE vec vec_spread_2(vec v, int j)
{
    return j ? _mm512_movehdup_ps(v) : _mm512_moveldup_ps(v);
}

INLINE vec vec_spread_4(vec v, int j)
{
    return j == 0   ? _mm512_permute_ps(v, 0x00)
           : j == 1 ? _mm512_permute_ps(v, 0x55)
           : j == 2 ? _mm512_permute_ps(v, 0xaa)
                    : _mm512_permute_ps(v, 0xff);
}

INLINE vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

INLINE vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

INLINE vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c and c - a * b, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* Returns the second operand if either is NaN. */
INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

INLINE vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

INLINE vec vec_round(vec v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* v * 2^n for integral n: v and the result normal, or v flushed to zero by n < -126. */
INLINE vec vec_scale2(vec v, vec n)
{
    ivec e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    e = _mm512_max_epi32(e, _mm512_setzero_si512());
    return _mm512_mul_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(e, 23)));
}

/* The same where the result is normal. */
INLINE vec vec_shift2(vec v, vec n)
{
    return _mm512_scalef_ps(v, n);
}

/* a / b within 2 units in the last place, for 1 <= b <= 2^126. (A division instruction takes as
 * long as the rest of an activation.) */
INLINE vec vec_quotient(vec a, vec b)
{
    vec r = _mm512_rcp14_ps(b), q = _mm512_mul_ps(a, r);
    return _mm512_fmadd_ps(q, _mm512_fnmadd_ps(b, r, _mm512_set1_ps(1.0f)), q);
}

INLINE __m128 vec_halve_sum(vec v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

INLINE float vec_sum(vec v)
{
    __m128 s = vec_halve_sum(v);
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

INLINE float vec_top(vec v)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

/* The lane sums of four vectors, each by the same tree. */
INLINE __m128 vec_sum4(vec a, vec b, vec c, vec d)
{
    vec ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    vec cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    vec lo = _mm512_shuffle_ps(ab, cd, 0x44), hi = _mm512_shuffle_ps(ab, cd, 0xee);
    return vec_halve_sum(_mm512_add_ps(lo, hi));
}

INLINE vec vec_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE vec vec_load_bf16(const uint16_t *p)
{
    ivec w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}

INLINE void vec_store_f16(uint16_t *p, vec v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* Rounds to nearest even in integer arithmetic; NaN stays a quiet NaN. */
INLINE void vec_store_bf16(uint16_t *p, vec v)
{
    ivec u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
    ivec even = _mm512_and_si512(high, _mm512_set1_epi32(1));
    ivec up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), even);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    ivec r = _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, high, _mm512_set1_epi32(64));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(r));
}

INLINE vec vec_load_f16_part(const uint16_t *p, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vec_mask(n), p));
}

INLINE vec vec_load_bf16_part(const uint16_t *p, int n)
{
    ivec w = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vec_mask(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}

/* Lanes where v > than, as bits; NaN is never greater. */
INLINE unsigned vec_greater(vec v, vec than)
{
    return _mm512_cmp_ps_mask(v, than, _CMP_GT_OQ);
}

INLINE unsigned vec_equal(vec v, vec to)
{
    return _mm512_cmp_ps_mask(v, to, _CMP_EQ_OQ);
}

INLINE vec vec_abs(vec v)
{
    return _mm512_abs_ps(v);
}

/* ---- integers, 32 bits per lane ---- */

INLINE ivec ivec_set(int i)
{
    return _mm512_set1_epi32(i);
}

INLINE ivec ivec_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

INLINE void ivec_store(void *p, ivec v)
{
    _mm512_storeu_si512(p, v);
}

INLINE ivec ivec_and(ivec a, ivec b)
{
    return _mm512_and_si512(a, b);
}

INLINE ivec ivec_or(ivec a, ivec b)
{
    return _mm512_or_si512(a, b);
}

INLINE ivec ivec_xor(ivec a, ivec b)
{
    return _mm512_xor_si512(a, b);
}

INLINE ivec ivec_sub_bytes(ivec a, ivec b)
{
    return _mm512_sub_epi8(a, b);
}

INLINE ivec ivec_shl(ivec v, int n)
{
    return _mm512_slli_epi32(v, (unsigned)n);
}

INLINE ivec ivec_shr(ivec v, int n)
{
    return _mm512_srli_epi32(v, (unsigned)n);
}

INLINE ivec ivec_sar(ivec v, int n)
{
    return _mm512_srai_epi32(v, (unsigned)n);
}

INLINE vec ivec_float(ivec v)
{
    return _mm512_cvtepi32_ps(v);
}

INLINE ivec vec_int(vec v) /* to nearest even */
{
    return _mm512_cvtps_epi32(v);
}

/* The four bytes at p + at[lane]. */
INLINE ivec ivec_gather(const uint8_t *p, ivec at)
{
    return _mm512_i32gather_epi32(at, p, 1);
}

/* The f16 in the low half of each lane. */
INLINE vec ivec_half(ivec v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

/* Move bits 0..3 of each lane to bit 4 of its four bytes. */
INLINE ivec ivec_spread(ivec v)
{
    const ivec table =
        _mm512_setr_epi32(0x00000000, 0x00000010, 0x00001000, 0x00001010, 0x00100000, 0x00100010,
                          0x00101000, 0x00101010, 0x10000000, 0x10000010, 0x10001000, 0x10001010,
                          0x10100000, 0x10100010, 0x10101000, 0x10101010);
    return _mm512_permutexvar_epi32(v, table); /* uses the low four bits of v */
}

/* Load 16 bytes of VEC rows: lane o of t[j] is the j-th four bytes of row o. */
INLINE void ivec_transpose(ivec t[4], const uint8_t *const row[VEC], size_t at)
{
    ivec v[4];
    for (int j = 0; j < 4; j++) {
        v[j] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[j] + at)));
        v[j] = _mm512_inserti32x4(v[j], _mm_loadu_si128((const __m128i *)(row[4 + j] + at)), 1);
        v[j] = _mm512_inserti32x4(v[j], _mm_loadu_si128((const __m128i *)(row[8 + j] + at)), 2);
        v[j] = _mm512_inserti32x4(v[j], _mm_loadu_si128((const __m128i *)(row[12 + j] + at)), 3);
    }
    ivec a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    ivec c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    t[0] = _mm512_unpacklo_epi64(a, c);
    t[1] = _mm512_unpackhi_epi64(a, c);
    t[2] = _mm512_unpacklo_epi64(b, d);
    t[3] = _mm512_unpackhi_epi64(b, d);
}

#endif
