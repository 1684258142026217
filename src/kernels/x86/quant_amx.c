/* Products of several rows with K-quants, Q4_1 and Q5_1 in the order of quant_repacked.h by int8
 * AMX tiles: rows of x by 16 outputs, which is the layout of a panel. One tile product gives the
 * exact sums of a block, or with Q6_K of half a block, for up to 16 rows. They are scaled and added
 * in the order of matmul_quant.h, so the bits are those of the dot products that few rows use.
 *
 * Tile and vector instructions slow each other down if they overlap, so they alternate: the sums of
 * PHASE products, then their scaling. Up to 32 rows are processed as two tiles of equal height. */
#include "base/minmax.h"
#include "kernels/x86/quant_dot_x86.h"
#include "kernels/x86/quant_repacked.h"
#include "kernels/x86/tile_int8.h"

enum {
    DOT_ROWS = 4, /* up to so many rows, dot products are faster; */
    DOT_HALVES = 8,
    TILES = 2,  /* tiles of rows that are processed together */
    SHARE = 8,  /* tiles of rows that share one unpacking of the weights */
    PANEL = 64, /* outputs whose weights stay in cache with more rows */
    LAG = 2,    /* tile products in flight while sums are stored */
    PHASE = 8,  /* products per phase, limited by L1 */
    SCALED = 8  /* rows whose accumulators are in registers */
};

/* ---- activations ---- */

/* Few rows are packed for dot products. More rows are packed in tiles of `height` rows:
 * [blocks][height][32] int8, then [blocks][height] scales, then as many sums. */

static int tile_height(int n)
{
    return n <= TILE_ROWS ? n : n <= TILES * TILE_ROWS ? (n + 1) / 2 : TILE_ROWS;
}

static size_t tile_size(int height, int in)
{
    size_t rows = (size_t)(in / BLOCK) * (size_t)height;
    return (rows * (BLOCK + 2 * sizeof(float)) + 63) / 64 * 64;
}

/* Bytes that are enough for both layouts. */
static size_t packed_size(int n, int in)
{
    size_t height = (size_t)tile_height(n), few = quant_repacked_mins.packed_size(n, in);
    if (n <= DOT_ROWS) /* includes n = 0, where height is 0 */
        return few;
    size_t tiles = ((size_t)n + height - 1) / height * tile_size((int)height, in);
    return n <= DOT_HALVES && few > tiles ? few : tiles;
}

/* Pack row r; x NULL: zeros. */
static void pack_row(uint8_t *xp, const float *x, int r, int height, int in)
{
    size_t step = (size_t)height, all = (size_t)(in / BLOCK) * step;
    uint8_t *tile = xp + (size_t)(r / height) * tile_size(height, in);
    uint8_t *q = tile + (size_t)(r % height) * BLOCK;
    float *scale = (float *)(void *)(tile + all * BLOCK) + r % height, *sum = scale + all;
    struct x_block b = { .scale = 0 };
    for (size_t at = 0; at < all; at += step) {
        if (x)
            x_block_pack(&b, x + at / step * BLOCK, QUANT_MINS, 0, false);
        memcpy(q + at * BLOCK, b.q, BLOCK);
        scale[at] = b.scale;
        sum[at] = b.sum;
    }
}

static void pack_tiles(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    int height = tile_height(n), end = (n + height - 1) / height * height;
    for (int r = r0; r < r1; r++)
        pack_row(xp, x + (size_t)r * stride, r, height, in);
    for (int r = n; r < end && r1 == n; r++)
        pack_row(xp, NULL, r, height, in);
}

static void pack_mins(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n <= DOT_ROWS)
        quant_repacked_mins.pack(xp, x, stride, n, in, r0, r1);
    else
        pack_tiles(xp, x, stride, n, in, r0, r1);
}

static void pack_q6_K(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n <= DOT_HALVES)
        quant_repacked_q6_K.pack(xp, x, stride, n, in, r0, r1);
    else
        pack_tiles(xp, x, stride, n, in, r0, r1);
}

/* ---- sums ---- */

