/* Attention on the CPU.
 *
 * The KV of a sequence is reduced in a structure fixed by absolute position, whatever the rows,
 * the threads or the shape of the draft:
 *
 *   chunk    KV_CHUNK positions: max, sum and out of one plain softmax, by an attn_kernel
 *   segment  SEGMENT_CHUNKS chunks joined in order
 *   row      its segments joined in order
 *
 * join((m,l,o), (m',l',o')) with M = max(m, m'): (M, l e^(m-M) + l' e^(m'-M), o e^(m-M) + o'
 * e^(m'-M)).
 *
 * Queries that share a KV head (the heads of a group, of several rows) run as one tile, so K and V
 * are read once for all of them. With few tiles the segments of a row are spread over the threads
 * and joined afterwards; with many each thread takes whole tiles. Both give the same bits.
 *
 * Rows of a tree see their ancestors "as if in path order": the chunks from the end of the cache on
 * are rebuilt per row in scratch, ancestors put where plain decoding would have put them. */
#include "kernels/device_cpu.h"

#include <math.h>
#include <string.h>

enum {
    SEGMENT_CHUNKS = 4,
    GENERIC_TILE = 64, /* queries of one tile of the generic kernel */
    SPLIT_FACTOR = 4   /* segments are spread while there are fewer tiles than this per thread */
};

/* ---- generic chunk kernel, on the matmul kernels of the KV type ---- */

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The table's own kernel for this type and head size, NULL: the generic one. */
static const struct attn_kernel *find_kernel(const struct kernels *k, enum dtype t, int d)
{
    const struct attn_kernel *a = k->attn[t];
    return a && d % a->d_multiple == 0 ? a : NULL;
}

static int max_tile(const struct kernels *k, enum dtype t, int d)
{
    const struct attn_kernel *a = find_kernel(k, t, d);
    return a ? a->max_queries : GENERIC_TILE;
}

static size_t generic_packed_size(const struct kernels *k, enum dtype t, int d)
{
    return kernels_matmul(k, t, d)->packed_size(GENERIC_TILE, d);
}

static size_t generic_scratch_size(const struct kernels *k, enum dtype t, int d)
{
    const struct matmul_kernel *qk = kernels_matmul(k, t, d);
    const struct matmul_kernel *pv = kernels_matmul(k, t, KV_CHUNK);
    return arena_cost(sizeof(float) * GENERIC_TILE * KV_CHUNK) +
           arena_cost(pv->packed_size(GENERIC_TILE, KV_CHUNK)) +
           arena_cost(max_size(qk->scratch_size(d), pv->scratch_size(KV_CHUNK)));
}

static void generic_pack(const struct kernels *k, enum dtype t, void *qp, const float *const *q,
                         int n, int d, float *scratch)
{
    const struct matmul_kernel *m = kernels_matmul(k, t, d);
    for (int i = 0; i < n; i++)
        memcpy(scratch + (size_t)i * d, q[i], sizeof(float) * (size_t)d);
    m->pack(qp, scratch, (size_t)d, n, d, 0, n);
}

static void generic_run(const struct kernels *k, enum dtype t, float *max, float *sum, float *out,
                        const void *qp, int n, int d, const void *kc, const void *vt,
                        const int *limit, float scale, void *scratch)
{
    const struct matmul_kernel *qk = kernels_matmul(k, t, d);
    const struct matmul_kernel *pv = kernels_matmul(k, t, KV_CHUNK);
    struct matrix km = {
        .dtype = t, .out = KV_CHUNK, .in = d, .data = kc, .row_size = dtype_row_size(t, d)
    };
    struct matrix vm = {
        .dtype = t, .out = d, .in = KV_CHUNK, .data = vt, .row_size = dtype_row_size(t, KV_CHUNK)
    };
    struct arena a;
    arena_init(&a, scratch, generic_scratch_size(k, t, d));
    float *s = arena_push(&a, sizeof(float) * GENERIC_TILE * KV_CHUNK);
    void *pp = arena_push(&a, pv->packed_size(GENERIC_TILE, KV_CHUNK));
    void *inner = arena_push(&a, max_size(qk->scratch_size(d), pv->scratch_size(KV_CHUNK)));

    qk->run(s, KV_CHUNK, qp, n, &km, 0, KV_CHUNK, inner);
    for (int i = 0; i < n; i++) {
        float *row = s + (size_t)i * KV_CHUNK;
        if (limit[i] > 0)
            sum[i] = k->softmax(row, row, KV_CHUNK, limit[i], scale, &max[i]);
        else
            memset(row, 0, sizeof(float) * KV_CHUNK);
    }
    pv->pack(pp, s, KV_CHUNK, n, KV_CHUNK, 0, n);
    pv->run(out, (size_t)d, pp, n, &vm, 0, d, inner);
}

