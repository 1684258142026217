/* Matrix products with Q8_0, Q4_0, Q5_0 and IQ4_NL weights by int8 AMX tiles (int8_avx512.h has the
 * definition). One tile product gives the exact sums of a block for 16 outputs and up to 16 rows;
 * these are scaled and added by vectors whose lanes are rows. One or two rows use dot products
 * instead.
 *
 * Tile and vector instructions slow each other down if they overlap, so they alternate: the sums of
 * PHASE blocks, then their scaling. With up to four or eight rows, a tile is four or eight lanes
 * wide, and a vector holds the sums of four or two outputs. Up to 32 rows share one reading of the
 * weights. */
#include "kernels/x86/int8_avx512.h"
#include "kernels/x86/tile_int8.h"

enum {
    DOT_ROWS = 2,           /* up to so many rows, dot products are faster */
    SWEEP_ROWS = 2 * GROUP, /* rows that share one reading of the weights */
    UNIT = 4,               /* rows packed together */
    PANEL = 64,             /* outputs whose weights stay in cache with more rows */
    LAG = 2,                /* tile products in flight while sums are stored */
    PHASE = 8,              /* blocks per phase, limited by L1 */
    HELD = 16,              /* groups of outputs whose results are stored together */
    FEW_STREAMS = 8,        /* least length of streams for that */
    X_TILE = BLOCK * GROUP  /* bytes per block of 16 rows of x */
};

/* ---- activations ---- */

/* One or two rows are packed as rows. Groups of 16 rows: [in / 32] tiles of [8][16][4] int8, then
 * [in / 32][16] scales, repeated where a tile is narrower than a vector. */

static size_t group_size(int in)
{
    return blocks_of(in) * (X_TILE + GROUP * sizeof(float));
}

static size_t tiles_size(int n, int in)
{
    size_t groups = ((size_t)n + GROUP - 1) / GROUP * group_size(in);
    return n <= DOT_ROWS ? packed_size(n, in) : groups;
}

/* Width of a tile for n rows of x. */
static int lanes_for(int n)
{
    return n <= 4 ? 4 : n <= 8 ? 8 : GROUP;
}

/* Store a block of four rows in the places of rows `at`, ... of a tile: transposes four by eight
 * dwords. */
static inline void store_unit(uint8_t *tile, const __m256i q[UNIT])
{
    __m256i a = _mm256_unpacklo_epi32(q[0], q[1]), b = _mm256_unpacklo_epi32(q[2], q[3]);
    __m256i c = _mm256_unpackhi_epi32(q[0], q[1]), d = _mm256_unpackhi_epi32(q[2], q[3]);
    __m256i t[4] = { _mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b),
                     _mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d) };
    for (int i = 0; i < 4; i++) {
        _mm_store_si128((__m128i *)(tile + i * 64), _mm256_castsi256_si128(t[i]));
        _mm_store_si128((__m128i *)(tile + (4 + i) * 64), _mm256_extracti128_si256(t[i], 1));
    }
}

