/* Products with weights in the order of repacked_int8.h by int8 AMX tiles: rows of x by 16 outputs.
 * One tile product gives the exact sums of a block for up to 16 rows; a vector then holds the sums
 * of the 16 outputs of one row. Few rows use dot products instead.
 *
 * Tile and vector instructions slow each other down if they overlap, so they alternate: the sums of
 * PHASE blocks, then their scaling, during which the weights of later blocks are prefetched. Up to
 * 32 rows share one reading of the weights, as two tiles of equal height. */
#include "kernels/x86/repacked_int8.h"
#include "kernels/x86/tile_int8.h"

enum {
    DOT_ROWS = 8, /* up to so many rows, dot products are faster */
    TILES = 2,    /* tiles of rows that share one reading of the weights */
    PANEL = 64,   /* outputs whose weights stay in cache with more rows */
    LAG = 2,      /* tile products in flight while sums are stored */
    PHASE = 8,    /* blocks per phase, limited by L1 */
    AHEAD = 16,   /* prefetch distance in blocks */
    QUANTS = 512  /* bytes of a block of 16 outputs in int8 */
};

/* ---- activations ---- */

/* Few rows are packed row by row. More rows are packed in tiles of `height` rows:
 * [blocks][height][32] int8, then [blocks][height] scales. */

static int tile_height(int n)
{
    return n <= TILE_ROWS ? n : n <= TILES * TILE_ROWS ? (n + 1) / 2 : TILE_ROWS;
}

static size_t tile_size(int height, int in)
{
    return (blocks_of(in) * (size_t)height * (BLOCK + sizeof(float)) + 63) / 64 * 64;
}

static size_t tiles_size(int n, int in)
{
    size_t height = (size_t)tile_height(n);
    if (n <= DOT_ROWS) /* includes n = 0, where height is 0 */
        return packed_size(n, in);
    return ((size_t)n + height - 1) / height * tile_size((int)height, in);
}

/* Pack row r; x NULL: zeros. */
static void pack_row(uint8_t *xp, const float *x, int r, int height, int in)
{
    size_t blocks = blocks_of(in);
    uint8_t *tile = xp + (size_t)(r / height) * tile_size(height, in);
    uint8_t *q = tile + (size_t)(r % height) * BLOCK;
    float *scale = (float *)(void *)(tile + blocks * (size_t)height * BLOCK) + r % height;
    for (size_t i = 0; i < blocks; i++) {
        __m256i v = _mm256_setzero_si256();
        scale[i * (size_t)height] = x ? quantise(&v, x + i * BLOCK) : 0;
        _mm256_store_si256((__m256i *)(void *)(q + i * (size_t)height * BLOCK), v);
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    int height = tile_height(n), end = (n + height - 1) / height * height;
    if (n <= DOT_ROWS) {
        pack_rows(xp, x, stride, in, r0, r1);
        return;
    }
    for (int r = r0; r < r1; r++)
        pack_row(xp, x + (size_t)r * stride, r, height, in);
    for (int r = n; r < end && r1 == n; r++)
        pack_row(xp, NULL, r, height, in);
}

/* ---- sums ---- */

/* Scratch memory of a thread. */
struct repacked_mem {
    int32_t *sums;   /* [PHASE][TILES][16 rows][16 outputs] */
    float *results;  /* [TILES][16 rows][16 outputs] */
    uint8_t *quants; /* [PHASE][512]: unpacked blocks of types other than Q8_0 */
};

static struct repacked_mem repacked_mem(void *scratch)
{
    uint8_t *p = scratch;
    return (struct repacked_mem){ scratch, (float *)(void *)(p + PHASE * TILES * TILE_BYTES),
                                  p + (PHASE + 1) * TILES * TILE_BYTES };
}

static size_t scratch_size(int in)
{
    (void)in;
    return (PHASE + 1) * TILES * TILE_BYTES + PHASE * QUANTS;
}

/* Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights. */
static void config(int height)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = i == 4 || i == 5 ? BLOCK : 64;
        s.rows[i] = (uint8_t)(i < 6 ? height : BLOCK / 4);
    }
    tile_load_shape(&s);
}

/* Compute the integer sums of `count` blocks, with `step` bytes between blocks of a; LAG of them
 * are computed while an earlier one is stored. */
