/* Products of many rows by AMX tiles, blocked for the caches.
 *
 * Two tiles of outputs are multiplied by two groups of rows at a time: 4 products for 4 loads,
 * which keeps the tile unit busy as long as two of the loads come from L1 and two from L2. So `in`
 * is cut into slices. A slice of 32 outputs stays in L1 while the rows of a block are multiplied by
 * it; rows are loaded with a streaming hint, which leaves the weights there, and the block of rows
 * stays in L2. Between slices the accumulators are kept in scratch memory, which changes no bit. If
 * rows are too long for L2, they are taken slice by slice, and then the sums of many outputs are
 * kept.
 *
 * Weights are copied into tiles a slice at a time, or are stored in tiles (matrix.repacked). The
 * next weights are prefetched, a few cache lines with each step. Results are written with
 * non-temporal stores; the caches would have to read the lines first. A fused product processes its
 * sums while they are in L1; if its results are packed again, they have the layout of the sums, so
 * nothing is transposed.
 *
 * F16 weights are exactly the sum of two bf16 numbers, w = w1 + w2; x is approximated by x1 + x2,
 * within 2^-17. Of the four products, w2 x2 is left out; it is at most 2^-16 of w x. */
#include "kernels/x86/many_rows_amx.h"

#include "kernels/x86/activation.h"

enum {
    SLICE_TILES = 18,        /* tiles per slice of 16 outputs: two times 18 KiB in L1 */
    BLOCK_BYTES = 880 << 10, /* bytes of x per block, for an L2 cache of 2 MiB */
    BLOCK_GROUPS = 24,       /* groups of rows, if only a slice of them stays in L2 */
    BLOCK_SUMS = 160 << 10,  /* floats of accumulators kept between slices */
    FETCH_LINES = 3,         /* lines of weights prefetched per step */
    LINE = 64,               /* bytes */
    PAIR = 2 * GROUP,        /* outputs, or rows, per multiplication */
    TILE_FLOATS = TILE_BYTES / 4,
    QUAD = 4 * TILE_FLOATS /* floats of the four C tiles of one multiplication */
};

/* ---- weights ---- */

void copy_tiles(uint8_t *dst, const struct matrix *w, int o, int apart, int k0, int k1)
{
    for (int r = 0; r < GROUP; r++) {
        const uint8_t *src = weight_row(w, o + r * apart);
        uint8_t *to = dst + r * 64;
        int k = k0;
        for (; k + TILE_K <= k1; k += TILE_K, to += TILE_BYTES)
            _mm512_store_si512(to, _mm512_loadu_si512(src + (size_t)k * 2));
        if (k < k1) /* masked: the next row may hold anything, also NaN */
            _mm512_store_si512(to,
                               _mm512_maskz_loadu_epi16((1u << (k1 - k)) - 1, src + (size_t)k * 2));
    }
}

/* The same for an F16 matrix, in two planes, for consecutive outputs. */
static void split_tiles(uint8_t *dst, const struct matrix *w, int o, int k0, int k1)
{
    for (int r = 0; r < GROUP; r++) {
        const uint8_t *src = weight_row(w, o + r) + (size_t)k0 * 2;
        uint8_t *to = dst + r * 64;
        for (int k = k0; k < k1; k += TILE_K, src += 64, to += 2 * TILE_BYTES)
            split_row(to, src, k1 - k);
    }
}

/* Cache lines of the weights that come next: `lines` of each of `rows` rows. */
struct fetch {
    const uint8_t *row;
    size_t row_size;
    int lines, at, rows;
};

static inline void fetch_weights(struct fetch *f)
{
    for (int i = 0; i < FETCH_LINES && f->rows > 0; i++) {
        _mm_prefetch((const char *)f->row + f->at * LINE, _MM_HINT_T1);
        if (++f->at == f->lines) {
            f->at = 0;
            f->row += f->row_size;
            f->rows--;
        }
    }
}

/* ---- one multiplication: tiles 0 1 / 2 3 are outputs by rows ---- */

struct operands {
    const uint8_t *a[2]; /* tiles of twice sixteen outputs */
    const uint8_t *b;    /* tiles of two groups of rows, */
    size_t b_step;       /* the second b_step bytes after the first */
    int steps;
    struct fetch next;
    /* Where results will be added, for 32 outputs of `rows` rows; NULL: nowhere. */
    const float *y;
    size_t y_stride;
    int rows;
    const uint8_t *to[2]; /* packed results of two groups will be written here; NULL: nowhere */
    int to_lines;
};

/* Prefetch the lines to which results will be added or written, a few with each step: all at once
 * they would delay the loads of tiles. */