/* Pack rows at .. at + UNIT of a group; rows after the n existing ones are zero. */
static void pack_unit(uint8_t *group, int at, const float *x, size_t stride, int n, int in,
                      int lanes)
{
    size_t blocks = blocks_of(in);
    float *scale = (float *)(group + blocks * X_TILE);
    for (size_t i = 0; i < blocks; i++) {
        __m256i q[UNIT];
        float d[UNIT];
        for (int j = 0; j < UNIT; j++) {
            q[j] = _mm256_setzero_si256();
            d[j] = j < n ? quantise(&q[j], x + (size_t)j * stride + i * BLOCK) : 0;
        }
        store_unit(group + i * X_TILE + at * 4, q);
        for (int l = at; l < GROUP; l += lanes)
            _mm_store_ps(scale + i * GROUP + l, _mm_loadu_ps(d));
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    int end = r1 < n ? r1 : (n + GROUP - 1) / GROUP * GROUP;
    if (n <= DOT_ROWS) {
        pack_rows(xp, x, stride, in, r0, r1);
        return;
    }
    for (int r = r0; r < end; r += UNIT)
        if (r % GROUP < lanes_for(n))
            pack_unit((uint8_t *)xp + (size_t)(r / GROUP) * group_size(in), r % GROUP,
                      x + (size_t)r * stride, stride, n - r, in, lanes_for(n));
}

INLINE int zero_of(enum dtype t)
{
    return t == DTYPE_Q4_0 ? 8 : t == DTYPE_Q5_0 ? 16 : 128;
}

/* ---- tiles: lanes are rows ---- */

/* 16 outputs ready for products: int8 rows and their scales. */
struct group {
    const uint8_t *q; /* first block of the first row */
    size_t stride;    /* bytes from row to row */
    size_t step;      /* bytes from block to block */
    float *scale;     /* [blocks][16] */
};

/* Scratch memory of a thread. */
struct many_mem {
    int32_t *sums;  /* [PHASE][2][16 outputs][lanes] */
    float *results; /* [HELD][2][16 outputs][lanes] */
    uint8_t *group; /* groups of PANEL outputs, panel_group_size each */
};

enum { SUMS_BYTES = PHASE * 2 * TILE_BYTES, RESULTS_BYTES = HELD * 2 * TILE_BYTES };

static size_t panel_group_size(int in)
{
    return blocks_of(in) * (BLOCK * GROUP + GROUP * sizeof(float));
}

static size_t scratch_size(int in)
{
    return SUMS_BYTES + RESULTS_BYTES + PANEL / GROUP * panel_group_size(in);
}

static struct many_mem many_mem(void *scratch)
{
    uint8_t *p = scratch;
    return (struct many_mem){ scratch, (float *)(p + SUMS_BYTES), p + SUMS_BYTES + RESULTS_BYTES };
}

/* Prepare outputs o, o + apart, ... Tiles of Q8_0 are loaded in place; other types, and the last
 * outputs of a matrix, are unpacked to int8 first. */
INLINE void prepare(struct group *g, uint8_t *mem, const struct matrix *w, int o, int apart,
                    enum dtype t)
{
    size_t blocks = blocks_of(w->in), size = (size_t)block_size(t);
    const uint8_t *base = (const uint8_t *)w->data + (size_t)o * w->row_size;
    float *scale = (float *)(mem + blocks * BLOCK * GROUP);
    int32_t off[GROUP];
    if (t == DTYPE_Q8_0 && o + 15 * apart < w->out) {
        *g = (struct group){ base + 2, (size_t)apart * w->row_size, size, scale };
        return;
    }
    _mm512_storeu_si512(off, row_offsets(w, o, apart));
    for (int r = 0; r < GROUP; r++)
        for (size_t i = 0; i < blocks; i++)
            _mm256_store_si256((__m256i *)(mem + i * BLOCK * GROUP + (size_t)r * BLOCK),
                               _mm256_sub_epi8(load_quants(base + off[r] + i * size, t),
                                               _mm256_set1_epi8((char)zero_of(t))));
    tiles_written();
    *g = (struct group){ mem, BLOCK, BLOCK * GROUP, scale };
}

/* Convert the scales of blocks [i, end) of the same outputs. */
INLINE void prepare_scales(const struct group *g, const struct matrix *w, int o, int apart,
                           size_t i, size_t end, enum dtype t)
{
    const uint8_t *base = (const uint8_t *)w->data + (size_t)o * w->row_size;
    __m512i at = row_offsets(w, o, apart);
    for (; i < end; i++)
        _mm512_store_ps(g->scale + i * GROUP, load_scales(base + i * (size_t)block_size(t), at));
}

/* Tiles 0 to 3 hold sums, 4 and 5 weights, 6 and 7 rows. */
static void config(int lanes)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = (uint16_t)(i == 4 || i == 5 ? BLOCK : lanes * 4);
        s.rows[i] = i >= 6 ? BLOCK / 4 : GROUP;
    }
    tile_load_shape(&s);
}

