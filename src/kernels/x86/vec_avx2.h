/* Vectors of eight floats: what the templates of this folder need of AVX2, FMA and F16C.
 * vec_avx512.h has the same names at sixteen. */
#ifndef PV_KERNELS_X86_VEC_AVX2_H
#define PV_KERNELS_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { VEC = 8 };

typedef __m256 vec;
typedef __m256i ivec;

/* clang takes minutes to build unrolled loops with the checks of -fsanitize=undefined; gcc's build
 * has them. */
#ifdef __clang__
#define INLINE static inline __attribute__((always_inline, no_sanitize("undefined")))
#else
#define INLINE static inline __attribute__((always_inline))
#endif

INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vec vec_set(float f)
{
    return _mm256_set1_ps(f);
}

INLINE vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

INLINE void vec_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}

/* A mask of the lanes below n: all bits set. */
INLINE ivec vec_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Load the first n < VEC elements, followed by zeros; memory after them is not accessed. */
INLINE vec vec_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, vec_mask(n));
}

INLINE void vec_store_part(float *p, vec v, int n)
{
    _mm256_maskstore_ps(p, vec_mask(n), v);
}

/* v in the lanes below n, f in the rest. */
INLINE vec vec_keep(vec v, int n, float f)
{
    return _mm256_blendv_ps(vec_set(f), v, _mm256_castsi256_ps(vec_mask(n)));
}

/* v in the lanes where a < b, w in the rest. */
INLINE vec vec_below(vec a, vec b, vec v, vec w)
{
    return _mm256_blendv_ps(w, v, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

/* Repeat the two, or four, numbers at p in all lanes. */
INLINE vec vec_set_2(const float *p)
{
    double two;
    memcpy(&two, p, sizeof two);
    return _mm256_castpd_ps(_mm256_set1_pd(two));
}

INLINE vec vec_set_4(const float *p)
{
    return _mm256_broadcast_ps((const __m128 *)(const void *)p);
}

/* a0 b0 a1 b1 ... */
INLINE void vec_interleave(vec to[2], vec a, vec b)
{
    vec lo = _mm256_unpacklo_ps(a, b), hi = _mm256_unpackhi_ps(a, b);
    to[0] = _mm256_permute2f128_ps(lo, hi, 0x20);
    to[1] = _mm256_permute2f128_ps(lo, hi, 0x31);
}

/* Transpose VEC rows in place. */
INLINE void vec_turn(vec r[VEC])
{
    vec t[VEC];
    for (int i = 0; i < VEC; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VEC; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < VEC; i++)
        r[i] = t[i];
}

/* In each group of two, or four, lanes, repeat the number of lane j. */
INLINE vec vec_spread_2(vec v, int j)
{
    return j ? _mm256_movehdup_ps(v) : _mm256_moveldup_ps(v);
}

INLINE vec vec_spread_4(vec v, int j)
{
    return j == 0   ? _mm256_permute_ps(v, 0x00)
           : j == 1 ? _mm256_permute_ps(v, 0x55)
           : j == 2 ? _mm256_permute_ps(v, 0xaa)
                    : _mm256_permute_ps(v, 0xff);
}

INLINE vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

INLINE vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

INLINE vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

INLINE vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

/* a * b + c and c - a * b, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* Returns the second operand if either is NaN. */
INLINE vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

INLINE vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

INLINE vec vec_round(vec v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* v * 2^n for integral n: v and the result normal, or v flushed to zero by n < -126. */
INLINE vec vec_scale2(vec v, vec n)
{
    ivec e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    e = _mm256_max_epi32(e, _mm256_setzero_si256());
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
}

/* The same where the result is normal. */
INLINE vec vec_shift2(vec v, vec n)
{
    return vec_scale2(v, n);
}

/* a / b for 1 <= b <= 2^126. */
INLINE vec vec_quotient(vec a, vec b)
{
    return vec_div(a, b);
}

INLINE float vec_sum(vec v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

INLINE float vec_top(vec v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

/* The lane sums of four vectors, each by the same tree. */
INLINE __m128 vec_sum4(vec a, vec b, vec c, vec d)
{
    vec ab = _mm256_hadd_ps(a, b), cd = _mm256_hadd_ps(c, d);
    vec s = _mm256_hadd_ps(ab, cd);
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

INLINE vec vec_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE vec vec_load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

INLINE void vec_store_f16(uint16_t *p, vec v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* Rounds to nearest even in integer arithmetic; NaN stays a quiet NaN. */
INLINE void vec_store_bf16(uint16_t *p, vec v)
{
    ivec u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16);
    ivec even = _mm256_and_si256(high, _mm256_set1_epi32(1));
    ivec up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), even);
    ivec nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    ivec r = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16),
                                _mm256_or_si256(high, _mm256_set1_epi32(64)), nan);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(r));
}

/* Partial loads and stores of 16-bit elements go through a buffer: AVX2 has no masks for them. */
INLINE vec vec_load_f16_part(const uint16_t *p, int n)
{
    uint16_t part[VEC] = { 0 };
    memcpy(part, p, sizeof *p * (size_t)n);
    return vec_load_f16(part);
}

INLINE vec vec_load_bf16_part(const uint16_t *p, int n)
{
    uint16_t part[VEC] = { 0 };
    memcpy(part, p, sizeof *p * (size_t)n);
    return vec_load_bf16(part);
}

/* Lanes where v > than, as bits; NaN is never greater. */
INLINE unsigned vec_greater(vec v, vec than)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v, than, _CMP_GT_OQ));
}

