/* Shared by the AMX kernels: the tile configuration, stores of C tiles, conversions to bf16, and
 * the sizes of the layout. A tile product is C[16 outputs][16 rows] += A[16 outputs][32 k] . B[32
 * k][16 rows] with A, B in bf16 and C in f32; B keeps pairs of k together (VNNI order). Each
 * element of C is computed independently, in an order of k that the hardware fixes, so a row's bits
 * do not depend on its neighbours. */
#ifndef PV_KERNELS_X86_TILE_AMX_H
#define PV_KERNELS_X86_TILE_AMX_H

#include "kernels/kernels.h"
#include "kernels/x86/transpose_avx512.h"
#include "kernels/x86/x86.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    TILE_ROWS = 16,
    TILE_K = 32,
    TILE_BYTES = 1024,           /* 16 rows of 64 bytes */
    TILE_HALVES = TILE_BYTES / 2 /* bf16 values per tile */
};

struct tile_shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};

static inline void tile_load_shape(const struct tile_shape *s)
{
    /* gcc 12 assumes that the intrinsic reads only 8 of the 64 bytes, and may drop stores to the
     * rest. */
    __asm__ volatile("" ::"m"(*s));
    _tile_loadconfig(s);
}

/* Call it after writing memory that tiles will load: gcc 12 does not know that a tile load reads
 * memory. */
static inline void tiles_written(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Configure all eight tiles as 16 rows of 64 bytes. */
static inline void tile_config(void)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = 64;
        s.rows[i] = TILE_ROWS;
    }
    tile_load_shape(&s);
}

/* Where a C tile goes: outputs o, o + apart, ... of rows r, r + 1, ... */
struct tile_place {
    float *y; /* output o of row r */
    size_t stride;
    const float *bias; /* of output o, or NULL */
    int apart, n_out, n_rows;
};

static inline void store_tile_row(const struct tile_place *p, int r, __m512 v)
{
    __mmask16 m = (__mmask16)((1u << p->n_out) - 1);
    float *y = p->y + (size_t)r * p->stride;
    if (p->apart == 1) {
        if (p->bias)
            v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, p->bias));
        _mm512_mask_storeu_ps(y, m, v);
        return;
    }
    if (p->bias)
        v = _mm512_add_ps(v, _mm512_mask_i32gather_ps(v, m, lanes_apart(p->apart), p->bias, 4));
    _mm512_mask_i32scatter_ps(y, m, lanes_apart(p->apart), v, 4);
}

/* Store a C tile [16 outputs][16 rows] in its place, with the bias added. */
static inline void store_tile(const struct tile_place *p, const float *c)
{
    if (p->n_rows <= 2) {
        for (int r = 0; r < p->n_rows; r++)
            store_tile_row(p, r, _mm512_i32gather_ps(lanes_apart(16), c + r, 4));
        return;
    }
    __m512i t[16];
    for (int i = 0; i < 16; i++)
        t[i] = _mm512_load_si512(c + i * 16);
    transpose_16x16(t);
    for (int r = 0; r < p->n_rows; r++)
        store_tile_row(p, r, (__m512)t[r]);
}

/* Load the next 32 of n > 0 floats as two vectors, with zeros after the last; memory after them is
 * not accessed. */
static inline void load_32(__m512 v[2], const float *x, int n)
{
    unsigned mask = n < TILE_K ? (1u << n) - 1 : ~0u;
    v[0] = _mm512_maskz_loadu_ps((__mmask16)mask, x);
    v[1] = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), x + 16);
}

/* Round 32 floats to bf16, to nearest even. */
static inline __m512i to_bf16_32(__m512 lo, __m512 hi)
{
    return (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
}

/* The rounding errors of to_bf16_32, in bf16. */
static inline __m512i rest_bf16_32(__m512i rounded, __m512 lo, __m512 hi)
{
    __m512i l = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(rounded)), 16);
    __m512i h = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(rounded, 1)), 16);
    return to_bf16_32(_mm512_sub_ps(lo, _mm512_castsi512_ps(l)),
                      _mm512_sub_ps(hi, _mm512_castsi512_ps(h)));
}

/* Split 32 floats into sums of two bf16 numbers: one goes to a row of a tile, the other to the tile
 * after it. */
static inline void split_bf16_32(uint8_t *to, __m512 lo, __m512 hi)
{
    __m512i first = to_bf16_32(lo, hi);
    _mm512_store_si512(to, first);
    _mm512_store_si512(to + TILE_BYTES, rest_bf16_32(first, lo, hi));
}

/* Split 32 F16 numbers exactly into sums of two bf16 numbers: their first eight bits, rounded or
 * not, go to a row of a tile, and the rest `step` bytes further. */
static inline __attribute__((always_inline)) void split_f16_by(uint8_t *to, size_t step, __m512i h,
                                                               int half)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u), up = _mm512_set1_epi32(half);
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1); /* halves of 32 dwords */
    __m512 a = _mm512_cvtph_ps(_mm512_castsi512_si256(h));
    __m512 b = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1));
    __m512i a1 = half ? _mm512_add_epi32((__m512i)a, up) : (__m512i)a;
    __m512i b1 = half ? _mm512_add_epi32((__m512i)b, up) : (__m512i)b;
    __m512 a2 = _mm512_sub_ps(a, (__m512)_mm512_and_si512(a1, high));
    __m512 b2 = _mm512_sub_ps(b, (__m512)_mm512_and_si512(b1, high));
    _mm512_store_si512(to, _mm512_permutex2var_epi16(a1, upper, b1));
    _mm512_store_si512(to + step, _mm512_permutex2var_epi16((__m512i)a2, upper, (__m512i)b2));
}

