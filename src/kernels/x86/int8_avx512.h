/* Shared by the int8 kernels of Q8_0, Q4_0, Q5_0 and IQ4_NL (matmul_int8_avx512.c,
 * matmul_int8_amx.c): rounding of activations, loading of weights, and the product of few rows.
 *
 * Activations are rounded to int8 in blocks of 32 with one f32 scale each, like the weights. The
 * sum of a block is an exact integer; the blocks are scaled and added in f32, in order:
 *
 *   acc = fma(float(sum) * dx, dw, acc)
 *
 * The integers may be computed by any instruction, and the lanes of a vector may be outputs or
 * rows: an output has the same bits. The dot product instruction multiplies unsigned weights by
 * signed x, so weights are shifted by the type's zero z, and a sum starts at -z times the sum of x.
 */
#ifndef PV_KERNELS_X86_INT8_AVX512_H
#define PV_KERNELS_X86_INT8_AVX512_H

#include "base/load.h"
#include "base/minmax.h"
#include "kernels/x86/transpose_avx512.h"
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/x86.h"
#include "tensor/quant.h"

enum {
    BLOCK = 32,
    GROUP = 16,  /* outputs processed together */
    FEW_ROWS = 8 /* up to so many rows, run_few is fastest */
};

/* ---- activations ---- */

/* A packed row: [blocks][32] int8, [blocks] scales, then the start values of the sums for each
 * type. IQ4_NL uses those of Q8_0: its levels are int8 too. */
enum { START_Q8_0, START_Q4_0, START_Q5_0, STARTS };

struct x_row {
    const uint8_t *q;
    const float *scale;
    const int32_t *start;
};

static inline size_t blocks_of(int in)
{
    return ((size_t)in + BLOCK - 1) / BLOCK;
}

static inline size_t row_bytes(int in)
{
    size_t n = blocks_of(in);
    return (n * BLOCK + n * sizeof(float) + STARTS * n * sizeof(int32_t) + 63) / 64 * 64;
}

static inline size_t packed_size(int n, int in)
{
    return (size_t)n * row_bytes(in);
}

static inline struct x_row row_at(const uint8_t *xp, int r, int in, int start)
{
    const uint8_t *p = xp + (size_t)r * row_bytes(in);
    size_t n = blocks_of(in);
    const float *scale = (const float *)(p + n * BLOCK);
    return (struct x_row){ p, scale, (const int32_t *)(scale + n) + (size_t)start * n };
}

/* Round 32 floats to int8. Returns the scale. */
static inline float quantise(__m256i *q, const float *x)
{
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    __m512 inv = _mm512_set1_ps(top > 0 ? 127.0f / top : 0);
    __m128i lo = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inv)));
    __m128i hi = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inv)));
    *q = _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
    return top / 127.0f;
}

static inline int32_t sum_bytes(__m256i q)
{
    __m256i s = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}

/* Pack rows [r0, r1) of x. */
static inline void pack_rows(void *xp, const float *x, size_t stride, int in, int r0, int r1)
{
    size_t blocks = blocks_of(in);
    for (int r = r0; r < r1; r++) {
        uint8_t *q = (uint8_t *)xp + (size_t)r * row_bytes(in);
        float *scale = (float *)(q + blocks * BLOCK);
        int32_t *start = (int32_t *)(scale + blocks);
        for (size_t i = 0; i < blocks; i++) {
            __m256i v;
            scale[i] = quantise(&v, x + (size_t)r * stride + i * BLOCK);
            _mm256_store_si256((__m256i *)(q + i * BLOCK), v);
            int32_t sum = sum_bytes(v);
            start[START_Q8_0 * blocks + i] = -128 * sum;
            start[START_Q4_0 * blocks + i] = -8 * sum;
            start[START_Q5_0 * blocks + i] = -16 * sum;
        }
    }
}

/* ---- weights ---- */

/* Offsets of the weight rows of outputs o, o + apart, ... from that of o. After the last output,
 * the last is repeated; its products are computed but not stored. */
static inline __m512i row_offsets(const struct matrix *w, int o, int apart)
{
    __m512i i = lanes_apart(apart);
    i = _mm512_min_epi32(i, _mm512_set1_epi32(w->out - 1 - o));
    return _mm512_mullo_epi32(i, _mm512_set1_epi32((int)w->row_size));
}

