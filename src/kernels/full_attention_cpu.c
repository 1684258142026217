/* Attention without a KV cache: all rows of a segment (a frame, a window) attend to each other. A
 * kernel may compute a whole work item at once (attn_kernel.head); the following describes the
 * others.
 *
 * A work item is one head of up to BLOCK_QUERIES rows of one segment. It goes through the segment's
 * rows in chunks of KV_CHUNK: keys and values of the chunk are rounded and stored in the thread's
 * scratch memory in the layout of the cache, all tiles of the item's queries run over them, and the
 * results are joined to those of the chunks before. So the scratch memory does not grow with the
 * segment, and keys and values are rearranged once per BLOCK_QUERIES queries.
 *
 * If the special kernel of the table does not support the head size, heads are padded with zeros,
 * which add nothing. F16 keys and values may be stored as pairs of bf16 numbers (attn_pair), which
 * are more precise. A row's bits depend only on its segment: chunks are counted from the segment's
 * first row and joined in order. */
#include "kernels/attn_chunk.h"

#include "base/minmax.h"
#include "kernels/device_cpu.h"
#include "tensor/half.h"

#include <string.h>

enum {
    BLOCK_QUERIES = 768, /* most rows of an item: a frame of 27 x 27 patches is one item */
    POSITION_STEP = 64,  /* chunk kernels take multiples of this */
    FETCH_ROWS = 6,      /* prefetch distance in rows: a head is a few lines per row, far apart */
    TURN_ROWS = 32,      /* rows of V that are transposed together: one cache line per column */
    LINE_FLOATS = 16
};

static int round_up(int n, int step)
{
    return (n + step - 1) / step * step;
}

struct region {
    struct device_work *w;
    const struct full_attn_job *job;
    struct chunk_kernel chunk; /* for heads padded to chunk.d */
    int planes;                /* bf16 numbers per value: 1 or 2 */
    int blocks;                /* items per head of the longest segment */
    struct work_queue queue;
};

/* One item: queries [q0, q0 + n_q) of the segment of rows [row0, row0 + n). */
struct item {
    int head, row0, n, q0, n_q;
};

struct item_mem {
    uint8_t *qp;               /* packed queries, tile after tile */
    float *query;              /* a tile of queries, padded */
    const float **q;           /* its rows */
    int *limit;                /* limits of a tile's queries: all the same */
    struct attn_partial row;   /* results of the item's queries so far */
    struct attn_partial chunk; /* results of a tile over the current chunk */
    uint8_t *k, *vt;           /* the current chunk */
    uint8_t *value;            /* TURN_ROWS rows of values, rounded */
    float *rest;               /* the rounding errors of a row */
    void *scratch;
};

/* Find the kernel for heads of d values, and the number of planes it needs. */
static struct chunk_kernel find_chunk(const struct kernels *k, enum dtype t, int d, int *planes)
{
    const struct attn_kernel *fast = k->attn[t];
    *planes = 1;
    if (t == DTYPE_F16 && k->attn_pair) {
        int wide = round_up(d, k->attn_pair->d_multiple);
        *planes = 2;
        return (struct chunk_kernel){ .k = k,
                                      .fast = k->attn_pair,
                                      .t = DTYPE_BF16,
                                      .d = wide,
                                      .tile = k->attn_pair->max_queries };
    }
    return chunk_kernel_find(k, t, fast ? round_up(d, fast->d_multiple) : d, 0);
}

static int block_of(int segment)
{
    return min_int(segment, BLOCK_QUERIES);
}

