/* Products with weights in the order of repacked_int8.h by VNNI dot products, and the repacking to
 * that order. */
#include "kernels/x86/repacked_int8.h"

enum {
    STREAMS = 2,     /* far-apart groups of outputs that are processed together, */
    STREAM_ROWS = 6, /* with up to so many rows */
    TILE = 8,        /* rows whose sums are in registers */
    AHEAD = 16,      /* prefetch distance in blocks */
    PANEL = 64       /* outputs processed at a time with more rows */
};

/* ---- repacking ---- */

size_t repacked_size(const struct matrix *w)
{
    size_t groups = ((size_t)w->out + GROUP - 1) / GROUP;
    return (size_t)repacked_planes(w->dtype) * repacked_plane(w) +
           groups * blocks_of(w->in) * LINE / 2;
}

/* Write block i of output o + j, j < GROUP, to lines[k] and scales. */
static void take_block(uint8_t *const lines[8], uint16_t *scales, const struct matrix *w, int o,
                       int j, size_t i)
{
    const enum dtype t = w->dtype;
    const int dwords = t == DTYPE_Q8_0 ? 8 : 4, at = t == DTYPE_Q5_0 ? 6 : 2;
    const uint8_t *b =
        (const uint8_t *)w->data + (size_t)(o + j) * w->row_size + i * (size_t)block_size(t);
    memcpy(&scales[j], b, sizeof *scales);
    for (int k = 0; k < dwords; k++)
        memcpy(lines[k] + (size_t)j * 4, b + at + 4 * k, 4);
    for (int k = 0; k < 8 && t == DTYPE_Q5_0; k++) {
        uint64_t mask = load_le64(lines[4] + 8 * k);
        mask |= (uint64_t)(load_le32(b + 2) >> 4 * k & 15) << 4 * j;
        memcpy(lines[4] + 8 * k, &mask, sizeof mask);
    }
}

void repack(void *to, const struct matrix *w, int o0, int o1)
{
    const size_t blocks = blocks_of(w->in), plane = repacked_plane(w);
    const int planes = repacked_planes(w->dtype);
    uint8_t *repacked = to, *scales = repacked + (size_t)planes * plane;
    for (int o = o0; o < o1; o += GROUP)
        for (size_t i = 0; i < blocks; i++) {
            size_t at = ((size_t)(o / GROUP) * blocks + i) * LINE;
            uint8_t *lines[8];
            for (int k = 0; k < planes; k++) {
                lines[k] = repacked + (size_t)k * plane + at;
                memset(lines[k], 0, LINE);
            }
            memset(scales + at / 2, 0, LINE / 2);
            for (int j = 0; j < min_int(GROUP, w->out - o); j++)
                take_block(lines, (uint16_t *)(void *)(scales + at / 2), w, o, j, i);
        }
}

/* ---- dot products ---- */

/* Multiply block i of 16 outputs by one row, in two chains: the first and the last values. */
INLINE __m512 repacked_sum(const __m512i q[8], const struct x_row *x, size_t i)
{
    const uint8_t *v = x->q + i * BLOCK;
    __m512i a = _mm512_set1_epi32(x->start[i]), b = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        a = _mm512_dpbusd_epi32(a, q[k], _mm512_set1_epi32((int32_t)load_le32(v + 4 * k)));
        b = _mm512_dpbusd_epi32(b, q[4 + k], _mm512_set1_epi32((int32_t)load_le32(v + 16 + 4 * k)));
    }
    return _mm512_cvtepi32_ps(_mm512_add_epi32(a, b));
}

/* Compute outputs o, ... of `streams` groups, which are `apart` outputs from each other, for rows r
 * .. r + rows. */
INLINE void repacked_tile(float *y, size_t y_stride, const uint8_t *xp, int r,
                          const struct matrix *w, int o, int apart, int o1, int streams, int rows,
                          enum dtype t)
{
    const size_t blocks = blocks_of(w->in);
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    struct repacked_group group[STREAMS];
    struct x_row x[TILE];
    __m512 acc[STREAMS * STREAM_ROWS];
#pragma GCC unroll 8
    for (int j = 0; j < rows; j++)
        x[j] = row_at(xp, r + j, w->in, start_of(t));
#pragma GCC unroll 4
    for (int s = 0; s < streams; s++)
        group[s] = repacked_group(w, o + s * apart, t);
#pragma GCC unroll 16
    for (int j = 0; j < streams * rows; j++)
        acc[j] = _mm512_setzero_ps();
    for (size_t i = 0; i < blocks; i++)
#pragma GCC unroll 4
        for (int s = 0; s < streams; s++) {
            __m512 dw = repacked_scales(&group[s], i);
            __m512i q[8];
            repacked_fetch(&group[s], i + AHEAD, t);
            repacked_load(q, &group[s], i, t);
            for (int k = 0; k < 8 && t == DTYPE_Q8_0; k++)
                q[k] = _mm512_xor_si512(q[k], flip);
#pragma GCC unroll 8
            for (int j = 0; j < rows; j++) {
                __m512 sum =
                    _mm512_mul_ps(repacked_sum(q, &x[j], i), _mm512_set1_ps(x[j].scale[i]));
                acc[s * rows + j] = _mm512_fmadd_ps(sum, dw, acc[s * rows + j]);
            }
        }
#pragma GCC unroll 4
    for (int s = 0; s < streams; s++)
#pragma GCC unroll 8
        for (int j = 0; j < rows; j++)
            store_row(y + (size_t)(r + j) * y_stride, w, o + s * apart, o1, acc[s * rows + j]);
}