/* Load the f16 scales of one block of 16 rows. */
static inline __m512 load_scales(const uint8_t *block, __m512i at)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_i32gather_epi32(at, block, 1)));
}

/* The levels of IQ4_NL, shifted by 128. */
static inline __m128i unsigned_levels(void)
{
    return _mm_xor_si128(_mm_loadu_si128((const __m128i *)iq4_nl_levels),
                         _mm_set1_epi8((char)0x80));
}

/* Load the 32 quants of a block as unsigned bytes. */
INLINE __m256i load_quants(const uint8_t *p, enum dtype t)
{
    if (t == DTYPE_Q8_0)
        return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(p + 2)),
                                _mm256_set1_epi8((char)0x80));
    __m128i b = _mm_loadu_si128((const __m128i *)(p + (t == DTYPE_Q5_0 ? 6 : 2)));
    __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(b), _mm_srli_epi16(b, 4), 1);
    q = _mm256_and_si256(q, _mm256_set1_epi8(15));
    if (t == DTYPE_IQ4_NL)
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(unsigned_levels()), q);
    return t == DTYPE_Q4_0 ? q : _mm256_mask_add_epi8(q, load_le32(p + 2), q, _mm256_set1_epi8(16));
}

INLINE int start_of(enum dtype t)
{
    return t == DTYPE_Q4_0 ? START_Q4_0 : t == DTYPE_Q5_0 ? START_Q5_0 : START_Q8_0;
}

INLINE int block_size(enum dtype t)
{
    return t == DTYPE_Q8_0 ? 34 : t == DTYPE_Q5_0 ? 22 : 18;
}

static inline void fetch(const uint8_t *p, size_t size)
{
    for (size_t i = 0; i < size; i += 64)
        _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

static inline void store_row(float *y, const struct matrix *w, int o, int o1, __m512 v)
{
    __mmask16 m = (__mmask16)((1u << min_int(GROUP, o1 - o)) - 1);
    if (w->bias)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, w->bias + o));
    _mm512_mask_storeu_ps(y + o, m, v);
}

/* ---- few rows ---- */

/* Load sixteen bytes each of rows j, 4 + j, 8 + j and 12 + j into one vector. */
INLINE __m512i load_four(const uint8_t *p, const int32_t *off, int j)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(p + off[j])));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + off[4 + j])), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + off[8 + j])), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + off[12 + j])), 3);
}

/* The fifth bits of the same rows, for the first or second sixteen values. */
INLINE __mmask64 fifth_bits(const uint8_t *p, const int32_t *off, int j, int half)
{
    uint64_t m = 0;
    for (int r = 0; r < 4; r++)
        m |= (uint64_t)load_le16(p + off[4 * r + j] + 2 + 2 * half) << (16 * r);
    return _cvtu64_mask64(m);
}

/* Load a block of 16 rows as unsigned bytes: values 0..15 in q[0..3], 16..31 in q[4..7]. */
INLINE void load_group(__m512i q[8], const uint8_t *p, const int32_t *off, enum dtype t)
{
    const __m512i low = _mm512_set1_epi8(15), five = _mm512_set1_epi8(16);
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    for (int j = 0; j < 4; j++) {
        if (t == DTYPE_Q8_0) {
            q[j] = _mm512_xor_si512(load_four(p + 2, off, j), flip);
            q[4 + j] = _mm512_xor_si512(load_four(p + 18, off, j), flip);
            continue;
        }
        __m512i v = load_four(p + (t == DTYPE_Q5_0 ? 6 : 2), off, j);
        q[j] = _mm512_and_si512(v, low);
        q[4 + j] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        if (t == DTYPE_Q5_0) {
            q[j] = _mm512_mask_add_epi8(q[j], fifth_bits(p, off, j, 0), q[j], five);
            q[4 + j] = _mm512_mask_add_epi8(q[4 + j], fifth_bits(p, off, j, 1), q[4 + j], five);
        } else if (t == DTYPE_IQ4_NL) {
            q[j] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(unsigned_levels()), q[j]);
            q[4 + j] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(unsigned_levels()), q[4 + j]);
        }
    }
}

