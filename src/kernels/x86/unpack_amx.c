/* Unpacking of weight rows for the AMX kernels. Rows are read one after the other, as they lie in
 * memory. Types with few levels (4 and 5 bits) are looked up: a block's 16 or 32 possible values
 * are computed once, rounded to bf16 and permuted by the quants, one instruction for 32 values. */
#include "kernels/x86/unpack_amx.h"

#include "base/load.h"
#include "kernels/x86/tile_amx.h"

static inline float half_at(const uint8_t *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_le16(p))));
}

static inline __m512 iota(float from)
{
    __m512i i = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_ps(_mm512_cvtepi32_ps(i), _mm512_set1_ps(from));
}

static inline void put(uint16_t *dst, int tile, int row, __m512i v)
{
    _mm512_store_si512(dst + (size_t)tile * TILE_HALVES + row * TILE_K, v);
}

static inline void fetch(const uint8_t *p, ptrdiff_t ahead)
{
    _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
}

static inline __m512 widen(__m256i bf16)
{
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16);
}

static void unpack_bf16(uint16_t *dst, const struct row_pieces *p)
{
    for (int r = 0; r < 16; r++) {
        const uint8_t *src = p->base + p->at[r];
        for (int i = 0; i < p->n / 32; i++, src += 64) {
            fetch(src, p->ahead);
            put(dst, i, r, _mm512_loadu_si512(src));
        }
    }
}

void unpack_f16(uint16_t *hi, uint16_t *lo, const struct row_pieces *p)
{
    for (int r = 0; r < 16; r++) {
        const uint8_t *src = p->base + p->at[r];
        for (int i = 0; i < p->n / 32; i++, src += 64) {
            __m512 a = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)src));
            __m512 b = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(src + 32)));
            __m512i h = to_bf16_32(a, b);
            __m512 ha = widen(_mm512_castsi512_si256(h));
            __m512 hb = widen(_mm512_extracti64x4_epi64(h, 1));
            fetch(src, p->ahead);
            put(hi, i, r, h);
            put(lo, i, r, to_bf16_32(_mm512_sub_ps(a, ha), _mm512_sub_ps(b, hb)));
        }
    }
}

/* ---- K-quants ---- */

/* 6-bit scale and minimum of sub-block j of Q4_K and Q5_K. */
static inline void scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

/* Low or high nibbles of 32 bytes as 16-bit numbers. */
static inline __m512i nibbles_of_32(const uint8_t *p, int high)
{
    __m512i w = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)p));
    return high ? _mm512_srli_epi16(w, 4) : _mm512_and_si512(w, _mm512_set1_epi16(15));
}

static inline void block_q4_k(uint16_t *dst, int tile, int row, const uint8_t *p)
{
    float d = half_at(p), dmin = half_at(p + 2);
    for (int j = 0; j < 8; j++) {
        int sc, mn;
        scale_min(p + 4, j, &sc, &mn);
        __m512 v = _mm512_sub_ps(_mm512_mul_ps(iota(0), _mm512_set1_ps(d * (float)sc)),
                                 _mm512_set1_ps(dmin * (float)mn));
        __m512i table = _mm512_castsi256_si512((__m256i)_mm512_cvtneps_pbh(v));
        put(dst, tile + j, row,
            _mm512_permutexvar_epi16(nibbles_of_32(p + 16 + j / 2 * 32, j & 1), table));
    }
}

static inline void block_q5_k(uint16_t *dst, int tile, int row, const uint8_t *p)
{
    float d = half_at(p), dmin = half_at(p + 2);
    __m256i high = _mm256_loadu_si256((const __m256i *)(p + 16));
    for (int j = 0; j < 8; j++) {
        int sc, mn;
        scale_min(p + 4, j, &sc, &mn);
        __m512 ds = _mm512_set1_ps(d * (float)sc), m = _mm512_set1_ps(dmin * (float)mn);
        __m512i table = to_bf16_32(_mm512_sub_ps(_mm512_mul_ps(iota(0), ds), m),
                                   _mm512_sub_ps(_mm512_mul_ps(iota(16), ds), m));
        __m512i q = nibbles_of_32(p + 48 + j / 2 * 32, j & 1);
        __mmask32 fifth = _mm256_test_epi8_mask(high, _mm256_set1_epi8((char)(1 << j)));
        q = _mm512_mask_add_epi16(q, fifth, q, _mm512_set1_epi16(16));
        put(dst, tile + j, row, _mm512_permutexvar_epi16(q, table));
    }
}

static inline void block_q6_k(uint16_t *dst, int tile, int row, const uint8_t *p)
{
    const __m256i low4 = _mm256_set1_epi8(15), low2 = _mm256_set1_epi8(3);
    float d = half_at(p + 208);
    for (int g = 0; g < 8; g++) { /* groups of 32 values: half g / 4, quarter g % 4 of it */
        const uint8_t *ql = p + g / 4 * 64 + (g & 1) * 32, *qh = p + 128 + g / 4 * 32;
        const int8_t *sc = (const int8_t *)p + 192 + g / 4 * 8 + g % 4 * 2;
        __m256i l = _mm256_loadu_si256((const __m256i *)ql);
        __m256i h = _mm256_loadu_si256((const __m256i *)qh);
        l = _mm256_and_si256(g & 2 ? _mm256_srli_epi16(l, 4) : l, low4);
        h = _mm256_and_si256(_mm256_srl_epi16(h, _mm_cvtsi32_si128(g % 4 * 2)), low2);
        l = _mm256_sub_epi8(_mm256_or_si256(l, _mm256_slli_epi16(h, 4)), _mm256_set1_epi8(32));
        __m512 a = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(l)));
        __m512 b = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(l, 1)));
        put(dst, tile + g, row,
            to_bf16_32(_mm512_mul_ps(a, _mm512_set1_ps(d * (float)sc[0])),
                       _mm512_mul_ps(b, _mm512_set1_ps(d * (float)sc[1]))));
    }
}

static inline __attribute__((always_inline)) void unpack_super(
    uint16_t *dst, const struct row_pieces *p, int size,
    void (*block)(uint16_t *dst, int tile, int row, const uint8_t *p))
{
    for (int r = 0; r < 16; r++) {
        const uint8_t *src = p->base + p->at[r];
        for (int i = 0; i < p->n / 256; i++, src += size) {
            for (int j = 0; j < size; j += 64)
                fetch(src + j, p->ahead);
            block(dst, i * 8, r, src);
        }
    }
}

static void unpack_q4_k(uint16_t *dst, const struct row_pieces *p)
{
    unpack_super(dst, p, 144, block_q4_k);
}

static void unpack_q5_k(uint16_t *dst, const struct row_pieces *p)
{
    unpack_super(dst, p, 176, block_q5_k);
}

static void unpack_q6_k(uint16_t *dst, const struct row_pieces *p)
{
    unpack_super(dst, p, 210, block_q6_k);
}

unpack_fn *unpack_find(enum dtype t)
{
    static unpack_fn *const table[DTYPE_COUNT] = {
        [DTYPE_BF16] = unpack_bf16,
        [DTYPE_Q4_K] = unpack_q4_k,
        [DTYPE_Q5_K] = unpack_q5_k,
        [DTYPE_Q6_K] = unpack_q6_k,
    };
    return table[t];
}
