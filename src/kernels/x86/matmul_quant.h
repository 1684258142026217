/* Products with quantised weights: a template, compiled once per instruction set (AVX-512:
 * K-quants, Q4_1 and Q5_1 only; matmul_int8_avx512.c has the others).
 *
 * x is rounded to int8 in blocks of 32 with one scale. For each (row, output), block after block,
 *     acc = fma(float(sum of q_w q_x), scale_w * scale_x, acc)
 * with a second step for the mins of Q4_K, Q5_K, Q4_1, Q5_1 and the second scale of Q6_K. The sums
 * are exact integers, so this line is the whole sequence of roundings, for any blocking. A tile is
 * VEC outputs (one vector) by QUANT_ROWS rows over PANEL_BLOCKS blocks; y holds the accumulators
 * between pieces of `in`.
 *
 * Packed x: tiles of QUANT_ROWS rows (fewer in the last); a tile has, block after block, its rows.
 */
#ifndef PV_KERNELS_X86_MATMUL_QUANT_H
#define PV_KERNELS_X86_MATMUL_QUANT_H

#include "kernels/kernels.h"
#include "kernels/x86/quant_dot_x86.h"
#include "kernels/x86/quant_repacked.h"

enum {
    GROUP_TILES = 4, /* tiles of outputs unpacked together if there are many rows */
};

struct quant_format {
    enum quant_kind kind;
    int bits; /* bits of the weights' quants */
    unpack_fn *unpack;
};

static const struct quant_format *quant_format(enum dtype t);

static size_t quant_packed_size(int n, int in)
{
    return sizeof(struct x_block) * (size_t)n * (size_t)(in / BLOCK);
}

static size_t quant_scratch_size(int in)
{
    (void)in;
    return sizeof(struct panel_block) * GROUP_TILES * PANEL_BLOCKS;
}

INLINE void quant_pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1,
                       enum quant_kind kind, int over, bool wide)
{
    size_t n_blocks = (size_t)(in / BLOCK);
    for (int r = r0; r < r1; r++) {
        int first = r / QUANT_ROWS * QUANT_ROWS;
        size_t rows = (size_t)(n - first < QUANT_ROWS ? n - first : QUANT_ROWS);
        struct x_block *dst = (struct x_block *)xp + n_blocks * (size_t)first + (r - first);
        for (size_t b = 0; b < n_blocks; b++)
            x_block_pack(dst + b * rows, x + stride * (size_t)r + b * BLOCK, kind, over, wide);
    }
}

/* Multiply `n` blocks of `tiles` tiles of outputs by `rows` rows of x, x_rows apart. `rows`,
 * `tiles`, `kind` and `bits` are compile-time constants. Several tiles are whole. */
INLINE void quant_tile(float *y, size_t y_stride, const struct panel_block *p,
                       const struct x_block *x, size_t x_rows, int n, int outs, bool first,
                       int rows, int tiles, enum quant_kind kind, int bits)
{
    vec acc[QUANT_TILES][QUANT_ROWS];

    for (int t = 0; t < tiles; t++)
        for (int r = 0; r < rows; r++) {
            const float *row = y + y_stride * (size_t)r + t * VEC;
            acc[t][r] = first                      ? vec_zero()
                        : tiles > 1 || outs == VEC ? vec_load(row)
                                                   : vec_load_part(row, outs);
        }
    for (int b = 0; b < n; b++, p++, x += x_rows) {
        ivec sum[QUANT_TILES][QUANT_ROWS], half[QUANT_TILES][QUANT_ROWS];
        dot_block(sum, half, p, x, rows, tiles, kind == QUANT_HALVES, bits);
        for (int t = 0; t < tiles; t++) {
            vec scale = p[t * PANEL_BLOCKS].scale;
            vec other = kind == QUANT_PLAIN ? scale : p[t * PANEL_BLOCKS].other;
            for (int r = 0; r < rows; r++) {
                vec xs = vec_set(x[r].scale);
                acc[t][r] = vec_fma(ivec_float(sum[t][r]), vec_mul(scale, xs), acc[t][r]);
                if (kind == QUANT_HALVES)
                    acc[t][r] = vec_fma(ivec_float(half[t][r]), vec_mul(other, xs), acc[t][r]);
                if (kind == QUANT_MINS)
                    acc[t][r] = vec_fnma(other, vec_set(x[r].sum), acc[t][r]);
            }
        }
    }
    for (int t = 0; t < tiles; t++)
        for (int r = 0; r < rows; r++) {
            float *row = y + y_stride * (size_t)r + t * VEC;
            if (tiles > 1 || outs == VEC)
                vec_store(row, acc[t][r]);
            else
                vec_store_part(row, acc[t][r], outs);
        }
}