/* Compute the integer sums of `count` blocks; LAG of them are computed while an earlier one is
 * stored. */
static void block_sums(int32_t *c, const uint8_t *a, size_t stride, size_t step, const uint8_t *b,
                       int count, int lanes)
{
    for (int i = 0; i < count + LAG; i++, a += step, b += X_TILE) {
        if (i < count)
            tile_product(i % 4, a, stride, b, 64);
        if (i >= LAG)
            tile_put((i - LAG) % 4, c + (i - LAG) * 16 * lanes, (size_t)lanes * 4);
    }
}

/* The same for two groups of rows, the second `b2` bytes after the first. */
static void block_sums_2(int32_t *c, const uint8_t *a, size_t stride, size_t step, const uint8_t *b,
                         size_t b2, int count)
{
    for (int i = 0; i <= count; i++, a += step, b += X_TILE) {
        if (i < count) {
            _tile_loadd(6, b, 64);
            _tile_loadd(7, b + b2, 64);
        }
        if (i < count && i % 2) {
            _tile_zero(2);
            _tile_zero(3);
            _tile_loadd(5, a, stride);
            _tile_dpbssd(2, 5, 6);
            _tile_dpbssd(3, 5, 7);
        } else if (i < count) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_loadd(4, a, stride);
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(1, 4, 7);
        }
        if (i > 0 && i % 2) {
            _tile_stored(0, c + (i - 1) * 512, 64);
            _tile_stored(1, c + (i - 1) * 512 + 256, 64);
        } else if (i > 0) {
            _tile_stored(2, c + (i - 1) * 512, 64);
            _tile_stored(3, c + (i - 1) * 512 + 256, 64);
        }
    }
}

/* Add the scaled sums of `count` blocks, which are `step` apart, to `lanes` vectors of
 * accumulators, each of 16 / lanes outputs by `lanes` rows. */
INLINE void add_blocks(float *acc_at, bool first, const int32_t *c, size_t step, const float *dx,
                       const float *dw, size_t count, int lanes)
{
    __m512 acc[GROUP];
    __m512i part = _mm512_srl_epi32(lanes_apart(1), _mm_cvtsi32_si128(lanes == 4 ? 2 : 3));
#pragma GCC unroll 16
    for (int k = 0; k < lanes; k++)
        acc[k] = first ? _mm512_setzero_ps() : _mm512_load_ps(acc_at + k * 16);
    for (size_t i = 0; i < count; i++, c += step, dx += GROUP, dw += GROUP) {
        __m512 x = _mm512_load_ps(dx), all = _mm512_load_ps(dw);
#pragma GCC unroll 16
        for (int k = 0; k < lanes; k++) {
            __m512i of = _mm512_add_epi32(part, _mm512_set1_epi32(k * 16 / lanes));
            __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c + k * 16)), x);
            __m512 d = lanes == GROUP ? _mm512_set1_ps(dw[k]) : _mm512_permutexvar_ps(of, all);
            acc[k] = _mm512_fmadd_ps(s, d, acc[k]);
        }
    }
#pragma GCC unroll 16
    for (int k = 0; k < lanes; k++)
        _mm512_store_ps(acc_at + k * 16, acc[k]);
}

/* A sweep: 16 outputs times the rows that share one reading of the weights. */
struct sweep {
    const struct matrix *w;
    const uint8_t *xp; /* first group of rows */
    int groups, lanes;
    int o, apart;
    bool scaled; /* the scales of the weights have been converted already */
};

static void sweep_sums(int32_t *c, const struct sweep *s, const struct group *g, size_t i,
                       int count)
{
    const uint8_t *a = g->q + i * g->step, *b = s->xp + i * X_TILE;
    if (s->groups == 2)
        block_sums_2(c, a, g->stride, g->step, b, group_size(s->w->in), count);
    else
        block_sums(c, a, g->stride, g->step, b, count, s->lanes);
}