static inline void fetch_results(const struct operands *m, int k)
{
    for (int r = k; m->y && r < m->rows; r += m->steps) {
        __builtin_prefetch(m->y + (size_t)r * m->y_stride, 1);
        __builtin_prefetch(m->y + (size_t)r * m->y_stride + GROUP, 1);
    }
    for (int i = k; m->to[0] && i < m->to_lines; i += m->steps) {
        __builtin_prefetch(m->to[0] + i * LINE, 1);
        __builtin_prefetch(m->to[1] + i * LINE, 1);
    }
}

static void multiply_bf16(struct operands *m)
{
    const uint8_t *a = m->a[0], *a2 = m->a[1], *b = m->b;
    for (int k = 0; k < m->steps; k++, a += TILE_BYTES, a2 += TILE_BYTES, b += TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_stream_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_stream_loadd(7, b + m->b_step, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a2, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        fetch_weights(&m->next);
        fetch_results(m, k);
    }
}

/* Adds w1 x2, then w1 x1, then w2 x1. */
static void multiply_split(struct operands *m)
{
    const uint8_t *a = m->a[0], *a2 = m->a[1], *b = m->b;
    const int step = 2 * TILE_BYTES;
    for (int k = 0; k < m->steps; k++, a += step, a2 += step, b += step) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, a2, 64);
        _tile_stream_loadd(6, b + TILE_BYTES, 64);
        _tile_stream_loadd(7, b + m->b_step + TILE_BYTES, 64);
        products_2x2();
        _tile_stream_loadd(6, b, 64);
        _tile_stream_loadd(7, b + m->b_step, 64);
        products_2x2();
        _tile_loadd(4, a + TILE_BYTES, 64);
        _tile_loadd(5, a2 + TILE_BYTES, 64);
        products_2x2();
        fetch_weights(&m->next);
        fetch_results(m, k);
    }
}

/* ---- blocks ---- */

/* Groups [g0, g1) of rows times outputs [o0, o1), over values [k0, k1). `wide` outputs are
 * multiplied at a time: 32, or 16 of each of two matrices. */
struct block {
    const struct target *t;
    const struct matrix *w;
    const uint8_t *xp;
    int planes, wide, slice;
    int g0, g1, o0, o1, k0, k1;
    bool stream; /* y may be written with non-temporal stores */
    float *sums; /* [outputs / wide][groups / 2][QUAD] */
    uint8_t *a;  /* two tiles of outputs, over the slice */
    float *c;    /* finished tiles, two quads in turn */
};

static const struct matrix *gate_of(const struct block *b)
{
    return b->wide == GROUP ? b->t->fused->gate : NULL;
}

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

/* The tiles of sixteen outputs from o on of a matrix stored in tiles, [outputs / 16][steps]. After
 * the last outputs, these are repeated; their products are computed but not stored. */
static const uint8_t *repacked_tiles(const struct matrix *w, int o, int k)
{
    int group = min_int(o / GROUP, (int)groups_of(w->out) - 1), steps = steps_of(w->in);
    return (const uint8_t *)w->repacked +
           ((size_t)group * (size_t)steps + (size_t)(k / TILE_K)) * TILE_BYTES;
}

/* Find the tiles of the outputs from o on: copied into scratch memory, or in place. */
static void load_weights(const struct block *b, int o, const uint8_t *a[2])
{
    const struct matrix *gate = gate_of(b);
    for (int i = 0; i < 2; i++) {
        const struct matrix *w = i == 0 && gate ? gate : b->w;
        uint8_t *to = b->a + i * SLICE_TILES * TILE_BYTES;
        int at = gate ? o : o + i * GROUP;
        a[i] = w->repacked ? repacked_tiles(w, at, b->k0) : to;
        if (w->repacked)
            continue;
        if (b->planes == 1)
            copy_tiles(to, w, at, 1, b->k0, b->k1);
        else
            split_tiles(to, w, at, b->k0, b->k1);
    }
    tiles_written();
}

/* The weights that come after those of outputs o: the next outputs of the block, or the next slice
 * of its first outputs. With a gate, only the other matrix is prefetched. */
static struct fetch next_weights(const struct block *b, int o)
{
    const struct matrix *w = b->w;
    int next = o + b->wide, k = b->k0;
    if (next >= b->o1) {
        next = b->k1 < w->in ? b->o0 : b->o1;
        k = b->k1 < w->in ? b->k1 : 0;
    }
    int values = min_int(b->slice * TILE_K, w->in - k), left = min_int(b->wide, w->out - next);
    if (w->repacked)
        return (struct fetch){ .row = repacked_tiles(w, next, k),
                               .row_size = (size_t)steps_of(w->in) * TILE_BYTES,
                               .lines = steps_of(values) * (TILE_BYTES / LINE),
                               .rows = (left + GROUP - 1) / GROUP };
    return (struct fetch){ .row = weight_row(w, next) + (size_t)k * 2,
                           .row_size = w->row_size,
                           .lines = (values * 2 + LINE - 1) / LINE,
                           .rows = left };
}