/* ---- one thread's state for a tile ---- */

struct tile_mem {
    void *qp;                                 /* packed queries of the tile */
    void *qp_row;                             /* packed queries of one row of a tree */
    float *chunk_max, *chunk_sum, *chunk_out; /* of the chunk at hand */
    float *seg_max, *seg_sum, *seg_out;       /* of the segment so far */
    float *max, *sum, *out;                   /* of the row so far */
    const float **q;
    int *limit;
    uint8_t *k_copy, *v_copy; /* a chunk rebuilt in path order */
    void *scratch;
};

static size_t tile_packed_size(const struct kernels *k, enum dtype t, int d)
{
    const struct attn_kernel *a = find_kernel(k, t, d);
    return a ? a->packed_size(a->max_queries, d) : generic_packed_size(k, t, d);
}

static size_t tile_scratch_size(const struct kernels *k, enum dtype t, int d)
{
    const struct attn_kernel *a = find_kernel(k, t, d);
    size_t queries = sizeof(float) * GENERIC_TILE * (size_t)d;
    return a ? a->scratch_size(a->max_queries, d)
             : max_size(queries, generic_scratch_size(k, t, d));
}

/* Carve the tile's memory from mem, or with mem NULL only count its bytes. */
static size_t tile_mem_init(struct tile_mem *m, void *mem, size_t cap, const struct kernels *k,
                            enum dtype t, int d)
{
    size_t n = (size_t)max_tile(k, t, d), chunk = dtype_row_size(t, KV_CHUNK) * (size_t)d;
    struct {
        void *field;
        size_t size;
    } parts[] = {
        { &m->qp, tile_packed_size(k, t, d) },
        { &m->qp_row, tile_packed_size(k, t, d) },
        { &m->chunk_max, sizeof(float) * n },
        { &m->chunk_sum, sizeof(float) * n },
        { &m->chunk_out, sizeof(float) * n * (size_t)d },
        { &m->seg_max, sizeof(float) * n },
        { &m->seg_sum, sizeof(float) * n },
        { &m->seg_out, sizeof(float) * n * (size_t)d },
        { &m->max, sizeof(float) * n },
        { &m->sum, sizeof(float) * n },
        { &m->out, sizeof(float) * n * (size_t)d },
        { &m->q, sizeof(float *) * n },
        { &m->limit, sizeof(int) * n },
        { &m->k_copy, chunk },
        { &m->v_copy, chunk },
        { &m->scratch, tile_scratch_size(k, t, d) },
    };
    struct arena a = { 0 };
    size_t total = 0;
    if (mem)
        arena_init(&a, mem, cap);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *p = mem ? arena_push(&a, parts[i].size) : NULL;
        memcpy(parts[i].field, &p, sizeof p);
        total += arena_cost(parts[i].size);
    }
    return total;
}

size_t attention_thread_size(const struct cpu_device *cpu, const struct work_shape *s)
{
    struct tile_mem m;
    return tile_mem_init(&m, NULL, 0, &cpu->k, s->kv_dtype, s->head_dim);
}

/* ---- geometry ---- */

struct region {
    struct device_work *w;
    const struct attn_job *job;
    const struct kernels *k;
    const struct attn_kernel *own; /* NULL: generic */
    int group, d, tile;            /* heads per KV head, head_dim, queries per tile */
    bool split;                    /* items are segments, joined afterwards */
    int n_items, n_tiles;
    struct work_queue queue, join_queue;
};

/* A tile: queries [q0, q0 + n) of (row-major row, head of the group) of one run and KV head. */
struct tile {
    const struct attn_run *run;
    int head, q0, n;
    int n_segments;
    int partial0; /* index of its first partial when split */
};

static int run_tiles(const struct region *g, const struct attn_run *run)
{
    return (run->n * g->group + g->tile - 1) / g->tile;
}

static int run_segments(const struct attn_run *run)
{
    int span = KV_CHUNK * SEGMENT_CHUNKS;
    return (run->first_slot + run->n + span - 1) / span;
}

