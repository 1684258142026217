/* Products with F32, F16 and BF16 weights in f32 arithmetic: a template, compiled once per
 * instruction set.
 *
 * Each (row, output) has one accumulator of VEC lanes; lane j sums the elements j, j + VEC, ... in
 * ascending order by fused multiply-adds, and vec_sum4 adds the lanes by a fixed tree. That is the
 * whole sequence for any blocking, so the blocks below can be chosen for the caches: registers hold
 * TILE_OUTS x TILE_ROWS accumulators. With many rows, `in` is cut into pieces of PIECE elements so
 * that a tile of x stays in the L1 cache; the accumulators are kept in scratch memory between
 * pieces, and 16-bit weights are widened once per piece. */
#ifndef PV_KERNELS_X86_MATMUL_FLOAT_H
#define PV_KERNELS_X86_MATMUL_FLOAT_H

#include "kernels/kernels.h"
#include "kernels/x86/vec_x86.h"

/* Rows of a tile: with TILE_OUTS = 4 the accumulators take 24 of 32 registers, or 12 of 16. */
#ifdef __AVX512F__
#define TILE_ROWS 6
#else
#define TILE_ROWS 3
#endif

enum {
    TILE_OUTS = 4,
    PIECE = 1024,                /* elements of `in` per piece */
    GROUP = 32,                  /* outputs of a widened panel */
    BLOCK_ROWS = 16 * TILE_ROWS, /* rows that share one widening */
    SOME_ROWS = 4 * TILE_ROWS,
    PANEL_STRIDE = PIECE + 16,           /* floats; padded to spread rows over cache sets */
    STATE = TILE_OUTS * TILE_ROWS * VEC, /* floats of a tile's accumulators */
};

/* What a tile reads and writes. */
struct tile {
    const uint8_t *w; /* first weight row, at the first element of the piece */
    size_t w_stride;  /* bytes */
    const float *x;   /* the same for x, zero after `in` up to a multiple of VEC */
    size_t x_stride;  /* floats */
    int len;          /* elements of the piece */
    float *state;     /* accumulators kept between pieces */
    bool first, last; /* first, last piece of the row */
    float *y;
    size_t y_stride;
    const float *bias; /* of the first output, or NULL */
    int apart;         /* distance between the outputs of the tile */
    size_t ahead;      /* bytes to the weight row that comes next in its place */
};

static size_t float_stride(int in)
{
    return ((size_t)in + 15) / 16 * 16 + 16;
}

static size_t float_packed_size(int n, int in)
{
    return sizeof(float) * (size_t)n * float_stride(in);
}

static size_t float_scratch_size(int in)
{
    (void)in;
    return sizeof(float) * ((size_t)GROUP * PANEL_STRIDE +
                            (size_t)(GROUP / TILE_OUTS) * (BLOCK_ROWS / TILE_ROWS) * STATE);
}

static void float_pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    size_t packed = float_stride(in);
    (void)n;
    for (int r = r0; r < r1; r++) {
        float *row = (float *)xp + packed * (size_t)r;
        memcpy(row, x + stride * (size_t)r, sizeof *row * (size_t)in);
        memset(row + in, 0, sizeof *row * (packed - (size_t)in));
    }
}

INLINE vec weight_load(const uint8_t *p, int i, enum dtype t)
{
    if (t == DTYPE_F16)
        return vec_load_f16((const uint16_t *)(const void *)p + i);
    if (t == DTYPE_BF16)
        return vec_load_bf16((const uint16_t *)(const void *)p + i);
    return vec_load((const float *)(const void *)p + i);
}

INLINE vec weight_load_part(const uint8_t *p, int i, int n, enum dtype t)
{
    if (t == DTYPE_F16)
        return vec_load_f16_part((const uint16_t *)(const void *)p + i, n);
    if (t == DTYPE_BF16)
        return vec_load_bf16_part((const uint16_t *)(const void *)p + i, n);
    return vec_load_part((const float *)(const void *)p + i, n);
}

INLINE void tile_finish(const struct tile *t, vec (*acc)[TILE_ROWS], int outs, int rows)
{
    __m128 bias = _mm_setzero_ps();
    float part[TILE_OUTS] = { 0 };

    for (int o = 0; t->bias && o < outs; o++)
        part[o] = t->bias[o * t->apart];
    bias = _mm_loadu_ps(part);
    for (int r = 0; r < rows; r++) {
        vec zero = vec_zero();
        __m128 sum = vec_sum4(acc[0][r], outs > 1 ? acc[1][r] : zero, outs > 2 ? acc[2][r] : zero,
                              outs > 3 ? acc[3][r] : zero);
        float *y = t->y + t->y_stride * (size_t)r;
        sum = t->bias ? _mm_add_ps(sum, bias) : sum;
        if (outs == TILE_OUTS && t->apart == 1) {
            _mm_storeu_ps(y, sum);
        } else {
            _mm_storeu_ps(part, sum);
            for (int o = 0; o < outs; o++)
                y[o * t->apart] = part[o];
        }
    }
}