/* One piece: one panel, or QUANT_TILES of them, times one tile of x_rows rows. */
struct piece {
    const struct panel_block *panel;
    int tiles;
    const struct x_block *x;
    int x_rows;
    int n;    /* blocks */
    int outs; /* outputs of the VEC that exist */
    bool first;
    float *y;
    size_t y_stride;
};

INLINE void piece_rows(const struct piece *p, int r, int rows, int tiles, enum quant_kind kind,
                       int bits)
{
    quant_tile(p->y + p->y_stride * (size_t)r, p->y_stride, p->panel, p->x + r, (size_t)p->x_rows,
               p->n, p->outs, p->first, rows, tiles, kind, bits);
}

/* Runs rows in pieces of 8, 4, 2 and 1. */
INLINE void piece_run(const struct piece *p, enum quant_kind kind, int bits)
{
    int r = 0;
    if (QUANT_TILES > 1 && bits == 8 && p->tiles > 1) {
        piece_rows(p, 0, QUANT_ROWS, QUANT_TILES, kind, bits);
        return;
    }
    if (p->x_rows == QUANT_ROWS) {
        piece_rows(p, 0, QUANT_ROWS, 1, kind, bits);
        return;
    }
    for (; p->x_rows - r >= 4; r += 4)
        piece_rows(p, r, 4, 1, kind, bits);
    if (p->x_rows - r >= 2) {
        piece_rows(p, r, 2, 1, kind, bits);
        r += 2;
    }
    if (p->x_rows - r >= 1)
        piece_rows(p, r, 1, 1, kind, bits);
}

static void piece_mins_4(const struct piece *p)
{
    piece_run(p, QUANT_MINS, 4);
}

static void piece_mins_5(const struct piece *p)
{
    piece_run(p, QUANT_MINS, 5);
}

static void piece_halves(const struct piece *p)
{
    piece_run(p, QUANT_HALVES, 6);
}

#ifndef __AVX512F__
static void piece_plain_4(const struct piece *p)
{
    piece_run(p, QUANT_PLAIN, 4);
}

static void piece_plain_5(const struct piece *p)
{
    piece_run(p, QUANT_PLAIN, 5);
}

static void piece_plain_8(const struct piece *p)
{
    piece_run(p, QUANT_PLAIN, 8);
}
#endif

static void piece_any(const struct piece *p, const struct quant_format *f)
{
    if (f->kind == QUANT_HALVES)
        piece_halves(p);
    else if (f->kind == QUANT_MINS)
        f->bits == 4 ? piece_mins_4(p) : piece_mins_5(p);
#ifndef __AVX512F__
    else if (f->bits == 8)
        piece_plain_8(p);
    else
        f->bits == 4 ? piece_plain_4(p) : piece_plain_5(p);
#endif
}

/* ---- repacking ---- */