/* ---- results ---- */

/* Where the packed results of outputs o, ... of one group go. */
static uint8_t *packed_tile(const struct block *b, int o, int g)
{
    size_t tile = (size_t)b->planes * TILE_BYTES;
    size_t at = (size_t)g * (size_t)steps_of(b->w->out) + (size_t)(o / TILE_K);
    return (uint8_t *)b->t->fused->to + at * tile;
}

static inline void put_line(float *y, __m512 v, bool stream)
{
    if (stream)
        _mm512_stream_ps(y, v);
    else
        _mm512_storeu_ps(y, v);
}

/* Store sixteen outputs from o on of the rows of one group in y, or add them to y. */
static void put_rows(const struct block *b, const float *c, int o, int g)
{
    const struct target *t = b->t;
    __mmask16 there = (__mmask16)((1u << min_int(GROUP, t->o1 - o)) - 1);
    int rows = min_int(GROUP, t->n - g * GROUP);
    float *y = t->y + (size_t)g * GROUP * t->stride + o;
    __m512 bias = t->bias ? _mm512_maskz_loadu_ps(there, t->bias + o) : _mm512_setzero_ps();
    __m512i v[16];
    for (int i = 0; i < 16; i++)
        v[i] = _mm512_load_si512(c + i * 16);
    transpose_16x16(v);
    for (int r = 0; r < rows; r++, y += t->stride) {
        __m512 s = t->bias ? _mm512_add_ps((__m512)v[r], bias) : (__m512)v[r];
        if (t->fused)
            s = _mm512_add_ps(_mm512_maskz_loadu_ps(there, y), s);
        if (there == 0xffff)
            put_line(y, s, b->stream);
        else
            _mm512_mask_storeu_ps(y, there, s);
    }
}

/* Load the sums of ACT_MANY outputs from o on, each of sixteen rows. The padding of the last tile
 * is zero and stays zero. */
INLINE void sums_of(vec *v, const struct target *t, const float *c, const float *bias, int o)
{
#pragma GCC unroll 8
    for (int i = 0; i < ACT_MANY; i++, c += 16) {
        v[i] = o + i < t->o1 ? _mm512_load_ps(c) : _mm512_setzero_ps();
        if (bias && o + i < t->o1)
            v[i] = _mm512_add_ps(v[i], _mm512_set1_ps(bias[o + i]));
    }
}

/* Pack the results of one group: a row of a tile has two outputs of sixteen rows. */
INLINE void put_packed_by(const struct block *b, const float *c, int o, int g, int planes)
{
    const struct target *t = b->t;
    const __m512i order = pair_order(GROUP);
    uint8_t *tile = packed_tile(b, o, g);
    for (int i = 0; i < b->wide; i += ACT_MANY) {
        const float *row = c + i / GROUP * 2 * TILE_FLOATS + i % GROUP * 16;
        vec v[ACT_MANY], up[ACT_MANY];
        if (t->fused->kind == FUSED_GELU) {
            sums_of(v, t, row, t->bias, o + i);
            gelu_tanh_many(v, ACT_MANY);
        } else {
            sums_of(v, t, row, t->fused->gate->bias, o + i);
            sums_of(up, t, row + 2 * TILE_FLOATS, t->bias, o + i);
            silu_mul_many(v, up, ACT_MANY);
        }
        for (int j = 0; j < ACT_MANY; j += 2) {
            int pair = (o % TILE_K + i + j) / 2;
            pair_rows(tile + (planes == 2 ? split_place(pair) : pair) * 64, v[j], v[j + 1], order,
                      planes);
        }
    }
}

static void put_packed(const struct block *b, const float *c, int o, int g)
{
    if (b->planes == 1)
        put_packed_by(b, c, o, g, 1);
    else
        put_packed_by(b, c, o, g, 2);
}

/* If the last tile lacks sixteen outputs, set that half to zero. */
static void put_zeros(const struct block *b, int g)
{
    const struct target *t = b->t;
    size_t tile = (size_t)b->planes * TILE_BYTES, steps = (size_t)steps_of(b->w->out);
    uint8_t *to = (uint8_t *)t->fused->to + ((size_t)(g + 1) * steps - 1) * tile;
    for (int p = 0; p < b->planes; p++, to += TILE_BYTES)
        for (int i = GROUP / 2; i < GROUP; i++)
            _mm512_store_si512(to + (b->planes == 2 ? split_place(i) : i) * 64,
                               _mm512_setzero_si512());
}

