/* Matrix products of Q8_0, Q4_0 and Q5_0 weights by int8 AMX tiles (int8_avx512.h says how they are
 * defined). One tile product gives the exact sums of a block for 16 outputs and up to 16 rows; they
 * are scaled and added with the lanes being rows. Up to FEW_ROWS rows use dot products instead. */
#include "kernels/x86/int8_avx512.h"
#include "kernels/x86/tile_amx.h"

enum {
    PANEL = 64,             /* outputs prepared together */
    X_TILE = BLOCK * GROUP, /* bytes of a block of 16 rows of x */
    C_TILES = 4             /* sums in flight between tiles and vectors */
};

/* ---- activations ---- */

/* Few rows are packed as rows. Groups of 16 rows: [in / 32] tiles of [8][16][4] int8, then
 * [in / 32][16] scales. */

static size_t group_size(int in)
{
    return blocks_of(in) * (X_TILE + GROUP * sizeof(float));
}

static size_t tiles_size(int n, int in)
{
    size_t groups = ((size_t)n + GROUP - 1) / GROUP * group_size(in);
    return n <= FEW_ROWS ? packed_size(n, in) : groups;
}

/* Rows past n are zero. Two blocks of 16 rows are one 16 x 16 transpose of dwords. */
static void pack_group(uint8_t *xp, const float *x, size_t stride, int n, int in)
{
    size_t blocks = blocks_of(in);
    float *scale = (float *)(xp + blocks * X_TILE);
    for (size_t i = 0; i < blocks; i += 2) {
        int pair = i + 1 < blocks;
        __m512i r[16];
        for (int j = 0; j < GROUP; j++) {
            __m256i q[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
            for (int b = 0; b <= pair; b++)
                scale[(i + (size_t)b) * GROUP + (size_t)j] =
                    j < n ? quantise(&q[b], x + (size_t)j * stride + (i + (size_t)b) * BLOCK) : 0;
            r[j] = _mm512_inserti64x4(_mm512_castsi256_si512(q[0]), q[1], 1);
        }
        transpose_16x16(r);
        for (int j = 0; j < 8 + 8 * pair; j++)
            _mm512_store_si512(xp + i * X_TILE + (size_t)j * 64, r[j]);
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n <= FEW_ROWS) {
        pack_rows(xp, x, stride, in, r0, r1);
        return;
    }
    for (int r = r0; r < r1; r += GROUP)
        pack_group((uint8_t *)xp + (size_t)(r / GROUP) * group_size(in), x + (size_t)r * stride,
                   stride, min_int(GROUP, n - r), in);
}

INLINE int zero_of(enum dtype t)
{
    return t == DTYPE_Q8_0 ? 128 : t == DTYPE_Q4_0 ? 8 : 16;
}

/* ---- many rows: tiles, lanes are rows ---- */

/* 16 outputs ready for products: int8 rows and their scales. */
struct group {
    const uint8_t *q; /* first block of the first row */
    size_t stride;    /* bytes from row to row */
    size_t step;      /* bytes from block to block */
    float *scale;     /* [blocks][16] */
};

static size_t panel_group_size(int in)
{
    return blocks_of(in) * (BLOCK * GROUP + GROUP * sizeof(float));
}

static size_t scratch_size(int in)
{
    return C_TILES * TILE_BYTES + PANEL / GROUP * panel_group_size(in);
}

/* Tiles of Q8_0 are loaded where they lie; other types, and the last outputs of a matrix, are
 * unpacked to int8 first. */
INLINE void prepare(struct group *g, uint8_t *mem, const struct matrix *w, int o, enum dtype t)
{
    size_t blocks = blocks_of(w->in), size = (size_t)block_size(t);
    const uint8_t *base = (const uint8_t *)w->data + (size_t)o * w->row_size;
    float *scale = (float *)(mem + blocks * BLOCK * GROUP);
    __m512i at = row_offsets(w, o, 1);
    int32_t off[GROUP];
    _mm512_storeu_si512(off, at);
    for (size_t i = 0; i < blocks; i++)
        _mm512_store_ps(scale + i * GROUP, load_scales(base + i * size, at));
    if (t == DTYPE_Q8_0 && o + GROUP <= w->out) {
        *g = (struct group){ .q = base + 2, .stride = w->row_size, .step = size, .scale = scale };
        return;
    }
    for (int r = 0; r < GROUP; r++)
        for (size_t i = 0; i < blocks; i++)
            _mm256_store_si256((__m256i *)(mem + i * BLOCK * GROUP + (size_t)r * BLOCK),
                               _mm256_sub_epi8(load_quants(base + off[r] + i * size, t),
                                               _mm256_set1_epi8((char)zero_of(t))));
    *g = (struct group){ .q = mem, .stride = BLOCK, .step = BLOCK * GROUP, .scale = scale };
}

static void config(void)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = i == 4 || i == 5 ? BLOCK : 64;
        s.rows[i] = i >= 6 ? BLOCK / 4 : GROUP;
    }
    tile_load_shape(&s);
}