static void quant_repack(void *to, const struct matrix *w, int o0, int o1)
{
    size_t size = (size_t)dtype_block_size(w->dtype), planes = repacked_planes(w->dtype);
    size_t lines = repacked_lines(w->dtype), units = (size_t)(w->in / dtype_block(w->dtype));
    size_t plane = quant_repacked_plane(w), step = lines / planes * VEC * 4;
    size_t at[REPACKED_LINES_MAX]; /* offset of a line from its block */
    for (size_t i = 0; i < lines; i++)
        at[i] = i % planes * plane + i / planes * VEC * 4;
    for (int o = o0; o < o1; o += VEC)
        for (int j = 0; j < VEC; j++) {
            int row = o + j < w->out ? o + j : w->out - 1;
            const uint8_t *from = (const uint8_t *)w->data + w->row_size * (size_t)row;
            uint8_t *tile =
                (uint8_t *)to + (size_t)(o / VEC) * quant_repacked_tile(w) + (size_t)j * 4;
            for (size_t u = 0; u < units; u++, from += size, tile += step) {
                size_t whole = size / 4;
                for (size_t i = 0; i < whole; i++)
                    memcpy(tile + at[i], from + 4 * i, 4);
                for (size_t i = whole; i < lines; i++) { /* the last bytes, padded with zeros */
                    uint32_t v = 0;
                    memcpy(&v, from + 4 * whole, i == whole ? size - 4 * whole : 0);
                    memcpy(tile + at[i], &v, 4);
                }
            }
        }
}

/* ---- outputs ---- */

static void tile_rows_set(struct tile_rows *t, const struct matrix *w, int o, int outs)
{
    int32_t at[VEC];
    for (int i = 0; i < VEC; i++) {
        int row = i < outs ? i : outs - 1;
        at[i] = (int32_t)((size_t)row * w->row_size);
        t->row[i] = (const uint8_t *)w->data + w->row_size * (size_t)(o + row);
    }
    t->at = ivec_load(at);
    t->repacked = NULL;
    if (w->repacked)
        quant_repacked_rows(t, w, o);
}

/* While piece `i` of `n` of this tile is computed, prefetch the i-th part of the next tile, in the
 * order of memory: the tile's own rows are too short for the hardware prefetcher. */
INLINE void tile_prefetch(const struct tile_rows *t, const struct matrix *w, int i, int n)
{
    size_t size = VEC * w->row_size, part = size / (size_t)n;
    const char *next = (const char *)t->row[0] + size;
    for (size_t at = part * (size_t)i; at < part * (size_t)(i + 1); at += 64)
        _mm_prefetch(next + at, _MM_HINT_T1);
}

/* Compute outputs [o0, o1), at most GROUP_TILES tiles, of all rows. */
static void group_run(float *y, size_t y_stride, const struct x_block *x, int n,
                      const struct matrix *w, int o0, int o1, struct panel_block *panels)
{
    const struct quant_format *f = quant_format(w->dtype);
    int n_blocks = w->in / BLOCK;

    for (int b = 0; b < n_blocks; b += PANEL_BLOCKS) {
        struct piece p = { .n = n_blocks - b < PANEL_BLOCKS ? n_blocks - b : PANEL_BLOCKS,
                           .first = b == 0,
                           .y_stride = y_stride };
        for (int o = o0, i = 0; o < o1; o += VEC, i++) {
            struct tile_rows rows;
            tile_rows_set(&rows, w, o, o1 - o < VEC ? o1 - o : VEC);
            if (n <= QUANT_ROWS && !w->repacked)
                tile_prefetch(&rows, w, b / PANEL_BLOCKS,
                              (n_blocks + PANEL_BLOCKS - 1) / PANEL_BLOCKS);
            f->unpack(panels + (size_t)i * PANEL_BLOCKS, &rows, (size_t)b, p.n);
        }
        for (int r = 0; r < n; r += QUANT_ROWS) {
            p.x_rows = n - r < QUANT_ROWS ? n - r : QUANT_ROWS;
            p.x = x + (size_t)n_blocks * (size_t)r + (size_t)b * (size_t)p.x_rows;
            for (int o = o0, i = 0; o < o1; o += VEC * p.tiles, i += p.tiles) {
                bool several =
                    f->bits == 8 && p.x_rows == QUANT_ROWS && o1 - o >= VEC * QUANT_TILES;
                p.tiles = several ? QUANT_TILES : 1;
                p.panel = panels + (size_t)i * PANEL_BLOCKS;
                p.outs = o1 - o < VEC ? o1 - o : VEC;
                p.y = y + y_stride * (size_t)r + o;
                piece_any(&p, f);
            }
        }
    }
}

