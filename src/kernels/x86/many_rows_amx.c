/* Products of many rows by AMX tiles, blocked for the caches.
 *
 * Two tiles of outputs by two groups of rows are multiplied at a time: 4 products for 4 loads,
 * which keeps the tile unit busy as long as the loads come from the second cache or nearer; from
 * beyond they come at a third of its speed. So a block of rows of x, over one slice of `in`, stays
 * there while the outputs pass. Where `in` has several slices the accumulators of a block of
 * outputs wait in scratch from one to the next, which changes no bit.
 *
 * F16 weights are the sum of two bf16 numbers exactly, w = w1 + w2; x becomes x1 + x2, within
 * 2^-17. Of the four products w2 x2, below 2^-17 too, is left out. */
#include "kernels/x86/many_rows_amx.h"

enum {
    SLICE_TILES = 36,        /* of one output or row tile: 1152 values, or 576 in two planes */
    BLOCK_BYTES = 880 << 10, /* of x, of a second cache of 2 MiB */
    BLOCK_SUMS = 96 << 10,   /* accumulators that wait, in floats */
    PAIR = 2 * GROUP,        /* outputs, or rows, of one multiplication */
    TILE_FLOATS = TILE_BYTES / 4,
    QUAD = 4 * TILE_FLOATS /* the four C tiles of one multiplication */
};

/* ---- weights ---- */

static const uint8_t *weight_row(const struct matrix *w, int o)
{
    return (const uint8_t *)w->data + (size_t)min_int(o, w->out - 1) * w->row_size;
}

void copy_tiles(uint8_t *dst, const struct matrix *w, int o, int apart, int k0, int k1)
{
    for (int r = 0; r < GROUP; r++) {
        const uint8_t *src = weight_row(w, o + r * apart);
        uint8_t *to = dst + r * 64;
        int k = k0;
        for (; k + TILE_K <= k1; k += TILE_K, to += TILE_BYTES)
            _mm512_store_si512(to, _mm512_loadu_si512(src + (size_t)k * 2));
        if (k < k1) /* the next row may hold anything, NaN included */
            _mm512_store_si512(to,
                               _mm512_maskz_loadu_epi16((1u << (k1 - k)) - 1, src + (size_t)k * 2));
    }
}

/* The same of an F16 matrix, in two planes; outputs follow each other. */
static void split_tiles(uint8_t *dst, const struct matrix *w, int o, int k0, int k1)
{
    for (int r = 0; r < GROUP; r++) {
        const uint8_t *src = weight_row(w, o + r);
        uint8_t *to = dst + r * 64;
        for (int k = k0; k < k1; k += TILE_K, to += 2 * TILE_BYTES) {
            __mmask32 m = k1 - k < TILE_K ? (1u << (k1 - k)) - 1 : ~0u;
            __m512i h = _mm512_maskz_loadu_epi16(m, src + (size_t)k * 2);
            split_bf16_32(to, _mm512_cvtph_ps(_mm512_castsi512_si256(h)),
                          _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)));
        }
    }
}

/* ---- one multiplication: tiles 0 1 / 2 3 are outputs by rows ---- */

struct operands {
    const uint8_t *a, *b;  /* the first of two output tiles, and of two groups */
    size_t a_step, b_step; /* to the second */
    int steps;
    /* Where the results will go, 32 outputs of `rows` rows; NULL: to scratch. */
    const float *y;
    size_t y_stride;
    int rows;
};

/* The lines that results will be written to are far away, and the stores would wait for them. Ask
 * for those of a row or two with each step: all at once they would hold up the tiles. */
static inline void fetch_results(const struct operands *m, int k)
{
    for (int r = k; m->y && r < m->rows; r += m->steps) {
        __builtin_prefetch(m->y + (size_t)r * m->y_stride, 1);
        __builtin_prefetch(m->y + (size_t)r * m->y_stride + GROUP, 1);
    }
}

static void multiply_bf16(const struct operands *m)
{
    const uint8_t *a = m->a, *b = m->b;
    for (int k = 0; k < m->steps; k++, a += TILE_BYTES, b += TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + m->b_step, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + m->a_step, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        fetch_results(m, k);
    }
}

/* w1 x2, w1 x1, w2 x1. */
static void multiply_split(const struct operands *m)
{
    const uint8_t *a = m->a, *b = m->b;
    for (int k = 0; k < m->steps; k++, a += 2 * TILE_BYTES, b += 2 * TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, a + m->a_step, 64);
        _tile_loadd(6, b + TILE_BYTES, 64);
        _tile_loadd(7, b + m->b_step + TILE_BYTES, 64);
        products_2x2();
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + m->b_step, 64);
        products_2x2();
        _tile_loadd(4, a + TILE_BYTES, 64);
        _tile_loadd(5, a + m->a_step + TILE_BYTES, 64);
        products_2x2();
        fetch_results(m, k);
    }
}

/* ---- blocks ---- */