static size_t item_mem_init(struct item_mem *m, void *mem, size_t cap, const struct chunk_kernel *c,
                            int planes, int segment)
{
    size_t n = (size_t)round_up(block_of(segment), c->tile), d = (size_t)c->d;
    size_t tile = (size_t)c->tile, chunk = dtype_row_size(c->t, KV_CHUNK) * d * (size_t)planes;
    struct mem_part parts[] = {
        { &m->qp, n / tile * arena_cost(chunk_packed_size(c)) },
        { &m->query, sizeof(float) * tile * d },
        { &m->q, sizeof(float *) * tile },
        { &m->limit, sizeof(int) * tile },
        { &m->row.max, sizeof(float) * n },
        { &m->row.sum, sizeof(float) * n },
        { &m->row.out, sizeof(float) * n * d },
        { &m->chunk.max, sizeof(float) * tile },
        { &m->chunk.sum, sizeof(float) * tile },
        { &m->chunk.out, sizeof(float) * tile * d },
        { &m->k, chunk },
        { &m->vt, chunk },
        { &m->value, sizeof(float) * d * TURN_ROWS },
        { &m->rest, sizeof(float) * d },
        { &m->scratch, chunk_scratch_size(c) },
    };
    return parts_carve(parts, sizeof parts / sizeof *parts, mem, cap);
}

size_t full_attention_thread_size(const struct cpu_device *cpu, const struct work_shape *s)
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
    size_t most = 0;
    for (int i = 0; i < 3 && s->segment > 0; i++) {
        int planes;
        struct chunk_kernel c = find_chunk(&cpu->k, types[i], s->head_dim, &planes);
        struct item_mem m;
        size_t size = item_mem_init(&m, NULL, 0, &c, planes, s->segment);
        if (c.fast && c.fast->head)
            size = c.fast->head_size(block_of(s->segment), s->head_dim);
        most = size > most ? size : most;
    }
    return most;
}

/* Offset of head `head` of row `row` in q, k, v or out. */
static size_t head_offset(const struct full_attn_job *job, int row, int head)
{
    return ((size_t)row * (size_t)job->n_heads + (size_t)head) * (size_t)job->d;
}

static void fetch_head(const struct full_attn_job *job, const float *x, int row, int head)
{
    const float *p = x + head_offset(job, row, head);
    for (int i = 0; i < job->d; i += LINE_FLOATS)
        __builtin_prefetch(p + i);
}

static uint8_t *packed_tile(const struct region *g, const struct item_mem *m, int tile)
{
    return m->qp + (size_t)tile * arena_cost(chunk_packed_size(&g->chunk));
}

static void pack_queries(const struct region *g, struct item_mem *m, const struct item *it)
{
    const struct full_attn_job *job = g->job;
    size_t d = (size_t)job->d, wide = (size_t)g->chunk.d;
    for (int q = 0; q < it->n_q; q += g->chunk.tile) {
        int n = min_int(g->chunk.tile, it->n_q - q);
        for (int i = 0; i < n; i++) {
            float *row = m->query + (size_t)i * wide;
            int at = it->row0 + it->q0 + q + i;
            if (q + i + FETCH_ROWS < it->n_q)
                fetch_head(job, job->q, at + FETCH_ROWS, it->head);
            memcpy(row, job->q + head_offset(job, at, it->head), sizeof(float) * d);
            memset(row + d, 0, sizeof(float) * (wide - d));
            m->q[i] = row;
        }
        chunk_pack(&g->chunk, packed_tile(g, m, q / g->chunk.tile), m->q, n, m->scratch);
    }
}

/* Round one head of a row; its planes are `step` bytes apart. */
static void round_head(const struct region *g, struct item_mem *m, uint8_t *y, size_t step,
                       const float *x)
{
    int d = g->job->d;
    kv_round(g->chunk.k, g->chunk.t, y, x, d);
    if (g->planes == 1)
        return;
    for (int i = 0; i < d; i++)
        m->rest[i] = x[i] - bf16_to_f32(((const uint16_t *)(const void *)y)[i]);
    kv_round(g->chunk.k, g->chunk.t, y + step, m->rest, d);
}

/* Copy element `at` of each of n rows, which are `stride` elements apart, to y. */
static void take_column(void *y, const void *x, size_t stride, size_t at, int n, size_t size)
{
    if (size == sizeof(float))
        for (int i = 0; i < n; i++)
            ((float *)y)[i] = ((const float *)x)[(size_t)i * stride + at];
    else
        for (int i = 0; i < n; i++)
            ((uint16_t *)y)[i] = ((const uint16_t *)x)[(size_t)i * stride + at];
}

