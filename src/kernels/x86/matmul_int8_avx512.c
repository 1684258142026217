/* Matrix products with Q8_0, Q4_0, Q5_0 and IQ4_NL weights by VNNI dot products (int8_avx512.h has
 * the definition, and the product of few rows). For more rows, a block of 16 weight rows is
 * transposed to [4 values][16 outputs] once. Then a row needs 8 dot products for 16 outputs, and no
 * sums across lanes. */
#include "kernels/x86/repacked_int8.h"

enum {
    CHAINS = 4, /* rows whose dot products are interleaved */
    TILE = 16   /* rows whose accumulators are in registers */
};

/* ---- more rows ---- */

/* Bytes of 16 outputs transposed: [blocks][8][16 outputs][4 values] and [blocks][16] scales. */
static size_t turned_size(int in)
{
    return blocks_of(in) * (BLOCK * GROUP + GROUP * sizeof(float));
}

static size_t scratch_size(int in)
{
    return turned_size(in);
}

/* Transpose a group of 16 outputs: two blocks of 16 rows are one 16 x 16 transpose of dwords. */
INLINE void turn_group(uint8_t *turned, const struct matrix *w, int o, enum dtype t)
{
    const size_t blocks = blocks_of(w->in), size = (size_t)block_size(t);
    const uint8_t *p = (const uint8_t *)w->data + (size_t)o * w->row_size;
    const uint8_t *next = p + GROUP * w->row_size;
    float *scale = (float *)(turned + blocks * BLOCK * GROUP);
    __m512i at = row_offsets(w, o, 1);
    int32_t off[GROUP];
    _mm512_storeu_si512(off, at);
    for (size_t i = 0; i < blocks; i += 2) {
        int pair = i + 1 < blocks;
        __m512i r[GROUP];
        for (int j = 0; j < GROUP; j++) {
            const uint8_t *b = p + off[j] + i * size;
            __m256i second = pair ? load_quants(b + size, t) : _mm256_setzero_si256();
            r[j] = _mm512_inserti64x4(_mm512_castsi256_si512(load_quants(b, t)), second, 1);
        }
        transpose_16x16(r);
        for (int j = 0; j < 8 + 8 * pair; j++)
            _mm512_store_si512(turned + i * BLOCK * GROUP + (size_t)j * 64, r[j]);
        for (int b = 0; b <= pair; b++)
            _mm512_store_ps(scale + (i + (size_t)b) * GROUP,
                            load_scales(p + (i + (size_t)b) * size, at));
        fetch(next + i * GROUP * size, 2 * GROUP * size);
    }
}

/* Multiply block i of a transposed group by rows j .. j + n - 1 of x, which are `stride` bytes
 * apart. The chains of dependent dot products are interleaved, to hide their latency. */
INLINE void turned_block(__m512 *acc, const __m512i q[8], __m512 dw, const struct x_row *x,
                         size_t i, size_t j, size_t stride, int n)
{
    __m512i s[CHAINS];
#pragma GCC unroll 4
    for (int c = 0; c < n; c++) {
        const uint8_t *start = (const uint8_t *)x->start + (j + (size_t)c) * stride;
        s[c] = _mm512_set1_epi32(((const int32_t *)start)[i]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
#pragma GCC unroll 4
        for (int c = 0; c < n; c++) {
            const uint8_t *v = x->q + (j + (size_t)c) * stride + i * BLOCK;
            s[c] =
                _mm512_dpbusd_epi32(s[c], q[k], _mm512_set1_epi32((int32_t)load_le32(v + k * 4)));
        }
#pragma GCC unroll 4
    for (int c = 0; c < n; c++) {
        const uint8_t *dx = (const uint8_t *)x->scale + (j + (size_t)c) * stride;
        __m512 scale = _mm512_set1_ps(((const float *)dx)[i]);
        acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(s[c]), scale), dw, acc[c]);
    }
}

/* Multiply a transposed group by rows r .. r + rows - 1. */
INLINE void turned_tile(float *y, size_t y_stride, const uint8_t *xp, int r, const uint8_t *turned,
                        const struct matrix *w, int o, int o1, int rows, enum dtype t)
{
    const size_t blocks = blocks_of(w->in), stride = row_bytes(w->in);
    const struct x_row x = row_at(xp, r, w->in, start_of(t));
    const float *scale = (const float *)(turned + blocks * BLOCK * GROUP);
    __m512 acc[TILE];
#pragma GCC unroll 16
    for (int j = 0; j < rows; j++)
        acc[j] = _mm512_setzero_ps();
    for (size_t i = 0; i < blocks; i++, turned += BLOCK * GROUP) {
        __m512 dw = _mm512_load_ps(scale + i * GROUP);
        __m512i q[8];
        for (int k = 0; k < 8; k++)
            q[k] = _mm512_load_si512(turned + k * 64);
#pragma GCC unroll 4 /* keeps the accumulators in registers */
        for (int j = 0; j < rows; j += CHAINS)
            turned_block(acc + j, q, dw, &x, i, (size_t)j, stride, rows < CHAINS ? rows : CHAINS);
    }
#pragma GCC unroll 16
    for (int j = 0; j < rows; j++)
        store_row(y + (size_t)(r + j) * y_stride, w, o, o1, acc[j]);
}

INLINE void many_group(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                       int o, int o1, uint8_t *turned, enum dtype t)
{
    int r = 0;
    turn_group(turned, w, o, t);
    for (; r + TILE <= n; r += TILE)
        turned_tile(y, y_stride, xp, r, turned, w, o, o1, TILE, t);
    for (; r + 4 <= n; r += 4)
        turned_tile(y, y_stride, xp, r, turned, w, o, o1, 4, t);
    for (; r < n; r++)
        turned_tile(y, y_stride, xp, r, turned, w, o, o1, 1, t);
}

/* ---- the kernels ---- */

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    (void)n;
    pack_rows(xp, x, stride, in, r0, r1);
}

INLINE void run_type(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch, enum dtype t)
{
    if (n <= FEW_ROWS)
        run_few(y, y_stride, xp, n, w, o0, o1, t);
    else
        for (int o = o0; o < o1; o += GROUP)
            many_group(y, y_stride, xp, n, w, o, o1, scratch, t);
}

static void run_q8_0(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q8_0);
}

static void run_q4_0(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q4_0);
}

static void run_q5_0(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q5_0);
}

static void run_iq4_nl(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                       int o0, int o1, void *scratch)
{
    run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_IQ4_NL);
}

#define INT8_KERNEL(fn)                                                                            \
    {                                                                                              \
        .name = "vnni", .in_multiple = BLOCK, .row_step = 4, .out_step = GROUP,                    \
        .packed_size = packed_size, .scratch_size = scratch_size, .pack = pack, .run = fn          \
    }

static const struct matmul_kernel q8_0 = INT8_KERNEL(run_q8_0), q4_0 = INT8_KERNEL(run_q4_0),
                                  q5_0 = INT8_KERNEL(run_q5_0), iq4_nl = INT8_KERNEL(run_iq4_nl);

void kernels_init_vnni(struct kernels *k)
{
    k->matmul[DTYPE_Q8_0] = &q8_0;
    k->matmul[DTYPE_Q4_0] = &q4_0;
    k->matmul[DTYPE_Q5_0] = &q5_0;
    k->matmul_repacked[DTYPE_Q8_0] = k->matmul_repacked[DTYPE_Q4_0] =
        k->matmul_repacked[DTYPE_Q5_0] = k->matmul_repacked[DTYPE_IQ4_NL] = &matmul_repacked_vnni;
    k->matmul[DTYPE_IQ4_NL] = &iq4_nl;
}