/* Multiply block i of 16 outputs by one row: returns the exact sums. Dword l of s[j] is a part of
 * row 4 (l / 4) + j; adding up the four of each row, dword l becomes the sum of row l. */
INLINE __m512i dot_block(const __m512i q[8], const struct x_row *x, size_t i)
{
    const uint8_t *v = x->q + i * BLOCK;
    __m512i lo = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)v));
    __m512i hi = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(v + 16)));
    __m512i start = _mm512_maskz_set1_epi32(0x1111, x->start[i]);
    __m512i s[4];
    for (int j = 0; j < 4; j++)
        s[j] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, q[j], lo), q[4 + j], hi);
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Store the results of one row of x for the first n of sixteen outputs from o on. */
INLINE void store_apart(float *y, const struct matrix *w, int o, int apart, int n, __m512 v)
{
    __mmask16 m = (__mmask16)((1u << n) - 1);
    __m512i at = lanes_apart(apart);
    if (w->bias)
        v = _mm512_add_ps(v, _mm512_mask_i32gather_ps(v, m, at, w->bias + o, 4));
    _mm512_mask_i32scatter_ps(y + o, m, at, v, 4);
}

/* Compute the first n_out of the outputs o, o + apart, ..., o + 15 apart. */
INLINE void few_group(float *y, size_t y_stride, const uint8_t *xp, const struct matrix *w, int o,
                      int apart, int n_out, int rows, enum dtype t)
{
    const size_t blocks = blocks_of(w->in), size = (size_t)block_size(t);
    const uint8_t *p = (const uint8_t *)w->data + (size_t)o * w->row_size;
    struct x_row x[FEW_ROWS];
    __m512 acc[FEW_ROWS];
    __m512i at = row_offsets(w, o, apart);
    int32_t off[GROUP];
    _mm512_storeu_si512(off, at);
    for (int r = 0; r < rows; r++) {
        x[r] = row_at(xp, r, w->in, start_of(t));
        acc[r] = _mm512_setzero_ps();
    }
    for (size_t i = 0; i < blocks; i++, p += size) {
        __m512 dw = load_scales(p, at);
        __m512i q[8];
        load_group(q, p, off, t);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512 sum = _mm512_cvtepi32_ps(dot_block(q, &x[r], i));
            acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(sum, _mm512_set1_ps(x[r].scale[i])), dw, acc[r]);
        }
    }
    for (int r = 0; r < rows; r++)
        store_apart(y + (size_t)r * y_stride, w, o, apart, n_out, acc[r]);
}

INLINE void few_rows(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                     int o, int apart, int n_out, enum dtype t)
{
    switch (n) {
    case 1:
        few_group(y, y_stride, xp, w, o, apart, n_out, 1, t);
        break;
    case 2:
        few_group(y, y_stride, xp, w, o, apart, n_out, 2, t);
        break;
    case 3:
        few_group(y, y_stride, xp, w, o, apart, n_out, 3, t);
        break;
    case 4:
        few_group(y, y_stride, xp, w, o, apart, n_out, 4, t);
        break;
    case 5:
        few_group(y, y_stride, xp, w, o, apart, n_out, 5, t);
        break;
    case 6:
        few_group(y, y_stride, xp, w, o, apart, n_out, 6, t);
        break;
    case 7:
        few_group(y, y_stride, xp, w, o, apart, n_out, 7, t);
        break;
    default:
        few_group(y, y_stride, xp, w, o, apart, n_out, FEW_ROWS, t);
        break;
    }
}

/* Compute outputs [o0, o1) of 1 <= n <= FEW_ROWS rows. */
INLINE void run_few(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                    int o0, int o1, enum dtype t)
{
    int apart = rows_apart(w, o1 - o0);
    while (apart > 0) {
        for (int i = 0; i < apart; i++)
            few_rows(y, y_stride, xp, n, w, o0 + i, apart, GROUP, t);
        o0 += GROUP * apart;
        apart = rows_apart(w, o1 - o0);
    }
    if (o0 < o1)
        few_rows(y, y_stride, xp, n, w, o0, 1, o1 - o0, t);
}

#endif
