/* What the AMX kernels share: the tile configuration, a 16 x 16 transpose, and the numbers of the
 * layout. A tile product is C[16 outputs][16 rows] += A[16 outputs][32 k] . B[32 k][16 rows] with
 * A, B in bf16 and C in f32; B keeps pairs of k together (VNNI order). Each element of C is
 * computed by itself, in an order of k that the hardware fixes, so a row's bits do not depend on
 * its neighbours. */
#ifndef PV_KERNELS_X86_TILE_AMX_H
#define PV_KERNELS_X86_TILE_AMX_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TILE_ROWS = 16,
    TILE_K = 32,
    TILE_BYTES = 1024,           /* 16 rows of 64 bytes */
    TILE_HALVES = TILE_BYTES / 2 /* bf16 values of a tile */
};

static inline void tile_config(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t colsb[16];
        uint8_t rows[16];
    } c = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        c.colsb[i] = 64;
        c.rows[i] = TILE_ROWS;
    }
    _tile_loadconfig(&c);
}

/* Rows of 16 dwords to columns, in place. */
static inline void transpose_16x16(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* 32 floats to bf16, rounded to nearest even. */
static inline __m512i to_bf16_32(__m512 lo, __m512 hi)
{
    return (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
}

#endif