static void quant_bias(float *y, size_t y_stride, int n, const struct matrix *w, int o0, int o1)
{
    for (int r = 0; w->bias && r < n; r++)
        for (int o = o0; o < o1; o++)
            y[y_stride * (size_t)r + (size_t)o] += w->bias[o];
}

static void quant_run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                      int o0, int o1, void *scratch)
{
    /* With few rows, one tile at a time, to keep the number of streams of weights low. */
    int step = n <= QUANT_ROWS ? VEC : VEC * GROUP_TILES;

    for (int o = o0; o < o1; o += step)
        group_run(y, y_stride, xp, n, w, o, o1 - o < step ? o1 : o + step, scratch);
    quant_bias(y, y_stride, n, w, o0, o1);
}

#ifndef __AVX512F__
static void quant_pack_q8_0(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    quant_pack(xp, x, stride, n, in, r0, r1, QUANT_PLAIN, 0, true);
}

static void quant_pack_q4_0(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    quant_pack(xp, x, stride, n, in, r0, r1, QUANT_PLAIN, 8, false);
}

static void quant_pack_q5_0(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    quant_pack(xp, x, stride, n, in, r0, r1, QUANT_PLAIN, 16, false);
}
#endif

static void quant_pack_mins(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    quant_pack(xp, x, stride, n, in, r0, r1, QUANT_MINS, 0, false);
}

static void quant_pack_q6_K(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    quant_pack(xp, x, stride, n, in, r0, r1, QUANT_HALVES, 32, false);
}

static void unpack_q6_K(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    (void)n;
    unpack_q6_K_less(p, t, block, 0);
}

static const struct quant_format *quant_format(enum dtype t)
{
    static const struct quant_format formats[DTYPE_COUNT] = {
#ifndef __AVX512F__
        [DTYPE_Q8_0] = { QUANT_PLAIN, 8, unpack_q8_0 },
        [DTYPE_Q4_0] = { QUANT_PLAIN, 4, unpack_q4_0 },
        [DTYPE_Q5_0] = { QUANT_PLAIN, 5, unpack_q5_0 },
        [DTYPE_IQ4_NL] = { QUANT_PLAIN, 8, unpack_iq4_nl },
#endif
        [DTYPE_Q4_K] = { QUANT_MINS, 4, unpack_q4_K },
        [DTYPE_Q5_K] = { QUANT_MINS, 5, unpack_q5_K },
        [DTYPE_Q6_K] = { QUANT_HALVES, 6, unpack_q6_K },
        [DTYPE_Q4_1] = { QUANT_MINS, 4, unpack_q4_1 },
        [DTYPE_Q5_1] = { QUANT_MINS, 5, unpack_q5_1 },
    };
    return &formats[t];
}

#define QUANT_KERNEL(isa, unit, pack_fn, run_fn)                                                   \
    {                                                                                              \
        .name = isa, .in_multiple = unit, .row_step = QUANT_ROWS, .out_step = 1,                   \
        .packed_size = quant_packed_size, .scratch_size = quant_scratch_size, .pack = pack_fn,     \
        .run = run_fn                                                                              \
    }

/* The same for repacked weights. */
#define QUANT_REPACKED_KERNEL(isa, unit, pack_fn, run_fn)                                          \
    {                                                                                              \
        .name = isa, .in_multiple = unit, .row_step = QUANT_ROWS, .out_step = VEC,                 \
        .packed_size = quant_packed_size, .scratch_size = quant_scratch_size, .pack = pack_fn,     \
        .run = run_fn, .repacked_size = quant_repacked_size, .repack = quant_repack                \
    }

#endif