/* Store results in out[groups][16 outputs][lanes]. */
INLINE void sweep_group(float *out, int32_t *sums, const struct sweep *s, const struct group *g,
                        enum dtype t)
{
    size_t blocks = blocks_of(s->w->in);
    size_t tile = (size_t)(GROUP * s->lanes), step = tile * (size_t)s->groups;
    for (size_t i = 0; i < blocks; i += PHASE) {
        size_t count = blocks - i < PHASE ? blocks - i : PHASE;
        sweep_sums(sums, s, g, i, (int)count);
        if (!s->scaled)
            prepare_scales(g, s->w, s->o, s->apart, i, i + count, t);
        for (int r = 0; r < s->groups; r++) {
            const uint8_t *xp = s->xp + (size_t)r * group_size(s->w->in) + blocks * X_TILE;
            const float *dx = (const float *)xp + i * GROUP, *dw = g->scale + i * GROUP;
            const int32_t *c = sums + (size_t)r * tile;
            float *acc = out + (size_t)r * tile;
            if (s->lanes == 4)
                add_blocks(acc, i == 0, c, step, dx, dw, count, 4);
            else if (s->lanes == 8)
                add_blocks(acc, i == 0, c, step, dx, dw, count, 8);
            else
                add_blocks(acc, i == 0, c, step, dx, dw, count, GROUP);
        }
    }
}

/* ---- results ---- */

/* Where the results of a sweep go: y points to its first row. */
struct sweep_rows {
    float *y;
    size_t stride;
    int n;
};

/* Store the results of 16 neighbouring outputs from o on, some of which may be after o1. */
static void store_near(const struct sweep_rows *to, const struct sweep *s, const float *out, int o1)
{
    for (int r = 0; r < to->n; r += GROUP, out += GROUP * s->lanes) {
        struct tile_place p = { .y = to->y + (size_t)r * to->stride + s->o,
                                .stride = to->stride,
                                .bias = s->w->bias ? s->w->bias + s->o : NULL,
                                .apart = 1,
                                .n_out = min_int(GROUP, o1 - s->o),
                                .n_rows = min_int(GROUP, to->n - r) };
        if (s->lanes == GROUP)
            store_tile(&p, out);
        else
            for (int l = 0; l < p.n_rows; l++)
                store_tile_row(&p, l, _mm512_i32gather_ps(lanes_apart(s->lanes), out + l, 4));
    }
}

/* Store the results of `count` <= HELD groups, of outputs o, o + apart, ... and their neighbours:
 * the neighbours in each stream become a vector. */
INLINE void store_held(const struct sweep_rows *to, const struct sweep *s, const float *out, int o,
                       int count, int lanes)
{
    struct tile_place p = { .stride = to->stride, .apart = 1, .n_out = count };
    size_t held = (size_t)(s->groups * lanes) * 16;
    for (int r = 0; r < to->n; r += GROUP)
        for (int k = 0; k < lanes; k++, out += 16) {
            __m512i t[16];
            for (int i = 0; i < HELD; i++)
                t[i] = _mm512_load_si512(out + (size_t)i * held);
            transpose_16x16(t);
            for (int l = 0; l < 16; l++) {
                int at = o + (k * 16 + l) / lanes * s->apart;
                p.y = to->y + at;
                p.bias = s->w->bias ? s->w->bias + at : NULL;
                if (r + l % lanes < to->n)
                    store_tile_row(&p, r + l % lanes, (__m512)t[l]);
            }
        }
}

static void store_apart_held(const struct sweep_rows *to, const struct sweep *s, const float *out,
                             int o, int count)
{
    if (s->lanes == 4)
        store_held(to, s, out, o, count, 4);
    else if (s->lanes == 8)
        store_held(to, s, out, o, count, 8);
    else
        store_held(to, s, out, o, count, GROUP);
}