/* Integer sums of block i to c[i % C_TILES]. Two sets of tiles take turns; a tile's number is part
 * of the instruction, hence the two spellings. */
static inline void block_sums(int32_t *c, const struct group *g, const uint8_t *xp, size_t i)
{
    const uint8_t *a = g->q + i * g->step, *b = xp + i * X_TILE;
    int32_t *to = c + i % C_TILES * 256;
    if (i % 2) {
        _tile_zero(1);
        _tile_loadd(5, a, g->stride);
        _tile_loadd(7, b, 64);
        _tile_dpbssd(1, 5, 7);
        _tile_stored(1, to, 64);
    } else {
        _tile_zero(0);
        _tile_loadd(4, a, g->stride);
        _tile_loadd(6, b, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_stored(0, to, 64);
    }
}

static inline void add_block(__m512 acc[GROUP], const int32_t *c, __m512 dx, const float *dw)
{
    for (int o = 0; o < GROUP; o++) {
        __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c + o * 16)), dx);
        acc[o] = _mm512_fmadd_ps(t, _mm512_set1_ps(dw[o]), acc[o]);
    }
}

/* 16 outputs by 16 rows, one accumulator an output. Result to c[16 outputs][16 rows]. */
static void tile_group(const struct group *g, const uint8_t *xp, size_t blocks, int32_t *c,
                       const uint8_t *next, size_t next_step)
{
    const float *dx = (const float *)(xp + blocks * X_TILE);
    __m512 acc[GROUP];
    for (int o = 0; o < GROUP; o++)
        acc[o] = _mm512_setzero_ps();
    block_sums(c, g, xp, 0);
    for (size_t i = 0; i < blocks; i++) {
        if (i + 1 < blocks)
            block_sums(c, g, xp, i + 1);
        if (next)
            fetch(next + i * next_step, next_step);
        add_block(acc, c + i % C_TILES * 256, _mm512_load_ps(dx + i * GROUP), g->scale + i * GROUP);
    }
    for (int o = 0; o < GROUP; o++)
        _mm512_store_ps(c + o * 16, acc[o]);
}

INLINE void run_many(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch, enum dtype t)
{
    size_t blocks = blocks_of(w->in), step = GROUP * (size_t)block_size(t);
    uint8_t *mem = (uint8_t *)scratch + C_TILES * TILE_BYTES;
    struct group g[PANEL / GROUP];
    config();
    for (int o = o0; o < o1; o += PANEL) {
        int groups = (min_int(PANEL, o1 - o) + GROUP - 1) / GROUP;
        const uint8_t *next = (const uint8_t *)w->data + (size_t)(o + PANEL) * w->row_size;
        for (int i = 0; i < groups; i++)
            prepare(&g[i], mem + (size_t)i * panel_group_size(w->in), w, o + i * GROUP, t);
        tiles_written();
        for (int r = 0; r < n; r += GROUP)
            for (int i = 0; i < groups; i++) {
                int at = o + i * GROUP;
                const uint8_t *ahead = next + (size_t)i * GROUP * w->row_size;
                tile_group(&g[i], xp + (size_t)(r / GROUP) * group_size(w->in), blocks, scratch,
                           r == 0 ? ahead : NULL, step);
                struct tile_place p = { .y = y + (size_t)r * y_stride + at,
                                        .stride = y_stride,
                                        .bias = w->bias ? w->bias + at : NULL,
                                        .apart = 1,
                                        .n_out = min_int(GROUP, o1 - at),
                                        .n_rows = min_int(GROUP, n - r) };
                store_tile(&p, scratch);
            }
    }
    _tile_release();
}

/* ---- the kernels ---- */

INLINE void run_type(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch, enum dtype t)
{
    if (n <= FEW_ROWS)
        run_few(y, y_stride, xp, n, w, o0, o1, t);
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

#define INT8_KERNEL(fn)                                                                            \
    {                                                                                              \
        .name = "amx-int8", .in_multiple = BLOCK, .row_step = GROUP, .out_step = GROUP,            \
        .packed_size = tiles_size, .scratch_size = scratch_size, .pack = pack, .run = fn           \
    }

const struct matmul_kernel matmul_q8_0_amx = INT8_KERNEL(run_q8_0);
const struct matmul_kernel matmul_q4_0_amx = INT8_KERNEL(run_q4_0);
const struct matmul_kernel matmul_q5_0_amx = INT8_KERNEL(run_q5_0);
