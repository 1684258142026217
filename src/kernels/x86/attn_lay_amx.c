/* Stores keys and values of a vision tower's rows in the layout of a chunk (attn_amx.c): rounded to
 * bf16, or split into two planes; heads are padded with zeros. Values are transposed sixteen by
 * sixteen before they are rounded, so that 32 positions of a column are one cache line. */
#include "kernels/x86/tile_amx.h"

enum {
    FETCH_ROWS = 6, /* prefetch distance in rows: a head is a few lines per row, far apart */
    LINE_FLOATS = 16,
    POSITION_STEP = 64 /* positions are padded with zeros to a multiple */
};

static int positions_of(int n)
{
    return (n + POSITION_STEP - 1) / POSITION_STEP * POSITION_STEP;
}

static inline void fetch_row(const float *x, int d)
{
    for (int i = 0; i < d; i += LINE_FLOATS)
        __builtin_prefetch(x + i);
}

/* Store 32 numbers, and with two planes their rests `step` bytes further. */
static inline __attribute__((always_inline)) void put_32(uint8_t *to, size_t step, __m512 lo,
                                                         __m512 hi, int planes)
{
    __m512i first = to_bf16_32(lo, hi);
    _mm512_store_si512(to, first);
    if (planes == 2)
        _mm512_store_si512(to + step, rest_bf16_32(first, lo, hi));
}

static inline __attribute__((always_inline)) void lay_keys(uint8_t *to, const struct attn_rows *x,
                                                           int d, int planes)
{
    size_t plane = (size_t)d * 2;
    for (int i = 0; i < x->n; i++) {
        const float *row = x->k + (size_t)i * x->stride;
        if (i + FETCH_ROWS < x->n)
            fetch_row(row + FETCH_ROWS * x->stride, x->d);
        for (int c = 0; c < d; c += TILE_K, to += TILE_K * 2) {
            __m512 v[2] = { _mm512_setzero_ps(), _mm512_setzero_ps() };
            if (c < x->d)
                load_32(v, row + c, x->d - c);
            put_32(to, plane, v[0], v[1], planes);
        }
        to += plane * (size_t)(planes - 1);
    }
    memset(to, 0, (size_t)(positions_of(x->n) - x->n) * plane * (size_t)planes);
}

/* Load columns [c, c + 16) of rows [r, r + 16), transposed; rows and columns after the end are
 * zero. */
static inline void load_columns(__m512i t[16], const struct attn_rows *x, int r, int c)
{
    __mmask16 m = (__mmask16)((1u << (x->d - c < 16 ? x->d - c : 16)) - 1);
    for (int i = 0; i < 16; i++) {
        const float *row = x->v + (size_t)(r + i) * x->stride + c;
        if (r + i + 2 * TILE_K < x->n)
            __builtin_prefetch(row + 2 * TILE_K * x->stride);
        t[i] = r + i < x->n ? (__m512i)_mm512_maskz_loadu_ps(m, row) : _mm512_setzero_si512();
    }
    transpose_16x16(t);
}

static inline __attribute__((always_inline)) void lay_values(uint8_t *vt, const struct attn_rows *x,
                                                             int d, int planes)
{
    size_t plane = (size_t)KV_CHUNK * 2;
    for (int r = 0; r < positions_of(x->n); r += TILE_K)
        for (int c = 0; c < d; c += TILE_ROWS) {
            __m512i a[16], b[16];
            uint8_t *to = vt + (size_t)(c * planes) * plane + (size_t)r * 2;
            if (c < x->d) {
                load_columns(a, x, r, c);
                load_columns(b, x, r + TILE_ROWS, c);
            } else {
                memset(a, 0, sizeof a);
                memset(b, 0, sizeof b);
            }
            for (int i = 0; i < TILE_ROWS; i++, to += (size_t)planes * plane)
                put_32(to, plane, (__m512)a[i], (__m512)b[i], planes);
        }
}

void attn_lay_bf16_amx(void *k, void *vt, const struct attn_rows *x, int d)
{
    lay_keys(k, x, d, 1);
    lay_values(vt, x, d, 1);
}

void attn_lay_pair_amx(void *k, void *vt, const struct attn_rows *x, int d)
{
    lay_keys(k, x, d, 2);
    lay_values(vt, x, d, 2);
}
