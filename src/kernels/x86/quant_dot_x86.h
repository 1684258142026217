/* Blocks of x, and the integer part of a product with quantised weights: the sums of one block of
 * 32 for VEC outputs and a few rows. All sums are exact, so these functions differ only in speed.
 *
 * AVX-512: vpdpbusd takes four elements of 16 outputs at once, unsigned weights times signed x.
 * AVX2: for up to six bits vpmaddubsw does the same for 8 outputs into 16-bit sums, which are added
 * up as long as they fit: 8 times two products of 15 * 127 for four bits, 4 times 31 * 127, 2 times
 * 63 * 127. Q8_0 would not fit at all: its weights and x are widened to 16 bits for vpmaddwd. */
#ifndef PV_KERNELS_X86_QUANT_DOT_X86_H
#define PV_KERNELS_X86_QUANT_DOT_X86_H

#include "kernels/x86/quant_unpack.h"

/* What a format has in addition to quants times scale: nothing, mins, or a scale for each half. */
enum quant_kind { QUANT_PLAIN, QUANT_MINS, QUANT_HALVES };

struct x_block {
    int32_t init[2]; /* -(sum of q) times the offset by which the weights' quants are too large;
                        with `halves`, for each half */
    float scale;
    float sum;         /* scale times the sum of q */
    int32_t q[GROUPS]; /* four int8 each */
#ifndef __AVX512F__
    int32_t wide[2 * GROUPS]; /* Q8_0: two int16 each, elements 0, 2 of four, then 1, 3 */
#endif
};

/* Store q as int8, and the sum of each half of it. */
INLINE void x_block_quants(struct x_block *dst, int32_t sum[2], const ivec *q)
{
#ifdef __AVX512F__
    for (int i = 0; i < 2; i++) {
        __m128i narrow = _mm512_cvtepi32_epi8(q[i]);
        __m128i s =
            _mm_sad_epu8(_mm_xor_si128(narrow, _mm_set1_epi8((char)0x80)), _mm_setzero_si128());
        _mm_storeu_si128((__m128i *)(void *)(dst->q + i * GROUPS / 2), narrow);
        sum[i] = _mm_cvtsi128_si32(s) + _mm_extract_epi16(s, 4) - 16 * 128;
    }
#else
    int32_t wide[BLOCK];
    int8_t narrow[BLOCK];
    for (int i = 0; i < BLOCK / VEC; i++)
        ivec_store(wide + i * VEC, q[i]);
    sum[0] = sum[1] = 0;
    for (int i = 0; i < BLOCK / 2; i++) {
        sum[0] += wide[i];
        sum[1] += wide[BLOCK / 2 + i];
    }
    for (int i = 0; i < BLOCK; i++)
        narrow[i] = (int8_t)wide[i];
    memcpy(dst->q, narrow, sizeof narrow);
#endif
}

/* Round 32 elements. If amax is too small to invert, the block becomes zero. */
INLINE void x_block_pack(struct x_block *dst, const float *x, enum quant_kind kind, int over,
                         bool wide)
{
    int32_t sum[2];
    ivec q[BLOCK / VEC];
    vec top = vec_zero();

    for (int i = 0; i < BLOCK; i += VEC)
        top = vec_max(vec_abs(vec_load(x + i)), top);
    float amax = vec_top(top), inverse = amax > 1e-30f ? 127 / amax : 0;
    for (int i = 0; i < BLOCK / VEC; i++)
        q[i] = vec_int(vec_mul(vec_load(x + i * VEC), vec_set(inverse)));
    x_block_quants(dst, sum, q);
    dst->scale = amax / 127;
    dst->sum = dst->scale * (float)(sum[0] + sum[1]);
    dst->init[0] = -over * (kind == QUANT_HALVES ? sum[0] : sum[0] + sum[1]);
    dst->init[1] = -over * sum[1];
#ifndef __AVX512F__
    int32_t all[BLOCK];
    int16_t order[BLOCK];
    for (int i = 0; i < BLOCK / VEC && wide; i++)
        ivec_store(all + i * VEC, q[i]);
    for (int i = 0; i < BLOCK && wide; i++)
        order[i] = (int16_t)all[(i & ~3) | (i & 1) << 1 | (i >> 1 & 1)];
    if (wide)
        memcpy(dst->wide, order, sizeof order);
#else
    (void)wide;
#endif
}