/* Groups [g0, g1) of rows by outputs [o0, o1), over values [k0, k1). */
struct block {
    const struct target *t;
    const struct matrix *w;
    const uint8_t *xp;
    int planes;
    int g0, g1, o0, o1, k0, k1;
    float *sums; /* [outputs / 32][groups / 2][QUAD] */
    uint8_t *a;  /* two tiles of outputs, over the slice */
    float *c;    /* finished tiles, two quads in turn */
};

static void load_sums(const float *c, bool first)
{
    if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, c, 64);
    _tile_loadd(1, c + TILE_FLOATS, 64);
    _tile_loadd(2, c + 2 * TILE_FLOATS, 64);
    _tile_loadd(3, c + 3 * TILE_FLOATS, 64);
}

static void store_sums(float *c)
{
    _tile_stored(0, c, 64);
    _tile_stored(1, c + TILE_FLOATS, 64);
    _tile_stored(2, c + 2 * TILE_FLOATS, 64);
    _tile_stored(3, c + 3 * TILE_FLOATS, 64);
}

static void put_quad(const struct block *b, const float *c, int o, int g)
{
    for (int i = 0; i < 4; i++)
        if (o + i / 2 * GROUP < b->t->o1 && g + i % 2 < b->g1)
            put_tile(b->t, c + i * TILE_FLOATS, o + i / 2 * GROUP, 1, g + i % 2);
}

static void load_weights(const struct block *b, int o)
{
    uint8_t *second = b->a + SLICE_TILES * TILE_BYTES;
    if (b->planes == 1) {
        copy_tiles(b->a, b->w, o, 1, b->k0, b->k1);
        copy_tiles(second, b->w, o + GROUP, 1, b->k0, b->k1);
    } else {
        split_tiles(b->a, b->w, o, b->k0, b->k1);
        split_tiles(second, b->w, o + GROUP, b->k0, b->k1);
    }
    tiles_written();
}

/* All rows of the block by outputs o .. o + 31. An odd last group is computed twice, which gives
 * the same twice. */
static void outputs_run(const struct block *b, int o)
{
    size_t tile = (size_t)b->planes * TILE_BYTES, group = (size_t)steps_of(b->w->in) * tile;
    size_t pairs = (size_t)(b->g1 - b->g0 + 1) / 2;
    bool last = b->k1 == b->w->in;
    struct operands m = { .a = b->a,
                          .a_step = SLICE_TILES * TILE_BYTES,
                          .steps = steps_of(b->k1 - b->k0),
                          .y_stride = b->t->stride };
    load_weights(b, o);
    for (int g = b->g0; g < b->g1; g += 2) {
        size_t pair = (size_t)(g - b->g0) / 2;
        float *sums = b->sums + ((size_t)(o - b->o0) / PAIR * pairs + pair) * QUAD;
        float *to = last ? b->c + pair % 2 * QUAD : sums;
        m.b = b->xp + (size_t)g * group + (size_t)(b->k0 / TILE_K) * tile;
        m.b_step = g + 1 < b->g1 ? group : 0;
        m.y = last ? b->t->y + (size_t)g * GROUP * b->t->stride + o : NULL;
        m.rows = min_int(PAIR, b->t->n - g * GROUP);
        load_sums(sums, b->k0 == 0);
        if (b->planes == 1)
            multiply_bf16(&m);
        else
            multiply_split(&m);
        store_sums(to);
        if (last)
            put_quad(b, to, o, g);
    }
}

size_t many_rows_scratch(void)
{
    return sizeof(float) * (2 * QUAD + BLOCK_SUMS) + 2 * SLICE_TILES * TILE_BYTES;
}

void many_rows_run(const struct target *t, const uint8_t *xp, const struct matrix *w, int o0,
                   void *scratch)
{
    struct block b = {
        .t = t, .w = w, .xp = xp, .planes = w->dtype == DTYPE_F16 ? 2 : 1, .c = scratch
    };
    int slice_steps = SLICE_TILES / b.planes, steps = steps_of(w->in),
        groups = (int)groups_of(t->n);
    int slices = (steps + slice_steps - 1) / slice_steps, slice = (steps + slices - 1) / slices;
    /* Blocks of rows are made alike, and even. */
    int most = BLOCK_BYTES / (slice * b.planes * TILE_BYTES), blocks = (groups + most - 1) / most;
    int rows = (groups + 2 * blocks - 1) / (2 * blocks) * 2;
    int outs = slices > 1 ? BLOCK_SUMS / (rows * GROUP) / PAIR * PAIR : t->o1 - o0;
    b.a = (uint8_t *)(b.c + 2 * QUAD);
    b.sums = (float *)(void *)(b.a + 2 * SLICE_TILES * TILE_BYTES);
    for (b.g0 = 0; b.g0 < groups; b.g0 = b.g1) {
        b.g1 = min_int(groups, b.g0 + rows);
        for (b.o0 = o0; b.o0 < t->o1; b.o0 = b.o1) {
            b.o1 = min_int(t->o1, b.o0 + outs);
            for (b.k0 = 0; b.k0 < w->in; b.k0 = b.k1) {
                b.k1 = min_int(w->in, b.k0 + slice * TILE_K);
                for (int o = b.o0; o < b.o1; o += PAIR)
                    outputs_run(&b, o);
            }
        }
    }
}