static inline void split_f16(uint8_t *to, size_t step, __m512i h)
{
    split_f16_by(to, step, h, 0);
}

static inline void split_f16_rounded(uint8_t *to, size_t step, __m512i h)
{
    split_f16_by(to, step, h, 0x8000);
}

/* The same with rounded parts (whose rest is half as large) for two times sixteen numbers by fewer
 * instructions, which leave pair i of them at split_place(i): to a row of one tile, and of the tile
 * after it. */
static inline __attribute__((always_inline)) void split_f16_32(uint8_t *to, __m256i lo, __m256i hi)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u), half = _mm512_set1_epi32(0x8000);
    __m512 a = _mm512_cvtph_ps(lo), b = _mm512_cvtph_ps(hi);
    __m512i a1 = _mm512_add_epi32((__m512i)a, half), b1 = _mm512_add_epi32((__m512i)b, half);
    __m512i a2 = (__m512i)_mm512_sub_ps(a, (__m512)_mm512_and_si512(a1, high));
    __m512i b2 = (__m512i)_mm512_sub_ps(b, (__m512)_mm512_and_si512(b1, high));
    _mm512_store_si512(to,
                       _mm512_packus_epi32(_mm512_srli_epi32(a1, 16), _mm512_srli_epi32(b1, 16)));
    _mm512_store_si512(to + TILE_BYTES,
                       _mm512_packus_epi32(_mm512_srli_epi32(a2, 16), _mm512_srli_epi32(b2, 16)));
}

/* The place of pair i of sixteen after split_f16_32: two of the first half, two of the second, ...
 */
static inline int split_place(int i)
{
    return i % 8 / 2 * 4 + i / 8 * 2 + i % 2;
}

/* The order of the numbers of two vectors in a row of a B tile, where two numbers of each column
 * are next to each other. */
static inline __m512i pair_order(int lanes)
{
    uint16_t at[32];
    for (int i = 0; i < 32; i++)
        at[i] = (uint16_t)((i / (2 * lanes) * 2 + i % 2) * lanes + i % (2 * lanes) / 2);
    return _mm512_loadu_si512(at);
}

/* Store two vectors as bf16 in a row of a B tile, and with two planes their rests in the tile after
 * it. */
static inline __attribute__((always_inline)) void pair_rows(uint8_t *pt, __m512 even, __m512 odd,
                                                            __m512i order, int planes)
{
    __m512i first = to_bf16_32(even, odd);
    _mm512_store_si512(pt, _mm512_permutexvar_epi16(order, first));
    if (planes == 2)
        _mm512_store_si512(pt + TILE_BYTES,
                           _mm512_permutexvar_epi16(order, rest_bf16_32(first, even, odd)));
}

/* Transpose a tile, keeping pairs of bf16 together. */
static inline void turn_tile(uint8_t *tile)
{
    __m512i r[16];
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_load_si512(tile + i * 64);
    transpose_16x16(r);
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(tile + i * 64, r[i]);
}

/* Multiply tiles 4 and 5 by tiles 6 and 7 and add the products to tiles 0 1 / 2 3. */
static inline void products_2x2(void)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* The same, or with one column only by tile 6. */
static inline __attribute__((always_inline)) void products_by(int columns)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if (columns > 1) {
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* Call it between tile and vector instructions: if they overlap they slow each other down.
 * (Attention of 7 queries over a chunk: 4.4 us without this, 3.1 us with it, on a fifth-generation
 * Xeon.) */
static inline void phase(void)
{
    tiles_written();
    _mm_lfence();
}

/* Products in int8 (matmul_int8_amx.c). */
extern const struct matmul_kernel matmul_q8_0_amx, matmul_q4_0_amx, matmul_q5_0_amx;
extern const struct matmul_kernel matmul_repacked_amx; /* matmul_repacked_amx.c */
extern const struct matmul_kernel matmul_iq4_nl_amx;
/* Attention over a bf16 or f16 KV cache, and over pairs of bf16 numbers (attn_amx.c). */
extern const struct attn_kernel attn_bf16_amx, attn_f16_amx, attn_pair_amx;
/* Store rows of keys and values as a chunk of either kind (attn_lay_amx.c). */
void attn_lay_bf16_amx(void *k, void *vt, const struct attn_rows *x, int d);
void attn_lay_pair_amx(void *k, void *vt, const struct attn_rows *x, int d);
/* A whole head of plain rows (attn_head_amx.c). */
size_t attn_head_size_amx(int n_q, int d);
void attn_head_bf16_amx(const struct attn_head *h, void *scratch);
/* attn_bf16_amx for chunks with a tree (attn_tree_amx.c), and the scratch it needs for any. */
size_t attn_tree_scratch(int n, int d);
void attn_tree_amx(float *max, float *sum, float *out, const void *qp, int n, int d,
                   const struct attn_chunk *chunk, const int *limit, float scale, void *scratch);

#endif