/* Prefetch the same elements of the rows of the next tile of outputs to L2: the hardware prefetches
 * only long rows, and not during long computations. */
INLINE void weight_fetch(const uint8_t *row, size_t ahead, int i, enum dtype dtype)
{
    size_t at = (size_t)i * (dtype == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
    _mm_prefetch((const char *)row + ahead + at, _MM_HINT_T1);
}

/* `outs`, `rows`, `dtype` and `fetch` are compile-time constants, so that the loops unroll and
 * `acc` is kept in registers. */
INLINE void tile_run(const struct tile *t, int outs, int rows, enum dtype dtype, bool fetch)
{
    vec acc[TILE_OUTS][TILE_ROWS];
    int i = 0, rest = t->len % VEC;

    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            acc[o][r] = t->first ? vec_zero() : vec_load(t->state + (o * TILE_ROWS + r) * VEC);
    for (; i < t->len - rest; i += VEC) {
        vec x[TILE_ROWS];
        for (int r = 0; r < rows; r++)
            x[r] = vec_load(t->x + t->x_stride * (size_t)r + i);
        for (int o = 0; o < outs; o++) {
            vec w = weight_load(t->w + t->w_stride * (size_t)o, i, dtype);
            if (fetch)
                weight_fetch(t->w + t->w_stride * (size_t)o, t->ahead, i, dtype);
            for (int r = 0; r < rows; r++)
                acc[o][r] = vec_fma(w, x[r], acc[o][r]);
        }
    }
    for (int o = 0; rest && o < outs; o++) {
        vec w = weight_load_part(t->w + t->w_stride * (size_t)o, i, rest, dtype);
        for (int r = 0; r < rows; r++)
            acc[o][r] = vec_fma(w, vec_load(t->x + t->x_stride * (size_t)r + i), acc[o][r]);
    }
    if (t->last) {
        tile_finish(t, acc, outs, rows);
        return;
    }
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            vec_store(t->state + (o * TILE_ROWS + r) * VEC, acc[o][r]);
}

/* Four outputs or one, any number of rows up to TILE_ROWS. */
INLINE void tile_switch(const struct tile *t, int outs, int rows, enum dtype dtype, bool fetch)
{
    bool four = outs == TILE_OUTS;
    switch (rows) {
    case 1:
        if (four)
            tile_run(t, TILE_OUTS, 1, dtype, fetch);
        else
            tile_run(t, 1, 1, dtype, fetch);
        break;
    case 2:
        if (four)
            tile_run(t, TILE_OUTS, 2, dtype, fetch);
        else
            tile_run(t, 1, 2, dtype, fetch);
        break;
    case 3:
        if (four)
            tile_run(t, TILE_OUTS, 3, dtype, fetch);
        else
            tile_run(t, 1, 3, dtype, fetch);
        break;
#if TILE_ROWS > 3
    case 4:
        if (four)
            tile_run(t, TILE_OUTS, 4, dtype, fetch);
        else
            tile_run(t, 1, 4, dtype, fetch);
        break;
    case 5:
        if (four)
            tile_run(t, TILE_OUTS, 5, dtype, fetch);
        else
            tile_run(t, 1, 5, dtype, fetch);
        break;
    default:
        if (four)
            tile_run(t, TILE_OUTS, 6, dtype, fetch);
        else
            tile_run(t, 1, 6, dtype, fetch);
        break;
#endif
    }
}

static void tile_panel(const struct tile *t, int outs, int rows)
{
    tile_switch(t, outs, rows, DTYPE_F32, false);
}

static void tile_f32(const struct tile *t, int outs, int rows)
{
    tile_switch(t, outs, rows, DTYPE_F32, true);
}

static void tile_f16(const struct tile *t, int outs, int rows)
{
    tile_switch(t, outs, rows, DTYPE_F16, true);
}

static void tile_bf16(const struct tile *t, int outs, int rows)
{
    tile_switch(t, outs, rows, DTYPE_BF16, true);
}

static void tile_any(const struct tile *t, int outs, int rows, enum dtype dtype)
{
    if (dtype == DTYPE_F16)
        tile_f16(t, outs, rows);
    else if (dtype == DTYPE_BF16)
        tile_bf16(t, outs, rows);
    else
        tile_f32(t, outs, rows);
}

/* Rows of the next tile if `left` rows are left; the last two tiles are made equal. */
static int tile_rows(int left)
{
    if (left >= 2 * TILE_ROWS || left <= TILE_ROWS)
        return left < TILE_ROWS ? left : TILE_ROWS;
    return (left + 1) / 2;
}

static const uint8_t *weight_row(const struct matrix *w, int o)
{
    return (const uint8_t *)w->data + w->row_size * (size_t)o;
}

/* Compute outputs o, o + apart, ... of all rows. */
static void few_outputs(struct tile *t, float *y, const float *x, int n, const struct matrix *w,
                        int o, int apart, int outs)
{
    t->apart = apart;
    t->w_stride = w->row_size * (size_t)apart;
    t->ahead = w->row_size * (size_t)(apart > 1 ? 1 : outs);
    t->w = weight_row(w, o);
    t->bias = w->bias ? w->bias + o : NULL;
    for (int r = 0, rows; r < n; r += rows) {
        rows = tile_rows(n - r);
        t->x = x + t->x_stride * (size_t)r;
        t->y = y + t->y_stride * (size_t)r + o;
        tile_any(t, outs, rows, w->dtype);
    }
}

/* Few rows: the weights are read once from memory, in TILE_OUTS long streams. */
static void few_run(float *y, size_t y_stride, const float *x, int n, const struct matrix *w,
                    int o0, int o1)
{
    int apart = (o1 - o0) / TILE_OUTS;
    struct tile t = { .x_stride = float_stride(w->in),
                      .len = w->in,
                      .first = true,
                      .last = true,
                      .y_stride = y_stride };

    for (int i = 0; i < apart; i++)
        few_outputs(&t, y, x, n, w, o0 + i, apart, TILE_OUTS);
    for (int o = o0 + apart * TILE_OUTS; o < o1; o++)
        few_outputs(&t, y, x, n, w, o, 1, 1);
}

/* Convert elements [i0, i0 + len) of a weight row to f32, with zeros up to a multiple of VEC. */
INLINE void widen_row(float *dst, const uint8_t *row, size_t row_size, int i0, int len,
                      enum dtype dtype)
{
    int i = 0, rest = len % VEC;
    for (; i < len - rest; i += VEC) {
        vec_store(dst + i, weight_load(row, i0 + i, dtype));
        weight_fetch(row, TILE_OUTS * row_size, i0 + i, dtype);
    }
    if (rest)
        vec_store(dst + i, weight_load_part(row, i0 + i, rest, dtype));
}

static void widen(float *panel, const struct matrix *w, int o, int outs, int i0, int len)
{
    for (int j = 0; j < outs; j++) {
        float *dst = panel + (size_t)PANEL_STRIDE * (size_t)j;
        if (w->dtype == DTYPE_F16)
            widen_row(dst, weight_row(w, o + j), w->row_size, i0, len, DTYPE_F16);
        else
            widen_row(dst, weight_row(w, o + j), w->row_size, i0, len, DTYPE_BF16);
    }
}

/* Compute rows [r0, r0 + n) of at most GROUP outputs, piece by piece. */
static void block_run(float *y, size_t y_stride, const float *x, int r0, int n,
                      const struct matrix *w, int o0, int o1, float *scratch)
{
    float *panel = scratch, *states = scratch + (size_t)GROUP * PANEL_STRIDE;
    struct tile t = { .x_stride = float_stride(w->in), .y_stride = y_stride, .apart = 1 };

    for (int i0 = 0; i0 < w->in; i0 += PIECE) {
        t.len = w->in - i0 < PIECE ? w->in - i0 : PIECE;
        t.first = i0 == 0;
        t.last = i0 + t.len == w->in;
        t.state = states;
        if (w->dtype != DTYPE_F32)
            widen(panel, w, o0, o1 - o0, i0, t.len);
        for (int r = r0, rows; r < r0 + n; r += rows) {
            rows = tile_rows(r0 + n - r);
            t.x = x + t.x_stride * (size_t)r + i0;
            for (int o = o0, outs; o < o1; o += outs) {
                outs = o1 - o < TILE_OUTS ? 1 : TILE_OUTS;
                if (w->dtype == DTYPE_F32) {
                    t.w = weight_row(w, o) + sizeof(float) * (size_t)i0;
                    t.w_stride = w->row_size;
                } else {
                    t.w = (const uint8_t *)(panel + (size_t)PANEL_STRIDE * (size_t)(o - o0));
                    t.w_stride = sizeof(float) * PANEL_STRIDE;
                }
                t.y = y + y_stride * (size_t)r + o;
                t.bias = w->bias ? w->bias + o : NULL;
                tile_panel(&t, outs, rows);
                t.state += STATE / TILE_OUTS / TILE_ROWS * (size_t)(outs * TILE_ROWS);
            }
        }
    }
}

static void float_run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                      int o0, int o1, void *scratch)
{
    if (n <= (w->dtype == DTYPE_F32 ? 2 * TILE_ROWS : TILE_ROWS)) {
        few_run(y, y_stride, xp, n, w, o0, o1);
        return;
    }
    /* With some rows, the panel has one tile of outputs and stays in L1. */
    int group = n <= SOME_ROWS ? TILE_OUTS : GROUP;
    for (int o = o0; o < o1; o += group) {
        for (int r = 0; r < n; r += BLOCK_ROWS)
            block_run(y, y_stride, xp, r, n - r < BLOCK_ROWS ? n - r : BLOCK_ROWS, w, o,
                      o1 - o < group ? o1 : o + group, scratch);
    }
}

#endif