/* Scratch memory of a thread. */
struct quant_mem {
    struct panel_block panel[PANEL_BLOCKS];
    int32_t sums[PHASE][TILES][TILE_ROWS * VEC];
    float results[SHARE][TILE_ROWS * VEC];
};

static size_t scratch_size(int in)
{
    size_t few = quant_repacked_mins.scratch_size(in);
    return few > sizeof(struct quant_mem) ? few : sizeof(struct quant_mem);
}

/* Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights, of `parts` parts of a block. */
static void config(int height, int parts)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = (uint16_t)(i == 4 || i == 5 ? BLOCK / parts : 64);
        s.rows[i] = (uint8_t)(i < 6 ? height : GROUPS / parts);
    }
    tile_load_shape(&s);
}

/* Operands of tile products: tiles of rows, and the weights of a panel. */
struct operands {
    const uint8_t *x; /* [blocks][height][32] */
    size_t step;      /* bytes from block to block */
    size_t tile;      /* bytes to the second tile of rows */
    const struct panel_block *panel;
};

INLINE const uint8_t *x_part(const struct operands *p, int i, int parts)
{
    return p->x + (size_t)(i / parts) * p->step + i % parts * BLOCK / parts;
}

INLINE const uint8_t *w_part(const struct operands *p, int i, int parts)
{
    return (const uint8_t *)&p->panel[i / parts].q[i % parts * GROUPS / parts];
}

/* Compute the integer sums of `count` products; LAG of them are computed while an earlier one is
 * stored. */
INLINE void sums_1(int32_t (*c)[TILES][TILE_ROWS * VEC], const struct operands *p, int count,
                   int parts)
{
    for (int i = 0; i < count + LAG; i++) {
        if (i < count)
            tile_product(i % 4, x_part(p, i, parts), BLOCK, w_part(p, i, parts), 64);
        if (i >= LAG)
            tile_put((i - LAG) % 4, c[i - LAG][0], 64);
    }
}

/* The same for two tiles of rows. */
INLINE void sums_2(int32_t (*c)[TILES][TILE_ROWS * VEC], const struct operands *p, int count,
                   int parts)
{
    for (int i = 0; i <= count; i++) {
        if (i < count) {
            _tile_loadd(4, x_part(p, i, parts), BLOCK);
            _tile_loadd(5, x_part(p, i, parts) + p->tile, BLOCK);
        }
        if (i < count && i % 2) {
            _tile_zero(2);
            _tile_zero(3);
            _tile_loadd(7, w_part(p, i, parts), 64);
            _tile_dpbssd(2, 4, 7);
            _tile_dpbssd(3, 5, 7);
        } else if (i < count) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_loadd(6, w_part(p, i, parts), 64);
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(1, 5, 6);
        }
        if (i > 0 && i % 2) {
            _tile_stored(0, c[i - 1][0], 64);
            _tile_stored(1, c[i - 1][1], 64);
        } else if (i > 0) {
            _tile_stored(2, c[i - 1][0], 64);
            _tile_stored(3, c[i - 1][1], 64);
        }
    }
}

/* ---- scaling ---- */

/* Inputs for scaling `count` blocks, from the first row on. */
struct scaling {
    const struct panel_block *panel;
    const int32_t *sums; /* of the first product; products are TILES tiles apart */
    const float *dx;     /* [count][height]: scales of x */
    const float *sx;     /* [count][height]: sums of x */
    int height, count;
};