static void lay_keys(const struct region *g, struct item_mem *m, const struct item *it, int first,
                     int n)
{
    const struct full_attn_job *job = g->job;
    size_t size = dtype_row_size(g->chunk.t, 1), used = size * (size_t)job->d;
    size_t wide = size * (size_t)g->chunk.d, row_size = wide * (size_t)g->planes;
    for (int i = 0; i < n; i++) {
        int row = it->row0 + first + i;
        uint8_t *k = m->k + (size_t)i * row_size;
        if (first + i + FETCH_ROWS < it->n)
            fetch_head(job, job->k, row + FETCH_ROWS, it->head);
        round_head(g, m, k, wide, job->k + head_offset(job, row, it->head));
        for (int p = 0; p < g->planes; p++)
            memset(k + (size_t)p * wide + used, 0, wide - used);
    }
    memset(m->k + (size_t)n * row_size, 0, (size_t)(round_up(n, POSITION_STEP) - n) * row_size);
}

static void lay_values(const struct region *g, struct item_mem *m, const struct item *it, int first,
                       int n)
{
    const struct full_attn_job *job = g->job;
    size_t size = dtype_row_size(g->chunk.t, 1), wide = (size_t)g->chunk.d;
    size_t columns = wide * (size_t)g->planes, positions = (size_t)round_up(n, POSITION_STEP);
    for (int r = 0; r < n; r += TURN_ROWS) {
        int rows = min_int(TURN_ROWS, n - r);
        for (int i = 0; i < rows; i++) {
            int row = it->row0 + first + r + i;
            if (first + r + i + FETCH_ROWS < it->n)
                fetch_head(job, job->v, row + FETCH_ROWS, it->head);
            round_head(g, m, m->value + (size_t)i * columns * size, wide * size,
                       job->v + head_offset(job, row, it->head));
        }
        for (size_t c = 0; c < (size_t)job->d * (size_t)g->planes; c++) {
            size_t plane = c % (size_t)g->planes, at = c / (size_t)g->planes;
            take_column(m->vt + (c * KV_CHUNK + (size_t)r) * size, m->value, columns,
                        plane * wide + at, rows, size);
        }
    }
    for (size_t c = 0; c < columns; c++) {
        size_t from = c < (size_t)job->d * (size_t)g->planes ? (size_t)n : 0;
        memset(m->vt + (c * KV_CHUNK + from) * size, 0, (positions - from) * size);
    }
}

/* Store keys and values of a chunk, with zeros up to a multiple of POSITION_STEP positions. */
static void lay_chunk(const struct region *g, struct item_mem *m, const struct item *it, int first,
                      int n)
{
    const struct full_attn_job *job = g->job;
    size_t at = head_offset(job, it->row0 + first, it->head);
    struct attn_rows rows = { .k = job->k + at,
                              .v = job->v + at,
                              .stride = (size_t)job->n_heads * (size_t)job->d,
                              .n = n,
                              .d = job->d };
    if (g->chunk.fast && g->chunk.fast->lay) {
        g->chunk.fast->lay(m->k, m->vt, &rows, g->chunk.d);
        return;
    }
    lay_keys(g, m, it, first, n);
    lay_values(g, m, it, first, n);
}

static void write_rows(const struct region *g, const struct item_mem *m, const struct item *it)
{
    const struct full_attn_job *job = g->job;
    for (int i = 0; i < it->n_q; i++) {
        float *out = job->out + head_offset(job, it->row0 + it->q0 + i, it->head);
        const float *acc = m->row.out + (size_t)i * g->chunk.d;
        float scale = 1 / m->row.sum[i];
        for (int j = 0; j < job->d; j++)
            out[j] = acc[j] * scale;
    }
}