/* Tile number t of the job, in the order run, head, queries. */
static struct tile tile_find(const struct region *g, int t)
{
    struct tile tile = { 0 };
    int partial = 0;
    for (int r = 0; r < g->job->n_runs; r++) {
        const struct attn_run *run = &g->job->runs[r];
        int tiles = run_tiles(g, run), segments = run_segments(run);
        if (t < tiles * run->kv->n_kv) {
            int q0 = t % tiles * g->tile, left = run->n * g->group - q0;
            tile = (struct tile){ .run = run,
                                  .head = t / tiles,
                                  .q0 = q0,
                                  .n = left < g->tile ? left : g->tile,
                                  .n_segments = segments,
                                  .partial0 = partial + t * segments };
            break;
        }
        t -= tiles * run->kv->n_kv;
        partial += tiles * run->kv->n_kv * segments;
    }
    return tile;
}

static int tree_depth(const struct attn_run *run, int row)
{
    int depth = 0;
    for (int p = run->parent[row]; p >= 0; p = run->parent[p])
        depth++;
    return depth;
}

/* Positions visible to a row of the run. */
static int row_limit(const struct attn_run *run, int row)
{
    return run->first_slot + 1 + (run->parent ? tree_depth(run, row) : row);
}

static int chunk_limit(int limit, int chunk)
{
    int n = limit - chunk * KV_CHUNK;
    return n < 0 ? 0 : n < KV_CHUNK ? n : KV_CHUNK;
}

static const uint8_t *chunk_base(const void *base, const struct kv_layer *kv, int head, int chunk)
{
    size_t at = ((size_t)head * kv->cap + (size_t)chunk * KV_CHUNK) * kv->d;
    return (const uint8_t *)base + dtype_row_size(kv->dtype, (int64_t)at);
}

/* ---- reduction ---- */

static void join(const struct region *g, float *max, float *sum, float *out, float max2, float sum2,
                 const float *out2)
{
    float top = *max > max2 ? *max : max2;
    float a = expf(*max - top), b = expf(max2 - top);
    *sum = *sum * a + sum2 * b;
    g->k->scale_add(out, a, out2, b, g->d);
    *max = top;
}

static void pack_queries(const struct region *g, struct tile_mem *m, void *qp, int n)
{
    enum dtype t = g->w->shape.kv_dtype;
    if (g->own)
        g->own->pack(qp, m->q, n, g->d);
    else
        generic_pack(g->k, t, qp, m->q, n, g->d, m->scratch);
}

static void chunk_run(const struct region *g, struct tile_mem *m, const void *qp, int i0, int n,
                      const void *kc, const void *vt)
{
    enum dtype t = g->w->shape.kv_dtype;
    float *out = m->chunk_out + (size_t)i0 * g->d;
    if (g->own)
        g->own->run(m->chunk_max + i0, m->chunk_sum + i0, out, qp, n, g->d, kc, vt, m->limit + i0,
                    g->job->scale, m->scratch);
    else
        generic_run(g->k, t, m->chunk_max + i0, m->chunk_sum + i0, out, qp, n, g->d, kc, vt,
                    m->limit + i0, g->job->scale, m->scratch);
}

/* Copy slot `slot` of the cache to place `at` of the rebuilt chunk. */
static void copy_slot(const struct region *g, struct tile_mem *m, const struct kv_layer *kv,
                      int head, int slot, int at)
{
    size_t size = dtype_row_size(kv->dtype, 1);
    const uint8_t *k = chunk_base(kv->k, kv, head, slot / KV_CHUNK);
    const uint8_t *v = chunk_base(kv->v, kv, head, slot / KV_CHUNK);
    size_t from = (size_t)(slot % KV_CHUNK), d = (size_t)g->d;
    memcpy(m->k_copy + (size_t)at * d * size, k + from * d * size, d * size);
    for (size_t i = 0; i < d; i++)
        memcpy(m->v_copy + (i * KV_CHUNK + (size_t)at) * size, v + (i * KV_CHUNK + from) * size,
               size);
}

/* Rebuild chunk c as row `row` of a tree sees it: committed slots in place, then its path. */
static void rebuild_chunk(const struct region *g, struct tile_mem *m, const struct tile *t, int c,
                          int row)
{
    const struct attn_run *run = t->run;
    int begin = c * KV_CHUNK, at = row_limit(run, row) - 1;
    for (int node = row; node >= 0; node = run->parent[node], at--)
        if (at >= begin && at < begin + KV_CHUNK)
            copy_slot(g, m, run->kv, t->head, run->first_slot + node, at - begin);
}