INLINE void add_rows(float *acc_at, bool first, const struct scaling *g, int rows, int parts)
{
    enum { STEP = TILES * TILE_ROWS * VEC };
    vec acc[SCALED];
    const int32_t *c = g->sums;
    const float *dx = g->dx, *sx = g->sx;
#pragma GCC unroll 8
    for (int k = 0; k < rows; k++)
        acc[k] = first ? vec_zero() : vec_load(acc_at + k * VEC);
    for (int i = 0; i < g->count; i++, c += parts * STEP, dx += g->height, sx += g->height) {
        vec scale = g->panel[i].scale, other = g->panel[i].other;
#pragma GCC unroll 8
        for (int k = 0; k < rows; k++) {
            vec xs = vec_set(dx[k]), sum = ivec_float(ivec_load(c + k * VEC));
            acc[k] = vec_fma(sum, vec_mul(scale, xs), acc[k]);
            if (parts == 1)
                acc[k] = vec_fnma(other, vec_set(sx[k]), acc[k]);
            else
                acc[k] =
                    vec_fma(ivec_float(ivec_load(c + STEP + k * VEC)), vec_mul(other, xs), acc[k]);
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < rows; k++)
        vec_store(acc_at + k * VEC, acc[k]);
}

INLINE void add_some(float *acc, bool first, const struct scaling *g, int rows, int parts)
{
    switch (rows) {
    case 1:
        add_rows(acc, first, g, 1, parts);
        break;
    case 2:
        add_rows(acc, first, g, 2, parts);
        break;
    case 3:
        add_rows(acc, first, g, 3, parts);
        break;
    case 4:
        add_rows(acc, first, g, 4, parts);
        break;
    case 5:
        add_rows(acc, first, g, 5, parts);
        break;
    case 6:
        add_rows(acc, first, g, 6, parts);
        break;
    case 7:
        add_rows(acc, first, g, 7, parts);
        break;
    default:
        add_rows(acc, first, g, SCALED, parts);
        break;
    }
}

/* Scale and add all rows of a tile. */
INLINE void add_tile(float *acc, bool first, const struct scaling *all, int parts)
{
    for (int r = 0; r < all->height; r += SCALED) {
        struct scaling g = *all;
        g.sums += r * VEC;
        g.dx += r;
        g.sx += r;
        add_some(acc + r * VEC, first, &g, min_int(SCALED, all->height - r), parts);
    }
}

/* ---- all outputs ---- */

/* Rows that share one unpacking of the weights. */
struct quant_sweep {
    const struct matrix *w;
    const uint8_t *xp; /* first tile of rows */
    float *y;          /* results of the first row */
    size_t y_stride;
    int n, height, tiles;
};

/* Multiply blocks [b, b + count) of 16 outputs, whose panel is `panel`, by tile t of the rows and
 * the next. */
INLINE void sweep_blocks(const struct quant_sweep *s, struct quant_mem *m,
                         const struct panel_block *panel, int b, int count, int t, int parts)
{
    size_t step = (size_t)s->height * BLOCK, blocks = (size_t)(s->w->in / BLOCK);
    size_t size = tile_size(s->height, s->w->in);
    const uint8_t *x = s->xp + (size_t)t * size;
    struct operands p = { x + (size_t)b * step, step, size, panel };
    int tiles = min_int(TILES, s->tiles - t);

    if (tiles == 2)
        sums_2(m->sums, &p, count * parts, parts);
    else
        sums_1(m->sums, &p, count * parts, parts);
    tiles_written();
    for (int r = 0; r < tiles; r++) {
        const float *dx = (const float *)(const void *)(x + (size_t)r * size + blocks * step);
        struct scaling g = { .panel = panel,
                             .sums = m->sums[0][r],
                             .dx = dx + (size_t)(b * s->height),
                             .sx = dx + ((size_t)b + blocks) * (size_t)s->height,
                             .height = s->height,
                             .count = count };
        add_tile(m->results[t + r], b == 0, &g, parts);
    }
}

static void store_rows(const struct quant_sweep *s, const struct quant_mem *m, int o, int outs)
{
    const float *bias = s->w->bias ? s->w->bias + o : NULL;
    for (int r = 0; r < s->n; r++) {
        float *y = s->y + (size_t)r * s->y_stride + o;
        vec v = vec_load(m->results[r / s->height] + r % s->height * VEC);
        if (bias)
            v = vec_add(v, vec_load_part(bias, outs));
        vec_store_part(y, v, outs);
    }
}

/* Compute VEC outputs. */
INLINE void sweep_outputs(const struct quant_sweep *s, struct quant_mem *m, int o, int o1,
                          unpack_fn *unpack, int parts)
{
    struct tile_rows rows = { .plane = 0 };
    int n_blocks = s->w->in / BLOCK;

    quant_repacked_rows(&rows, s->w, o);
    for (int b = 0; b < n_blocks; b += PANEL_BLOCKS) {
        int count = min_int(PANEL_BLOCKS, n_blocks - b);
        unpack(m->panel, &rows, (size_t)b, count);
        tiles_written();
        for (int t = 0; t < s->tiles; t += TILES)
            for (int i = 0; i < count; i += PHASE / parts)
                sweep_blocks(s, m, m->panel + i, b + i, min_int(PHASE / parts, count - i), t,
                             parts);
    }
    store_rows(s, m, o, min_int(VEC, o1 - o));
}

INLINE void run_type(float *y, size_t y_stride, const uint8_t *xp, int n, const struct matrix *w,
                     int o0, int o1, struct quant_mem *m, unpack_fn *unpack, int parts)
{
    const int height = tile_height(n), rows = SHARE * height;
    config(height, parts);
    for (int o = o0; o < o1; o += PANEL)
        for (int r = 0; r < n; r += rows) {
            struct quant_sweep s = { .w = w,
                                     .xp = xp + (size_t)(r / height) * tile_size(height, w->in),
                                     .y = y + (size_t)r * y_stride,
                                     .y_stride = y_stride,
                                     .n = min_int(rows, n - r),
                                     .height = height,
                                     .tiles = min_int(SHARE, (n - r + height - 1) / height) };
            for (int p = o; p < min_int(o + PANEL, o1); p += VEC)
                sweep_outputs(&s, m, p, o1, unpack, parts);
        }
    _tile_release();
}

static void repack(void *to, const struct matrix *w, int o0, int o1)
{
    quant_repacked_mins.repack(to, w, o0, o1);
}

static void unpack_signed(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    (void)n;
    unpack_q6_K_less(p, t, block, 32);
}

static void run_mins(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    static unpack_fn *const unpack[DTYPE_COUNT] = { [DTYPE_Q4_K] = unpack_q4_K,
                                                    [DTYPE_Q5_K] = unpack_q5_K,
                                                    [DTYPE_Q4_1] = unpack_q4_1,
                                                    [DTYPE_Q5_1] = unpack_q5_1 };
    if (n <= DOT_ROWS)
        quant_repacked_mins.run(y, y_stride, xp, n, w, o0, o1, scratch);
    else
        run_type(y, y_stride, xp, n, w, o0, o1, scratch, unpack[w->dtype], 1);
}

static void run_q6_K(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    if (n <= DOT_HALVES)
        quant_repacked_q6_K.run(y, y_stride, xp, n, w, o0, o1, scratch);
    else
        run_type(y, y_stride, xp, n, w, o0, o1, scratch, unpack_signed, 2);
}

#define QUANT_AMX_KERNEL(unit, pack_fn, run_fn)                                                    \
    {                                                                                              \
        .name = "repacked-amx", .in_multiple = unit, .row_step = QUANT_ROWS, .out_step = VEC,      \
        .packed_size = packed_size, .scratch_size = scratch_size, .pack = pack_fn, .run = run_fn,  \
        .repacked_size = quant_repacked_size, .repack = repack                                     \
    }

static const struct matmul_kernel repacked_mins = QUANT_AMX_KERNEL(256, pack_mins, run_mins);
static const struct matmul_kernel repacked_min = QUANT_AMX_KERNEL(BLOCK, pack_mins, run_mins);
static const struct matmul_kernel repacked_q6_K = QUANT_AMX_KERNEL(256, pack_q6_K, run_q6_K);

void quant_init_amx(struct kernels *k)
{
    k->matmul_repacked[DTYPE_Q4_K] = k->matmul_repacked[DTYPE_Q5_K] = &repacked_mins;
    k->matmul_repacked[DTYPE_Q6_K] = &repacked_q6_K;
    k->matmul_repacked[DTYPE_Q4_1] = k->matmul_repacked[DTYPE_Q5_1] = &repacked_min;
}