#ifdef __AVX512F__

enum { QUANT_ROWS = 8 }; /* rows of a tile */

/* Sums for rows x[0 .. rows); with `halves`, of the first 16 elements, and of the rest in `half`.
 * `rows`, `halves` and `bits` (of the weights) are compile-time constants. */
INLINE void dot_block(ivec *sum, ivec *half, const struct panel_block *p, const struct x_block *x,
                      int rows, bool halves, int bits)
{
    bool two = rows <= 2 && !halves; /* two chains hide the latency */

    (void)bits;
    for (int r = 0; r < rows; r++) {
        ivec v[2] = { ivec_set(x[r].init[0]), ivec_set(halves ? x[r].init[1] : 0) };
        for (int g = 0; g < GROUPS; g++) {
            int to = halves ? g >= GROUPS / 2 : two ? g & 1 : 0;
            v[to] = _mm512_dpbusd_epi32(v[to], p->q[g], ivec_set(x[r].q[g]));
        }
        sum[r] = two ? _mm512_add_epi32(v[0], v[1]) : v[0];
        half[r] = v[1];
    }
}

#else

enum { QUANT_ROWS = 4 }; /* rows of a tile */

INLINE void dot_wide(ivec *sum, const struct panel_block *p, const struct x_block *x, int rows)
{
    for (int r = 0; r < rows; r++)
        sum[r] = _mm256_setzero_si256();
    for (int g = 0; g < GROUPS; g++) {
        ivec even = p->q[g], odd = p->q_odd[g];
        for (int r = 0; r < rows; r++) {
            ivec a = _mm256_madd_epi16(even, ivec_set(x[r].wide[2 * g]));
            ivec b = _mm256_madd_epi16(odd, ivec_set(x[r].wide[2 * g + 1]));
            sum[r] = _mm256_add_epi32(sum[r], _mm256_add_epi32(a, b));
        }
    }
}

/* Sums for rows x[0 .. rows); with `halves`, of the first 16 elements, and of the rest in `half`.
 * `rows`, `halves` and `bits` (of the weights) are compile-time constants. */
INLINE void dot_block(ivec *sum, ivec *half, const struct panel_block *p, const struct x_block *x,
                      int rows, bool halves, int bits)
{
    const ivec ones = _mm256_set1_epi16(1);
    int run = bits == 4 ? 8 : bits == 5 ? 4 : 2; /* products per 16-bit sum */

    if (bits == 8) {
        dot_wide(sum, p, x, rows);
        return;
    }
    for (int r = 0; r < rows; r++) {
        sum[r] = ivec_set(x[r].init[0]);
        half[r] = ivec_set(halves ? x[r].init[1] : 0);
    }
    for (int g = 0; g < GROUPS; g += run) {
        ivec part[QUANT_ROWS];
        for (int j = g; j < g + run; j++)
            for (int r = 0; r < rows; r++) {
                ivec v = _mm256_maddubs_epi16(p->q[j], ivec_set(x[r].q[j]));
                part[r] = j == g ? v : _mm256_add_epi16(part[r], v);
            }
        for (int r = 0; r < rows; r++) {
            ivec v = _mm256_madd_epi16(part[r], ones);
            if (halves && g >= GROUPS / 2)
                half[r] = _mm256_add_epi32(half[r], v);
            else
                sum[r] = _mm256_add_epi32(sum[r], v);
        }
    }
}

#endif

#endif