/* The committed part of chunk c, shared by all rows of the tile. */
static void copy_chunk(const struct region *g, struct tile_mem *m, const struct tile *t, int c)
{
    const struct kv_layer *kv = t->run->kv;
    size_t size = dtype_row_size(kv->dtype, KV_CHUNK) * (size_t)g->d;
    memcpy(m->k_copy, chunk_base(kv->k, kv, t->head, c), size);
    memcpy(m->v_copy, chunk_base(kv->v, kv, t->head, c), size);
}

static int query_row(const struct region *g, const struct tile *t, int i)
{
    return (t->q0 + i) / g->group;
}

/* Chunk c of a tree's tail: the queries of each row against the chunk as that row sees it. */
static void chunk_run_tree(const struct region *g, struct tile_mem *m, const struct tile *t, int c)
{
    copy_chunk(g, m, t, c);
    for (int i = 0; i < t->n;) {
        int row = query_row(g, t, i), n = 1;
        while (i + n < t->n && query_row(g, t, i + n) == row)
            n++;
        if (m->limit[i] > 0) {
            rebuild_chunk(g, m, t, c, row);
            m->q += i;
            pack_queries(g, m, m->qp_row, n);
            m->q -= i;
            chunk_run(g, m, m->qp_row, i, n, m->k_copy, m->v_copy);
        }
        i += n;
    }
}

/* Segment s of a tile into seg_max, seg_sum, seg_out; seg_sum 0 where a row sees none of it. */
static void segment_run(const struct region *g, struct tile_mem *m, const struct tile *t, int s)
{
    const struct kv_layer *kv = t->run->kv;
    for (int i = 0; i < t->n; i++) {
        m->seg_max[i] = -INFINITY;
        m->seg_sum[i] = 0;
    }
    memset(m->seg_out, 0, sizeof(float) * (size_t)t->n * (size_t)g->d);
    for (int c = s * SEGMENT_CHUNKS; c < (s + 1) * SEGMENT_CHUNKS; c++) {
        int seen = 0;
        for (int i = 0; i < t->n; i++) {
            m->limit[i] = chunk_limit(row_limit(t->run, query_row(g, t, i)), c);
            seen |= m->limit[i];
        }
        if (!seen)
            break;
        if (t->run->parent && (c + 1) * KV_CHUNK > t->run->first_slot)
            chunk_run_tree(g, m, t, c);
        else
            chunk_run(g, m, m->qp, 0, t->n, chunk_base(kv->k, kv, t->head, c),
                      chunk_base(kv->v, kv, t->head, c));
        for (int i = 0; i < t->n; i++)
            if (m->limit[i] > 0)
                join(g, &m->seg_max[i], &m->seg_sum[i], m->seg_out + (size_t)i * g->d,
                     m->chunk_max[i], m->chunk_sum[i], m->chunk_out + (size_t)i * g->d);
    }
}

static size_t query_offset(const struct region *g, const struct tile *t, int i)
{
    int q = t->q0 + i;
    size_t row = (size_t)(t->run->row0 + q / g->group);
    return (row * g->job->n_heads + (size_t)(t->head * g->group + q % g->group)) * g->d;
}

static void tile_begin(const struct region *g, struct tile_mem *m, const struct tile *t)
{
    for (int i = 0; i < t->n; i++)
        m->q[i] = g->job->q + query_offset(g, t, i);
    pack_queries(g, m, m->qp, t->n);
}

static void write_row(const struct region *g, const struct tile *t, int i, float sum,
                      const float *acc)
{
    float *out = g->job->out + query_offset(g, t, i);
    for (int j = 0; j < g->d; j++)
        out[j] = acc[j] / sum;
}

/* ---- whole tiles ---- */

static void tile_run(const struct region *g, struct tile_mem *m, const struct tile *t)
{
    tile_begin(g, m, t);
    for (int i = 0; i < t->n; i++) {
        m->max[i] = -INFINITY;
        m->sum[i] = 0;
    }
    memset(m->out, 0, sizeof(float) * (size_t)t->n * (size_t)g->d);
    for (int s = 0; s < t->n_segments; s++) {
        segment_run(g, m, t, s);
        for (int i = 0; i < t->n; i++)
            if (m->seg_sum[i] > 0)
                join(g, &m->max[i], &m->sum[i], m->out + (size_t)i * g->d, m->seg_max[i],
                     m->seg_sum[i], m->seg_out + (size_t)i * g->d);
    }
    for (int i = 0; i < t->n; i++)
        write_row(g, t, i, m->sum[i], m->out + (size_t)i * g->d);
}

/* ---- segments spread over threads ---- */