INLINE unsigned vec_equal(vec v, vec to)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v, to, _CMP_EQ_OQ));
}

INLINE vec vec_abs(vec v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* ---- integers, 32 bits per lane ---- */

INLINE ivec ivec_set(int i)
{
    return _mm256_set1_epi32(i);
}

INLINE ivec ivec_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void ivec_store(void *p, ivec v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

INLINE ivec ivec_and(ivec a, ivec b)
{
    return _mm256_and_si256(a, b);
}

INLINE ivec ivec_or(ivec a, ivec b)
{
    return _mm256_or_si256(a, b);
}

INLINE ivec ivec_xor(ivec a, ivec b)
{
    return _mm256_xor_si256(a, b);
}

INLINE ivec ivec_sub_bytes(ivec a, ivec b)
{
    return _mm256_sub_epi8(a, b);
}

INLINE ivec ivec_shl(ivec v, int n)
{
    return _mm256_slli_epi32(v, n);
}

INLINE ivec ivec_shr(ivec v, int n)
{
    return _mm256_srli_epi32(v, n);
}

INLINE ivec ivec_sar(ivec v, int n)
{
    return _mm256_srai_epi32(v, n);
}

INLINE vec ivec_float(ivec v)
{
    return _mm256_cvtepi32_ps(v);
}

INLINE ivec vec_int(vec v) /* to nearest even */
{
    return _mm256_cvtps_epi32(v);
}

/* The four bytes at p + at[lane]. */
INLINE ivec ivec_gather(const uint8_t *p, ivec at)
{
    return _mm256_i32gather_epi32((const int *)(const void *)p, at, 1);
}

/* The f16 in the low half of each lane. */
INLINE vec ivec_half(ivec v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    v = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(v));
}

/* Move bits 0..3 of each lane to bit 4 of its four bytes: a multiplication makes four copies, seven
 * bits apart, so that one bit of each copy falls on each place. */
INLINE ivec ivec_spread(ivec v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(15));
    v = _mm256_mullo_epi32(v, _mm256_set1_epi32(0x02040810));
    return _mm256_and_si256(v, _mm256_set1_epi32(0x10101010));
}

/* Bytes 0 and 2 of each lane as int16, and bytes 1 and 3. */
INLINE ivec ivec_even(ivec v)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
}

INLINE ivec ivec_odd(ivec v)
{
    return _mm256_srai_epi16(v, 8);
}

/* Load 16 bytes of VEC rows: lane o of t[j] is the j-th four bytes of row o. */
INLINE void ivec_transpose(ivec t[4], const uint8_t *const row[VEC], size_t at)
{
    ivec v[4];
    for (int j = 0; j < 4; j++) {
        __m128i lo = _mm_loadu_si128((const __m128i *)(row[j] + at));
        __m128i hi = _mm_loadu_si128((const __m128i *)(row[4 + j] + at));
        v[j] = _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
    }
    ivec a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    ivec c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    t[0] = _mm256_unpacklo_epi64(a, c);
    t[1] = _mm256_unpackhi_epi64(a, c);
    t[2] = _mm256_unpacklo_epi64(b, d);
    t[3] = _mm256_unpackhi_epi64(b, d);
}

#endif
