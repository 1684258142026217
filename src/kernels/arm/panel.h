/* Matrix product over panels of weights, shared by the Arm kernels.
 *
 * A few weight rows (a panel) are converted to the form that the inner loop needs, a chunk of `in`
 * at a time, and used for a block of rows of x before the next chunk is read:
 *
 *   for each block of rows (its packed x fits in L2, or streams from L3 at a few bytes a cycle)
 *     for each panel of outputs
 *       for each chunk of `in` (panel chunk and x of one tile fit in L1)
 *         load the panel; for each tile of rows: acc += x . panel
 *       y = acc
 *
 * Between chunks the accumulators are stored in memory unchanged, so the operations on one (row,
 * output) are the same for all block sizes: one sequence over `in`. */
#ifndef PV_KERNELS_ARM_PANEL_H
#define PV_KERNELS_ARM_PANEL_H

#include "kernels/kernels.h"

#include <string.h>

enum {
    PANEL_ROWS = 96,            /* most rows of a block, */
    PANEL_ROWS_MIN = 48,        /* and fewest: they share the cost of loading a panel */
    PANEL_X_SIZE = 1024 * 1024, /* approximate bytes of packed x per block */
    PANEL_CUT = 256,            /* chunks are multiples of this many elements */
    PANEL_LINE = 64             /* bytes */
};

/* One tile's work in one chunk. */
struct panel_tile {
    float *acc;           /* of this tile; layout of the kernel's choice */
    const void *panel;    /* the chunk as loaded */
    const void *xp;       /* all packed rows */
    int outs;             /* outputs of the panel that are wanted */
    int in, row, rows;    /* first row of the tile in xp, rows of the tile */
    int k0, k1;           /* range of `in` */
    const uint8_t *ahead; /* weights to prefetch, one line per step, never read */
};

struct panel_kernel {
    int outs;  /* outputs of a panel */
    int rows;  /* most rows of a tile */
    int unit;  /* tiles begin at multiples of this many rows */
    int chunk; /* most elements of `in` per chunk, a multiple of PANEL_CUT */
    int step;  /* elements of `in` per line that `tile` prefetches, all strips together */
    size_t panel_size;
    size_t acc_row; /* accumulator floats per row */
    size_t (*x_size)(int n, int in);
    /* Load elements k0 .. k1 - 1 of n_out outputs from o on, and of those that complete their
     * strip; after the last row of the matrix, the last row is repeated. */
    void (*load)(void *panel, const struct matrix *w, int o, int n_out, int k0, int k1);
    void (*tile)(const struct panel_tile *t); /* starts from zero when k0 is 0 */
    /* Write n_out outputs of the tile. */
    void (*store)(float *y, size_t y_stride, const float *acc, int rows, int n_out,
                  const float *bias);
};

static inline int panel_min(int a, int b)
{
    return a < b ? a : b;
}

static inline size_t panel_scratch(const struct panel_kernel *p)
{
    return p->panel_size + sizeof(float) * p->acc_row * PANEL_ROWS;
}

static inline const uint8_t *panel_row(const struct matrix *w, int o)
{
    return (const uint8_t *)w->data + (size_t)panel_min(o, w->out - 1) * w->row_size;
}

/* Copy the last `count` bytes, from byte `at` on, of n weight rows, `apart` rows from each other,
 * each followed by zeros up to `size` bytes. */
static inline void panel_tail(uint8_t *dst, size_t size, const struct matrix *w, int o, int apart,
                              int n, size_t at, size_t count)
{
    memset(dst, 0, size * (size_t)n);
    for (int i = 0; i < n; i++)
        memcpy(dst + size * (size_t)i, panel_row(w, o + i * apart) + at, count);
}

/* First row of tile i if `rows` rows are cut into n tiles as evenly as units allow. */
static inline int panel_cut(const struct panel_kernel *p, int rows, int i, int n)
{
    int units = (rows + p->unit - 1) / p->unit;
    return panel_min(rows, units * i / n * p->unit);
}

