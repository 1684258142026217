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

#ifndef __AVX512F__
/* vpackssdw and vpacksswb work on halves of their operands; put the quarters back in order. */
INLINE ivec pack_in_order(ivec v)
{
    return _mm256_permute4x64_epi64(v, 0xd8);
}

/* 16 numbers as int16, of each four the elements 0, 2, 1, 3. */
INLINE ivec widen(const int8_t *q)
{
    const ivec order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1,
                                        4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    ivec wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)q));
    return _mm256_shuffle_epi8(wide, order);
}
#endif

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
    ivec low = pack_in_order(_mm256_packs_epi32(q[0], q[1]));
    ivec high = pack_in_order(_mm256_packs_epi32(q[2], q[3]));
    /* what was not finite is -128 here, whose negative is no int8 */
    ivec narrow =
        _mm256_max_epi8(pack_in_order(_mm256_packs_epi16(low, high)), _mm256_set1_epi8(-127));
    ivec over = _mm256_xor_si256(narrow, _mm256_set1_epi8((char)0x80)), eights;
    int64_t part[4];
    ivec_store(dst->q, narrow);
    eights = _mm256_sad_epu8(over, _mm256_setzero_si256());
    memcpy(part, &eights, sizeof part);
    for (int i = 0; i < 2; i++)
        sum[i] = (int32_t)(part[2 * i] + part[2 * i + 1]) - 16 * 128;
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
    for (int i = 0; i < 2 && wide; i++)
        ivec_store(dst->wide + i * GROUPS, widen((const int8_t *)dst->q + i * BLOCK / 2));
#else
    (void)wide;
#endif
}

#ifdef __AVX512F__

enum { QUANT_ROWS = 8, QUANT_TILES = 1 }; /* rows of a tile; tiles that share what is read of x */

/* Sums for rows x[0 .. rows) in sum[0]; with `halves`, of the first 16 elements, and of the rest in
 * half[0]. `rows`, `halves` and `bits` (of the weights) are compile-time constants. */
INLINE void dot_block(ivec (*sum)[QUANT_ROWS], ivec (*half)[QUANT_ROWS],
                      const struct panel_block *p, const struct x_block *x, int rows, int tiles,
                      bool halves, int bits)
{
    bool two = rows <= 2 && !halves; /* two chains hide the latency */

    (void)bits;
    (void)tiles;
    for (int r = 0; r < rows; r++) {
        ivec v[2] = { ivec_set(x[r].init[0]), ivec_set(halves ? x[r].init[1] : 0) };
        for (int g = 0; g < GROUPS; g++) {
            int to = halves ? g >= GROUPS / 2 : two ? g & 1 : 0;
            v[to] = _mm512_dpbusd_epi32(v[to], p->q[g], ivec_set(x[r].q[g]));
        }
        sum[0][r] = two ? _mm512_add_epi32(v[0], v[1]) : v[0];
        half[0][r] = v[1];
    }
}

#else

/* Two tiles of outputs where weights have 8 bits: a value of x, which must be broadcast, then
 * serves 16 outputs, and loads no longer take longer than the products. */
enum { QUANT_ROWS = 4, QUANT_TILES = 2 };

INLINE void dot_wide(ivec (*sum)[QUANT_ROWS], const struct panel_block *p, const struct x_block *x,
                     int rows, int tiles)
{
    for (int t = 0; t < tiles; t++)
        for (int r = 0; r < rows; r++)
            sum[t][r] = _mm256_setzero_si256();
    for (int g = 0; g < GROUPS; g++)
        for (int odd = 0; odd < 2; odd++)
            for (int r = 0; r < rows; r++) {
                ivec v = ivec_set(x[r].wide[2 * g + odd]);
                for (int t = 0; t < tiles; t++) {
                    const struct panel_block *b = p + t * PANEL_BLOCKS;
                    ivec w = odd ? b->q_odd[g] : b->q[g];
                    sum[t][r] = _mm256_add_epi32(sum[t][r], _mm256_madd_epi16(w, v));
                }
            }
}

/* Sums for rows x[0 .. rows) and, of weights of 8 bits, for `tiles` tiles of outputs, whose panels
 * are PANEL_BLOCKS apart; with `halves`, of the first 16 elements, and of the rest in `half`.
 * `rows`, `tiles`, `halves` and `bits` (of the weights) are compile-time constants. */
INLINE void dot_block(ivec (*sum)[QUANT_ROWS], ivec (*half)[QUANT_ROWS],
                      const struct panel_block *p, const struct x_block *x, int rows, int tiles,
                      bool halves, int bits)
{
    const ivec ones = _mm256_set1_epi16(1);
    int run = bits == 4 ? 8 : bits == 5 ? 4 : 2; /* products per 16-bit sum */

    if (bits == 8) {
        dot_wide(sum, p, x, rows, tiles);
        return;
    }
    for (int r = 0; r < rows; r++) {
        sum[0][r] = ivec_set(x[r].init[0]);
        half[0][r] = ivec_set(halves ? x[r].init[1] : 0);
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
                half[0][r] = _mm256_add_epi32(half[0][r], v);
            else
                sum[0][r] = _mm256_add_epi32(sum[0][r], v);
        }
    }
}

#endif

#endif