static void block_sums(int32_t *c, const uint8_t *a, size_t step, const uint8_t *b, size_t plane,
                       int count)
{
    for (int i = 0; i < count + LAG; i++, a += step, b += LINE) {
        if (i < count)
            tile_product(i % 4, a, BLOCK, b, plane);
        if (i >= LAG)
            tile_put((i - LAG) % 4, c + (i - LAG) * TILES * 256, 64);
    }
}

/* The same for two tiles of rows, the second a2 bytes after the first. */
static void block_sums_2(int32_t *c, const uint8_t *a, size_t a2, size_t step, const uint8_t *b,
                         size_t plane, int count)
{
    for (int i = 0; i <= count; i++, a += step, b += LINE) {
        if (i < count) {
            _tile_loadd(4, a, BLOCK);
            _tile_loadd(5, a + a2, BLOCK);
        }
        if (i < count && i % 2) {
            _tile_zero(2);
            _tile_zero(3);
            _tile_loadd(7, b, plane);
            _tile_dpbssd(2, 4, 7);
            _tile_dpbssd(3, 5, 7);
        } else if (i < count) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_loadd(6, b, plane);
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(1, 5, 6);
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

/* ---- scaling ---- */

/* Inputs for scaling `count` blocks. */
struct scaling {
    const int32_t *sums; /* of the first block; blocks are TILES * 256 numbers apart */
    const float *dx;     /* [count][height] */
    const uint16_t *dw;  /* [count][16], f16 */
    int count;
    const uint8_t *next; /* line 0 of the weights to prefetch */
    size_t plane;        /* bytes to the next line */
    int planes;          /* lines per block */
};

INLINE void add_rows(float *acc_at, bool first, const struct scaling *g, int rows)
{
    __m512 acc[TILE_ROWS];
    const int32_t *c = g->sums;
    const float *dx = g->dx;
#pragma GCC unroll 16
    for (int k = 0; k < rows; k++)
        acc[k] = first ? _mm512_setzero_ps() : _mm512_load_ps(acc_at + k * 16);
    for (int i = 0; i < g->count; i++, c += TILES * 256, dx += rows) {
        __m512 dw = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(g->dw + i * GROUP)));
        for (int k = 0; k < g->planes; k++)
            _mm_prefetch((const char *)g->next + i * LINE + (size_t)k * g->plane, _MM_HINT_T0);
#pragma GCC unroll 16
        for (int k = 0; k < rows; k++) {
            __m512 s = _mm512_cvtepi32_ps(_mm512_load_si512(c + k * 16));
            acc[k] = _mm512_fmadd_ps(_mm512_mul_ps(s, _mm512_set1_ps(dx[k])), dw, acc[k]);
        }
    }
#pragma GCC unroll 16
    for (int k = 0; k < rows; k++)
        _mm512_store_ps(acc_at + k * 16, acc[k]);
}

#define ADD_ROWS(n)                                                                                \
    static void add_rows_##n(float *acc, bool first, const struct scaling *g)                      \
    {                                                                                              \
        add_rows(acc, first, g, n);                                                                \
    }
ADD_ROWS(9)
ADD_ROWS(10)
ADD_ROWS(11)
ADD_ROWS(12)
ADD_ROWS(13)
ADD_ROWS(14)
ADD_ROWS(15)
ADD_ROWS(16)

/* By the height of a tile. */
static void (*const add_rows_of[TILE_ROWS + 1])(float *acc, bool first, const struct scaling *g) = {
    [9] = add_rows_9,   [10] = add_rows_10, [11] = add_rows_11, [12] = add_rows_12,
    [13] = add_rows_13, [14] = add_rows_14, [15] = add_rows_15, [16] = add_rows_16,
};

/* ---- all outputs ---- */

/* Rows that share one reading of the weights. */
struct repacked_sweep {
    const struct matrix *w;
    const uint8_t *xp; /* first tile of rows */
    float *y;          /* results of the first row */
    size_t y_stride;
    int n, height, tiles;
};