/* Multiply rows row0 .. row0 + rows - 1 by the panel of outputs at o. */
static inline void panel_block(const struct panel_kernel *p, float *y, size_t y_stride,
                               const void *xp, int row0, int rows, const struct matrix *w, int o,
                               int n_out, void *scratch)
{
    float *acc = (float *)((uint8_t *)scratch + p->panel_size);
    int n_tiles = (rows + p->rows - 1) / p->rows;
    /* The next panel's rows follow in memory; they are prefetched to L2 while this one is computed.
     */
    const uint8_t *ahead = panel_row(w, o) + (size_t)p->outs * w->row_size;
    const uint8_t *ahead_end = ahead + (size_t)p->outs * w->row_size;
    int n_chunks = (w->in + p->chunk - 1) / p->chunk;
    int chunk = ((w->in + n_chunks - 1) / n_chunks + PANEL_CUT - 1) / PANEL_CUT * PANEL_CUT;
    for (int k0 = 0; k0 < w->in; k0 += chunk) {
        int k1 = panel_min(w->in, k0 + chunk);
        p->load(scratch, w, o, n_out, k0, k1);
        for (int i = 0; i < n_tiles; i++) {
            int r0 = panel_cut(p, rows, i, n_tiles), r1 = panel_cut(p, rows, i + 1, n_tiles);
            struct panel_tile t = { .acc = acc + (size_t)r0 * p->acc_row,
                                    .panel = scratch,
                                    .xp = xp,
                                    .outs = n_out,
                                    .in = w->in,
                                    .row = row0 + r0,
                                    .rows = r1 - r0,
                                    .k0 = k0,
                                    .k1 = k1,
                                    .ahead = ahead };
            p->tile(&t);
            ahead += (size_t)((k1 - k0) / p->step) * PANEL_LINE;
            ahead = ahead < ahead_end ? ahead : ahead_end;
        }
    }
    for (int i = 0; i < n_tiles; i++) {
        int r0 = panel_cut(p, rows, i, n_tiles), r1 = panel_cut(p, rows, i + 1, n_tiles);
        p->store(y + (size_t)(row0 + r0) * y_stride + o, y_stride, acc + (size_t)r0 * p->acc_row,
                 r1 - r0, n_out, w->bias ? w->bias + o : NULL);
    }
}

/* The number of rows of a block. */
static inline int panel_rows(const struct panel_kernel *p, int in)
{
    size_t fit = PANEL_X_SIZE / (p->x_size(p->unit, in) / (size_t)p->unit);
    return (fit >= PANEL_ROWS ? PANEL_ROWS : PANEL_ROWS_MIN) / p->unit * p->unit;
}

/* The rows of one tile: the first, and how many. */
struct panel_part {
    int row, rows;
};

/* The tile that contains `row` of n rows of x. */
static inline struct panel_part panel_part_of(const struct panel_kernel *p, int n, int in, int row)
{
    int block = panel_rows(p, in), first = row / block * block;
    int rows = panel_min(block, n - first), n_tiles = (rows + p->rows - 1) / p->rows, i = 0;
    while (first + panel_cut(p, rows, i + 1, n_tiles) <= row)
        i++;
    int from = panel_cut(p, rows, i, n_tiles);
    return (struct panel_part){ first + from, panel_cut(p, rows, i + 1, n_tiles) - from };
}

static inline void panel_run(const struct panel_kernel *p, float *y, size_t y_stride,
                             const void *xp, int n, const struct matrix *w, int o0, int o1,
                             void *scratch)
{
    int block = panel_rows(p, w->in);
    for (int row = 0; row < n; row += block)
        for (int o = o0; o < o1; o += p->outs)
            panel_block(p, y, y_stride, xp, row, panel_min(block, n - row), w, o,
                        panel_min(p->outs, o1 - o), scratch);
}

/* Goes through outputs in groups of `streams`, whose weight rows are read at the same time.
 * Neighbouring rows are in one page or two, where the hardware sees a single stream and does not
 * prefetch. Rows that are `apart` rows from each other, each followed by its neighbours, are as
 * many long streams (rows of 952 bytes, both cores of a Neoverse-V1: 27 GB/s for four neighbours,
 * 63 for four far apart, 67 for sixteen). Software prefetch made all of these slower, so there is
 * none. */
struct far_walk {
    int o, apart; /* this group: o, o + apart, o + 2 apart, ... */
    int n_out;    /* outputs of this group: `streams`, fewer in the last */
    int streams, first, end, left;
};

/* Start with outputs [o0, o1). */
static inline struct far_walk far_walk(int o0, int o1, int streams)
{
    return (struct far_walk){ .streams = streams, .first = o0, .end = o1 };
}

/* Go to the next group. Returns false if there is none. */
static inline bool far_next(struct far_walk *f)
{
    int count = f->end - f->first;
    if (f->left > 0) {
        f->left--;
        f->o++;
        return true;
    }
    if (count <= 0)
        return false;
    f->apart = count < f->streams ? 1 : count / f->streams;
    f->n_out = panel_min(f->streams, count);
    f->o = f->first;
    f->left = f->apart - 1;
    f->first += f->apart * f->streams;
    return true;
}

/* Weight row of output i of the group; after the last row of the matrix, the last row again. */
static inline const uint8_t *far_row(const struct far_walk *f, const struct matrix *w, int i)
{
    return panel_row(w, f->o + i * f->apart);
}

#endif