static float *partial_at(const struct region *g, const struct tile *t, int s, int i)
{
    size_t width = (size_t)g->d + 2;
    return g->w->partial +
           (((size_t)t->partial0 + (size_t)s) * (size_t)g->tile + (size_t)i) * width;
}

static void segment_item(const struct region *g, struct tile_mem *m, const struct tile *t, int s)
{
    tile_begin(g, m, t);
    segment_run(g, m, t, s);
    for (int i = 0; i < t->n; i++) {
        float *p = partial_at(g, t, s, i);
        p[0] = m->seg_max[i];
        p[1] = m->seg_sum[i];
        memcpy(p + 2, m->seg_out + (size_t)i * g->d, sizeof(float) * (size_t)g->d);
    }
}

static void join_item(const struct region *g, struct tile_mem *m, const struct tile *t)
{
    for (int i = 0; i < t->n; i++) {
        float max = -INFINITY, sum = 0;
        memset(m->out, 0, sizeof(float) * (size_t)g->d);
        for (int s = 0; s < t->n_segments; s++) {
            const float *p = partial_at(g, t, s, i);
            if (p[1] > 0)
                join(g, &max, &sum, m->out, p[0], p[1], p + 2);
        }
        write_row(g, t, i, sum, m->out);
    }
}

/* Item number -> tile and segment; tiles of later runs may have other segment counts. */
static struct tile item_find(const struct region *g, int item, int *segment)
{
    for (int t = 0; t < g->n_tiles; t++) {
        struct tile tile = tile_find(g, t);
        if (item < tile.n_segments) {
            *segment = item;
            return tile;
        }
        item -= tile.n_segments;
    }
    return (struct tile){ 0 };
}

static void region_run(void *arg, int thread, int n_threads)
{
    struct region *g = arg;
    struct tile_mem m;
    (void)n_threads;
    tile_mem_init(&m, work_thread_mem(g->w, thread), g->w->thread_size, g->k, g->w->shape.kv_dtype,
                  g->d);
    for (int i = work_next(&g->queue); i >= 0; i = work_next(&g->queue)) {
        int segment = 0;
        /* Later rows see more: handing out the tiles from the end balances the load. */
        struct tile t = g->split ? item_find(g, i, &segment) : tile_find(g, g->n_tiles - 1 - i);
        if (g->split)
            segment_item(g, &m, &t, segment);
        else
            tile_run(g, &m, &t);
    }
    if (!g->split)
        return;
    pool_barrier(g->w->cpu->pool);
    for (int i = work_next(&g->join_queue); i >= 0; i = work_next(&g->join_queue)) {
        struct tile t = tile_find(g, i);
        join_item(g, &m, &t);
    }
}

static size_t segments_of(int context)
{
    int span = KV_CHUNK * SEGMENT_CHUNKS;
    return (size_t)((context + span - 1) / span) + 1;
}

size_t attention_partial_size(const struct cpu_device *cpu, const struct work_shape *s)
{
    size_t tiles = (size_t)(SPLIT_FACTOR * pool_threads(cpu->pool));
    size_t per_tile =
        (size_t)max_tile(&cpu->k, s->kv_dtype, s->head_dim) * ((size_t)s->head_dim + 2);
    return sizeof(float) * tiles * segments_of(s->context) * per_tile;
}

void attention_cpu(struct device_work *w, const struct attn_job *job)
{
    const struct kv_layer *kv = job->runs[0].kv;
    struct region g = { .w = w,
                        .job = job,
                        .k = &w->cpu->k,
                        .d = kv->d,
                        .group = job->n_heads / kv->n_kv,
                        .own = find_kernel(&w->cpu->k, kv->dtype, kv->d),
                        .tile = max_tile(&w->cpu->k, kv->dtype, kv->d) };
    int segments = 0;
    for (int r = 0; r < job->n_runs; r++) {
        int tiles = run_tiles(&g, &job->runs[r]) * kv->n_kv;
        g.n_tiles += tiles;
        segments += tiles * run_segments(&job->runs[r]);
    }
    size_t need = sizeof(float) * (size_t)segments * (size_t)g.tile * ((size_t)g.d + 2);
    g.split = g.n_tiles < SPLIT_FACTOR * pool_threads(w->cpu->pool) && need <= w->partial_size &&
              segments > g.n_tiles;
    g.n_items = g.split ? segments : g.n_tiles;
    work_init(&g.queue, g.n_items);
    work_init(&g.join_queue, g.n_tiles);
    pool_run(w->cpu->pool, region_run, &g);
}
