/* What the AMX kernels share: the tile configuration, a 16 x 16 transpose, and the numbers of the
 * layout. A tile product is C[16 outputs][16 rows] += A[16 outputs][32 k] . B[32 k][16 rows] with
 * A, B in bf16 and C in f32; B keeps pairs of k together (VNNI order). Each element of C is
 * computed by itself, in an order of k that the hardware fixes, so a row's bits do not depend on
 * its neighbours. */
#ifndef PV_KERNELS_X86_TILE_AMX_H
#define PV_KERNELS_X86_TILE_AMX_H

#include "kernels/kernels.h"
#include "kernels/x86/transpose_avx512.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TILE_ROWS = 16,
    TILE_K = 32,
    TILE_BYTES = 1024,           /* 16 rows of 64 bytes */
    TILE_HALVES = TILE_BYTES / 2 /* bf16 values of a tile */
};

struct tile_shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};

static inline void tile_load_shape(const struct tile_shape *s)
{
    /* gcc 12 believes that the intrinsic reads 8 bytes of the 64 and may drop stores to the rest.
     */
    __asm__ volatile("" ::"m"(*s));
    _tile_loadconfig(s);
}

/* After writing what tiles will load: gcc 12 does not know that a tile load reads memory. */
static inline void tiles_written(void)
{
    __asm__ volatile("" ::: "memory");
}

/* All eight tiles of 16 rows of 64 bytes. */
static inline void tile_config(void)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = 64;
        s.rows[i] = TILE_ROWS;
    }
    tile_load_shape(&s);
}

/* C tile [16 outputs][16 rows] to y, bias added. */
static inline void store_tile(float *y, size_t y_stride, const float *c, const float *bias,
                              int n_out, int n_rows)
{
    __mmask16 m = (__mmask16)((1u << n_out) - 1);
    __m512 b = bias ? _mm512_maskz_loadu_ps(m, bias) : _mm512_setzero_ps();
    if (n_rows <= 2) {
        const __m512i at = _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64,
                                            48, 32, 16, 0);
        for (int r = 0; r < n_rows; r++) {
            __m512 v = _mm512_i32gather_ps(at, c + r, 4);
            _mm512_mask_storeu_ps(y + (size_t)r * y_stride, m, bias ? _mm512_add_ps(v, b) : v);
        }
        return;
    }
    __m512i t[16];
    for (int i = 0; i < 16; i++)
        t[i] = _mm512_load_si512(c + i * 16);
    transpose_16x16(t);
    for (int r = 0; r < n_rows; r++) {
        __m512 v = (__m512)t[r];
        _mm512_mask_storeu_ps(y + (size_t)r * y_stride, m, bias ? _mm512_add_ps(v, b) : v);
    }
}

/* 32 floats to bf16, rounded to nearest even. */
static inline __m512i to_bf16_32(__m512 lo, __m512 hi)
{
    return (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
}

/* Between tile and vector instructions: where they overlap they slow each other down. (Attention of
 * 7 queries over a chunk: 4.4 us without this, 3.1 us with it, on a Xeon of the fifth generation.)
 */
static inline void phase(void)
{
    tiles_written();
    _mm_lfence();
}

/* Products in int8 (matmul_int8_amx.c). */
extern const struct matmul_kernel matmul_q8_0_amx, matmul_q4_0_amx, matmul_q5_0_amx;
/* Attention over a bf16 KV cache (attn_amx.c). */
extern const struct attn_kernel attn_bf16_amx;

#endif