/* Compute all outputs for rows r .. r + rows. */
INLINE void repacked_rows(float *y, size_t y_stride, const uint8_t *xp, int r,
                          const struct matrix *w, int o0, int o1, int rows, enum dtype t)
{
    int apart = rows <= STREAM_ROWS ? (o1 - o0) / (STREAMS * GROUP) * GROUP : 0;
    for (int o = o0; o < o0 + apart; o += GROUP)
        repacked_tile(y, y_stride, xp, r, w, o, apart, o1, STREAMS, rows, t);
    for (int o = o0 + STREAMS * apart; o < o1; o += GROUP)
        repacked_tile(y, y_stride, xp, r, w, o, 0, o1, 1, rows, t);
}

INLINE void repacked_few(float *y, size_t y_stride, const uint8_t *xp, int r, int n,
                         const struct matrix *w, int o0, int o1, enum dtype t)
{
    switch (n) {
    case 1:
        repacked_rows(y, y_stride, xp, r, w, o0, o1, 1, t);
        break;
    case 2:
        repacked_rows(y, y_stride, xp, r, w, o0, o1, 2, t);
        break;
    case 3:
        repacked_rows(y, y_stride, xp, r, w, o0, o1, 3, t);
        break;
    case 4:
        repacked_rows(y, y_stride, xp, r, w, o0, o1, 4, t);
        break;
    case 5:
        repacked_rows(y, y_stride, xp, r, w, o0, o1, 5, t);
        break;
    case 6:
        repacked_rows(y, y_stride, xp, r, w, o0, o1, 6, t);
        break;
    case 7:
        repacked_rows(y, y_stride, xp, r, w, o0, o1, 7, t);
        break;
    default:
        repacked_rows(y, y_stride, xp, r, w, o0, o1, TILE, t);
        break;
    }
}

/* With more rows, PANEL outputs are processed at a time, whose weights stay in the cache. */
INLINE void dots_of(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                    int o0, int o1, enum dtype t)
{
    if (n <= TILE) {
        repacked_few(y, y_stride, xp, 0, n, w, o0, o1, t);
        return;
    }
    for (int o = o0; o < o1; o += PANEL)
        for (int r = 0; r < n; r += TILE)
            repacked_few(y, y_stride, xp, r, min_int(TILE, n - r), w, o, min_int(o + PANEL, o1), t);
}

void repacked_dots(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                   int o1)
{
    switch (w->dtype) {
    case DTYPE_Q8_0:
        dots_of(y, y_stride, xp, n, w, o0, o1, DTYPE_Q8_0);
        break;
    case DTYPE_Q4_0:
        dots_of(y, y_stride, xp, n, w, o0, o1, DTYPE_Q4_0);
        break;
    case DTYPE_IQ4_NL:
        dots_of(y, y_stride, xp, n, w, o0, o1, DTYPE_IQ4_NL);
        break;
    default:
        dots_of(y, y_stride, xp, n, w, o0, o1, DTYPE_Q5_0);
        break;
    }
}

/* ---- the kernel ---- */

static size_t no_scratch(int in)
{
    (void)in;
    return 0;
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    (void)n;
    pack_rows(xp, x, stride, in, r0, r1);
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    (void)scratch;
    repacked_dots(y, y_stride, xp, n, w, o0, o1);
}

const struct matmul_kernel matmul_repacked_vnni = { .name = "repacked-vnni",
                                                    .in_multiple = BLOCK,
                                                    .row_step = 4,
                                                    .out_step = GROUP,
                                                    .packed_size = packed_size,
                                                    .scratch_size = no_scratch,
                                                    .pack = pack,
                                                    .run = run,
                                                    .repacked_size = repacked_size,
                                                    .repack = repack };