static void put_quad(const struct block *b, const float *c, int o, int g)
{
    const struct target *t = b->t;
    bool packed = t->fused && t->fused->kind != FUSED_ADD;
    for (int j = 0; j < 2 && g + j < b->g1; j++, c += TILE_FLOATS) {
        if (packed) {
            put_packed(b, c, o, g + j);
            if (b->wide == GROUP && o + GROUP >= b->w->out && o % TILE_K == 0)
                put_zeros(b, g + j);
        } else {
            put_rows(b, c, o, g + j);
            if (o + GROUP < t->o1)
                put_rows(b, c + 2 * TILE_FLOATS, o + GROUP, g + j);
        }
    }
}

/* ---- blocks of rows and outputs ---- */

/* Multiply all rows of the block by `wide` outputs from o on. An odd last group is computed twice,
 * with the same result. */
static void outputs_run(const struct block *b, int o)
{
    size_t tile = (size_t)b->planes * TILE_BYTES, group = (size_t)steps_of(b->w->in) * tile;
    size_t pairs = (size_t)(b->g1 - b->g0 + 1) / 2;
    const struct target *t = b->t;
    bool last = b->k1 == b->w->in, adds = last && t->fused && t->fused->kind == FUSED_ADD;
    bool packs = last && t->fused && !adds;
    struct operands m = { .steps = steps_of(b->k1 - b->k0),
                          .next = next_weights(b, o),
                          .y_stride = t->stride,
                          .to_lines = b->planes * (TILE_BYTES / LINE) };
    load_weights(b, o, m.a);
    for (int g = b->g0; g < b->g1; g += 2) {
        size_t pair = (size_t)(g - b->g0) / 2;
        float *sums = b->sums + ((size_t)((o - b->o0) / b->wide) * pairs + pair) * QUAD;
        float *to = last ? b->c + pair % 2 * QUAD : sums;
        m.b = b->xp + (size_t)g * group + (size_t)(b->k0 / TILE_K) * tile;
        m.b_step = g + 1 < b->g1 ? group : 0;
        m.y = adds ? t->y + (size_t)g * GROUP * t->stride + o : NULL;
        m.rows = min_int(PAIR, t->n - g * GROUP);
        for (int j = 0; j < 2 && packs; j++)
            m.to[j] = packed_tile(b, o, min_int(g + j, b->g1 - 1));
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

static void block_run(struct block *b, int o0, int outs)
{
    const struct matrix *w = b->w;
    for (b->o0 = o0; b->o0 < b->t->o1; b->o0 = b->o1) {
        b->o1 = min_int(b->t->o1, b->o0 + outs);
        for (b->k0 = 0; b->k0 < w->in; b->k0 = b->k1) {
            b->k1 = min_int(w->in, b->k0 + b->slice * TILE_K);
            for (int o = b->o0; o < b->o1; o += b->wide)
                outputs_run(b, o);
        }
    }
}

size_t many_rows_scratch(void)
{
    return sizeof(float) * (2 * QUAD + BLOCK_SUMS) + 2 * SLICE_TILES * TILE_BYTES;
}

void many_rows_run(const struct target *t, const uint8_t *xp, const struct matrix *w, int o0,
                   void *scratch)
{
    bool gated = t->fused && t->fused->kind == FUSED_SILU_MUL;
    struct block b = { .t = t,
                       .w = w,
                       .xp = xp,
                       .planes = w->dtype == DTYPE_F16 ? 2 : 1,
                       .wide = gated ? GROUP : PAIR,
                       .stream = !t->fused && t->stride % 16 == 0 && (uintptr_t)t->y % LINE == 0,
                       .c = scratch };
    int most_steps = SLICE_TILES / b.planes, steps = steps_of(w->in), groups = (int)groups_of(t->n);
    int slices = (steps + most_steps - 1) / most_steps;
    /* Either whole rows stay in L2, or a slice of them. */
    int most = BLOCK_BYTES / (steps * b.planes * TILE_BYTES), whole = most >= BLOCK_GROUPS / 2;
    most = whole ? most : BLOCK_GROUPS;
    int blocks = (groups + most - 1) / most, rows = (groups + 2 * blocks - 1) / (2 * blocks) * 2;
    int outs = whole ? b.wide : BLOCK_SUMS / (rows * GROUP) / PAIR * b.wide;
    b.slice = (steps + slices - 1) / slices;
    b.a = (uint8_t *)(b.c + 2 * QUAD);
    b.sums = (float *)(void *)(b.a + 2 * SLICE_TILES * TILE_BYTES);
    for (b.g0 = 0; b.g0 < groups; b.g0 = b.g1) {
        b.g1 = min_int(groups, b.g0 + rows);
        block_run(&b, o0, outs);
    }
    if (b.stream)
        _mm_sfence();
}

void many_rows_fused(const struct matmul_fused *f, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    struct target t = {
        .y = f->y, .stride = f->y_stride, .bias = w->bias, .n = n, .o1 = o1, .fused = f
    };
    tile_config();
    many_rows_run(&t, xp, w, o0, scratch);
    _tile_release();
}