/* ---- all outputs ---- */

/* Up to SWEEP_ROWS rows: the weights are read once, as long streams. */
INLINE void run_sweep(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                      int o0, int o1, void *scratch, enum dtype t)
{
    struct many_mem m = many_mem(scratch);
    struct sweep_rows to = { y, y_stride, n };
    struct sweep s = { .w = w, .xp = xp, .groups = n > GROUP ? 2 : 1, .lanes = lanes_for(n) };
    size_t held = (size_t)(s.groups * s.lanes) * 16;
    struct group g;
    config(s.lanes);
    for (s.apart = rows_apart(w, o1 - o0); s.apart >= FEW_STREAMS;
         s.apart = rows_apart(w, o1 - o0)) {
        for (int i = 0; i < s.apart; i++) {
            s.o = o0 + i;
            prepare(&g, m.group, w, s.o, s.apart, t);
            sweep_group(m.results + (size_t)(i % HELD) * held, m.sums, &s, &g, t);
            if (i % HELD == HELD - 1 || i == s.apart - 1)
                store_apart_held(&to, &s, m.results, s.o - i % HELD, i % HELD + 1);
        }
        o0 += GROUP * s.apart;
    }
    s.apart = 1;
    for (s.o = o0; s.o < o1; s.o += GROUP) {
        prepare(&g, m.group, w, s.o, 1, t);
        sweep_group(m.results, m.sums, &s, &g, t);
        store_near(&to, &s, m.results, o1);
    }
    _tile_release();
}

/* More rows: the weights of a panel stay in the cache while all rows are multiplied by them. */
INLINE void run_many(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch, enum dtype t)
{
    struct many_mem m = many_mem(scratch);
    struct group g[PANEL / GROUP];
    config(GROUP);
    for (int o = o0; o < o1; o += PANEL) {
        int groups = (min_int(PANEL, o1 - o) + GROUP - 1) / GROUP;
        for (int i = 0; i < groups; i++)
            prepare(&g[i], m.group + (size_t)i * panel_group_size(w->in), w, o + i * GROUP, 1, t);
        for (int r = 0; r < n; r += SWEEP_ROWS)
            for (int i = 0; i < groups; i++) {
                struct sweep_rows to = { y + (size_t)r * y_stride, y_stride,
                                         min_int(SWEEP_ROWS, n - r) };
                struct sweep s = { .w = w,
                                   .xp = xp + (size_t)(r / GROUP) * group_size(w->in),
                                   .groups = to.n > GROUP ? 2 : 1,
                                   .lanes = GROUP,
                                   .o = o + i * GROUP,
                                   .apart = 1,
                                   .scaled = r > 0 };
                sweep_group(m.results, m.sums, &s, &g[i], t);
                store_near(&to, &s, m.results, o1);
            }
    }
    _tile_release();
}

/* ---- the kernels ---- */

INLINE void run_type(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch, enum dtype t)
{
    if (n <= DOT_ROWS)
        run_few(y, y_stride, xp, n, w, o0, o1, t);
    else if (n <= SWEEP_ROWS)
        run_sweep(y, y_stride, xp, n, w, o0, o1, scratch, t);
    else
        run_many(y, y_stride, xp, n, w, o0, o1, scratch, t);
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
        .name = "amx-int8", .in_multiple = BLOCK, .row_step = UNIT, .out_step = GROUP,             \
        .packed_size = tiles_size, .scratch_size = scratch_size, .pack = pack, .run = fn           \
    }

const struct matmul_kernel matmul_q8_0_amx = INT8_KERNEL(run_q8_0);
const struct matmul_kernel matmul_q4_0_amx = INT8_KERNEL(run_q4_0);
const struct matmul_kernel matmul_q5_0_amx = INT8_KERNEL(run_q5_0);
const struct matmul_kernel matmul_iq4_nl_amx = INT8_KERNEL(run_iq4_nl);