static void item_run(const struct region *g, struct item_mem *m, const struct item *it)
{
    int tile = g->chunk.tile, d = g->chunk.d;
    pack_queries(g, m, it);
    partial_clear(m->row, it->n_q, d);
    for (int first = 0; first < it->n; first += KV_CHUNK) {
        int n = min_int(KV_CHUNK, it->n - first);
        struct attn_chunk chunk = { .k = m->k,
                                    .vt = m->vt,
                                    .positions = round_up(n, POSITION_STEP) };
        lay_chunk(g, m, it, first, n);
        for (int i = 0; i < tile; i++)
            m->limit[i] = n;
        for (int q = 0; q < it->n_q; q += tile) {
            int n_q = min_int(tile, it->n_q - q);
            chunk_run(&g->chunk, m->chunk, packed_tile(g, m, q / tile), n_q, &chunk, m->limit,
                      g->job->scale, m->scratch);
            for (int i = 0; i < n_q; i++)
                partial_join(g->chunk.k, m->row, q + i, m->chunk, i, d);
        }
    }
    write_rows(g, m, it);
}

/* Find item i. Items are in the order segment, head, block. A short segment has fewer blocks than
 * the longest; its surplus items are empty. */
static struct item item_find(const struct region *g, int i)
{
    const struct full_attn_job *job = g->job;
    const int *bounds = job->bounds + i / (job->n_heads * g->blocks);
    struct item it = { .head = i / g->blocks % job->n_heads,
                       .row0 = bounds[0],
                       .n = bounds[1] - bounds[0],
                       .q0 = i % g->blocks * BLOCK_QUERIES };
    it.n_q = min_int(BLOCK_QUERIES, it.n - it.q0);
    return it;
}

static void run_by_chunks(struct region *g, int thread)
{
    struct item_mem m;
    item_mem_init(&m, work_thread_mem(g->w, thread), g->w->thread_size, &g->chunk, g->planes,
                  g->w->shape.segment);
    for (int i = work_next(&g->queue); i >= 0; i = work_next(&g->queue)) {
        struct item it = item_find(g, i);
        if (it.n_q > 0)
            item_run(g, &m, &it);
    }
}

/* The same with a kernel that computes a whole item at once. */
static void run_by_heads(struct region *g, int thread)
{
    const struct full_attn_job *job = g->job;
    void *scratch = work_thread_mem(g->w, thread);
    for (int i = work_next(&g->queue); i >= 0; i = work_next(&g->queue)) {
        struct item it = item_find(g, i);
        size_t at = head_offset(job, it.row0, it.head);
        size_t q = head_offset(job, it.row0 + it.q0, it.head);
        struct attn_head head = { .out = job->out + q,
                                  .q = job->q + q,
                                  .k = job->k + at,
                                  .v = job->v + at,
                                  .stride = (size_t)job->n_heads * (size_t)job->d,
                                  .n_q = it.n_q,
                                  .n = it.n,
                                  .d = job->d,
                                  .scale = job->scale };
        if (it.n_q > 0)
            g->chunk.fast->head(&head, scratch);
    }
}

static void region_run(void *arg, int thread, int n_threads)
{
    struct region *g = arg;
    (void)n_threads;
    if (g->chunk.fast && g->chunk.fast->head)
        run_by_heads(g, thread);
    else
        run_by_chunks(g, thread);
}

void attention_full_cpu(struct device_work *w, const struct full_attn_job *job)
{
    struct region g = { .w = w, .job = job, .blocks = 1 };
    g.chunk = find_chunk(&w->cpu->k, job->dtype, job->d, &g.planes);
    for (int s = 0; s < job->n_segments; s++) {
        int n = job->bounds[s + 1] - job->bounds[s];
        g.blocks =
            n > g.blocks * BLOCK_QUERIES ? (n + BLOCK_QUERIES - 1) / BLOCK_QUERIES : g.blocks;
    }
    work_init(&g.queue, job->n_segments * job->n_heads * g.blocks);
    pool_run(w->pool, region_run, &g);
}