/* Unpack blocks [i, i + count) of types other than Q8_0 to int8, in planes of PHASE lines. */
INLINE void unpack(uint8_t *to, const struct repacked_group *g, size_t i, int count, enum dtype t)
{
    const __m512i zero = _mm512_set1_epi8((char)(t == DTYPE_Q4_0 ? 8 : t == DTYPE_Q5_0 ? 16 : 128));
    for (int b = 0; b < count; b++, to += LINE) {
        __m512i q[8];
        repacked_load(q, g, i + (size_t)b, t);
        for (int k = 0; k < 8; k++)
            _mm512_store_si512(to + (size_t)k * PHASE * LINE, _mm512_sub_epi8(q[k], zero));
    }
    tiles_written();
}

static void store_rows(const struct repacked_sweep *s, const float *results, int o, int o1)
{
    for (int r = 0; r < s->n; r++)
        store_row(s->y + (size_t)r * s->y_stride, s->w, o, o1,
                  _mm512_load_ps(results + (r / s->height * TILE_ROWS + r % s->height) * 16));
}

/* Compute 16 outputs. */
INLINE void sweep_group(const struct repacked_sweep *s, const struct repacked_mem *m, int o, int o1,
                        enum dtype t)
{
    const size_t blocks = blocks_of(s->w->in), size = tile_size(s->height, s->w->in);
    const struct repacked_group g = repacked_group(s->w, o, t);
    for (size_t i = 0; i < blocks; i += PHASE) {
        int count = (int)(blocks - i < PHASE ? blocks - i : PHASE);
        const uint8_t *a = s->xp + i * (size_t)s->height * BLOCK;
        const uint8_t *b = t == DTYPE_Q8_0 ? g.q + i * LINE : m->quants;
        size_t plane = t == DTYPE_Q8_0 ? g.plane : PHASE * LINE;
        if (t != DTYPE_Q8_0)
            unpack(m->quants, &g, i, count, t);
        if (s->tiles == 2)
            block_sums_2(m->sums, a, size, (size_t)s->height * BLOCK, b, plane, count);
        else
            block_sums(m->sums, a, (size_t)s->height * BLOCK, b, plane, count);
        for (int r = 0; r < s->tiles; r++) {
            const uint8_t *dx = s->xp + (size_t)r * size + blocks * (size_t)s->height * BLOCK;
            struct scaling by = { .sums = m->sums + r * 256,
                                  .dx = (const float *)(const void *)dx + i * (size_t)s->height,
                                  .dw = (const uint16_t *)(const void *)g.scale + i * GROUP,
                                  .count = count,
                                  .next = g.q + (i + AHEAD) * LINE,
                                  .plane = g.plane,
                                  .planes = r == 0 ? repacked_planes(t) : 0 };
            add_rows_of[s->height](m->results + r * 256, i == 0, &by);
        }
    }
    store_rows(s, m->results, o, o1);
}

INLINE void run_type(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch, enum dtype t)
{
    const int height = tile_height(n), rows = TILES * height;
    struct repacked_mem m = repacked_mem(scratch);
    config(height);
    for (int o = o0; o < o1; o += PANEL)
        for (int r = 0; r < n; r += rows) {
            struct repacked_sweep s = { .w = w,
                                        .xp = xp + (size_t)(r / height) * tile_size(height, w->in),
                                        .y = y + (size_t)r * y_stride,
                                        .y_stride = y_stride,
                                        .n = min_int(rows, n - r),
                                        .height = height,
                                        .tiles = n - r > height ? 2 : 1 };
            for (int p = o; p < min_int(o + PANEL, o1); p += GROUP)
                sweep_group(&s, &m, p, o1, t);
        }
    _tile_release();
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    if (n <= DOT_ROWS)
        repacked_dots(y, y_stride, xp, n, w, o0, o1);
    else if (w->dtype == DTYPE_Q8_0)
        run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q8_0);
    else if (w->dtype == DTYPE_Q4_0)
        run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q4_0);
    else if (w->dtype == DTYPE_IQ4_NL)
        run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_IQ4_NL);
    else
        run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q5_0);
}

const struct matmul_kernel matmul_repacked_amx = { .name = "repacked-amx",
                                                   .in_multiple = BLOCK,
                                                   .row_step = 4,
                                                   .out_step = GROUP,
                                                   .packed_size = tiles_size,
                                                   .scratch_size = scratch_size,
                                                   .pack = pack,
                                                   .run = run,
                                                   .repacked_size = repacked_size,
                                                   .repack = repack };
