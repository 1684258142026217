/* Attention over the KV cache on the CPU.
 *
 * The KV cache of a sequence is reduced in a structure that is fixed by absolute position and does
 * not depend on the number of rows or threads or on the shape of the draft:
 *
 *   chunk    KV_CHUNK positions: max, sum and out of one plain softmax (attn_chunk.h)
 *   segment  SEGMENT_CHUNKS chunks joined in order
 *   row      its segments joined in order
 *
 * Queries that share a KV head (the heads of a group, of several rows) run as one tile, so K and V
 * are read once for all of them. With few tiles, the segments of a row are spread over the threads
 * and joined afterwards; with many, each thread takes whole tiles. Both give the same bits.
 *
 * A row of a draft tree attends to its ancestors as if they lay at the positions where plain
 * decoding would have put them ("in path order"). A kernel that supports trees gets the chunk, the
 * tree's nodes and the path of each query. For other kernels, the chunks that contain tree nodes
 * are rebuilt in scratch memory, once per path. The rows of a path run together; each attends only
 * to the part of the path up to itself. */
#include "kernels/attn_chunk.h"
#include "kernels/device_cpu.h"

#include <math.h>
#include <string.h>

enum {
    SEGMENT_CHUNKS = 4,
    SPLIT_FACTOR = 4 /* spread segments if there are fewer tiles per thread */
};

/* ---- one thread's state for a tile ---- */

struct tile_mem {
    void *qp;                  /* packed queries of the tile */
    void *qp_path;             /* packed queries of one path of a tree */
    struct attn_partial chunk; /* result of the current chunk */
    struct attn_partial seg;   /* result of the segment so far */
    struct attn_partial row;   /* result of the row so far */
    struct attn_partial path;  /* result of the queries of one path */
    const float **q, **q_path;
    int *limit, *limit_path;
    int *on_path; /* indices in the tile of the queries in q_path */
    int *depth;   /* number of positions visible to each query */
    bool *done;
    uint8_t *k_copy, *v_copy; /* a chunk rebuilt in path order */
    uint8_t *node_k, *node_v; /* keys and values of the nodes of a tree */
    int (*node)[ATTN_TREE_QUERIES];
    int *set, *tip, *row_set;
    void *scratch;
};

/* Take the tile's memory from mem; if mem is NULL, only count its bytes. */
static size_t tile_mem_init(struct tile_mem *m, void *mem, size_t cap, const struct chunk_kernel *c)
{
    size_t n = (size_t)c->tile, one = sizeof(float) * n, out = one * (size_t)c->d;
    size_t chunk = dtype_row_size(c->t, KV_CHUNK) * (size_t)c->d;
    size_t nodes = dtype_row_size(c->t, ATTN_NODES) * (size_t)c->d;
    struct mem_part parts[] = {
        { &m->qp, chunk_packed_size(c) },
        { &m->qp_path, chunk_packed_size(c) },
        { &m->chunk.max, one },
        { &m->chunk.sum, one },
        { &m->chunk.out, out },
        { &m->seg.max, one },
        { &m->seg.sum, one },
        { &m->seg.out, out },
        { &m->row.max, one },
        { &m->row.sum, one },
        { &m->row.out, out },
        { &m->path.max, one },
        { &m->path.sum, one },
        { &m->path.out, out },
        { &m->q, sizeof(float *) * n },
        { &m->q_path, sizeof(float *) * n },
        { &m->limit, sizeof(int) * n },
        { &m->limit_path, sizeof(int) * n },
        { &m->on_path, sizeof(int) * n },
        { &m->depth, sizeof(int) * n },
        { &m->done, sizeof(bool) * n },
        { &m->k_copy, chunk },
        { &m->v_copy, chunk },
        { &m->node_k, nodes },
        { &m->node_v, nodes },
        { &m->node, sizeof *m->node * ATTN_NODES },
        { &m->set, sizeof(int) * n },
        { &m->tip, sizeof(int) * ATTN_NODES },
        { &m->row_set, sizeof(int) * ATTN_NODES },
        { &m->scratch, chunk_scratch_size(c) },
    };
    return parts_carve(parts, sizeof parts / sizeof *parts, mem, cap);
}

static struct chunk_kernel find_chunk(const struct kernels *k, const struct work_shape *s)
{
    int group = s->n_kv_heads > 0 ? s->n_heads / s->n_kv_heads : 0;
    return chunk_kernel_find(k, s->kv_dtype, s->head_dim, group);
}

size_t attention_thread_size(const struct cpu_device *cpu, const struct work_shape *s)
{
    struct chunk_kernel c = find_chunk(&cpu->k, s);
    struct tile_mem m;
    return tile_mem_init(&m, NULL, 0, &c);
}

/* ---- tiles and their segments ---- */

struct region {
    struct device_work *w;
    const struct attn_job *job;
    struct chunk_kernel chunk;
    int group, d; /* heads per KV head, head_dim */
    bool split;   /* work items are segments, joined afterwards */
    int n_items, n_tiles;
    struct work_queue queue, join_queue;
};

/* A tile: queries [q0, q0 + n) of one run and KV head. Queries are numbered by row, then by head of
 * the group. */
struct tile {
    const struct attn_run *run;
    int head, q0, n;
    int n_segments;
    int partial0; /* index of its first partial result, if split */
};

static int run_tiles(const struct region *g, const struct attn_run *run)
{
    return (run->n * g->group + g->chunk.tile - 1) / g->chunk.tile;
}

static int run_segments(const struct attn_run *run)
{
    int span = KV_CHUNK * SEGMENT_CHUNKS;
    return (run->first_slot + run->pending + run->n + span - 1) / span;
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
            int q0 = t % tiles * g->chunk.tile, left = run->n * g->group - q0;
            tile = (struct tile){ .run = run,
                                  .head = t / tiles,
                                  .q0 = q0,
                                  .n = left < g->chunk.tile ? left : g->chunk.tile,
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

/* Number of positions visible to a row of the run. */
static int row_limit(const struct attn_run *run, int row)
{
    return run->first_slot + 1 + (run->parent ? tree_depth(run, row) : row);
}

static int chunk_limit(int limit, int chunk)
{
    int n = limit - chunk * KV_CHUNK;
    return n < 0 ? 0 : n < KV_CHUNK ? n : KV_CHUNK;
}

/* ---- reduction ---- */

/* Copy slot `slot` of the cache to place `at` of the rebuilt chunk. */
static void copy_slot(const struct region *g, struct tile_mem *m, const struct kv_layer *kv,
                      int head, int slot, int at)
{
    if (kv->dtype == DTYPE_F8) {
        kv_f8_keys(g->chunk.k, (uint16_t *)m->k_copy + (size_t)at * g->d, kv, head, slot, 1);
        kv_f8_values(g->chunk.k, (uint16_t *)m->v_copy + at, KV_CHUNK, kv, head, slot, 1);
        return;
    }
    size_t size = dtype_row_size(kv->dtype, 1);
    const uint8_t *k = kv_page_at(kv, kv->k, head, slot / KV_CHUNK);
    const uint8_t *v = kv_page_at(kv, kv->v, head, slot / KV_CHUNK);
    size_t from = (size_t)(slot % KV_CHUNK), d = (size_t)g->d;
    memcpy(m->k_copy + (size_t)at * d * size, k + from * d * size, d * size);
    if (size == sizeof(uint16_t)) {
        uint16_t *to = (uint16_t *)m->v_copy + at;
        const uint16_t *of = (const uint16_t *)v + from;
        for (size_t i = 0; i < d; i++)
            to[i * KV_CHUNK] = of[i * KV_CHUNK];
    } else {
        float *to = (float *)m->v_copy + at;
        const float *of = (const float *)v + from;
        for (size_t i = 0; i < d; i++)
            to[i * KV_CHUNK] = of[i * KV_CHUNK];
    }
}

/* Put the path to row `row` of a tree into the copy of chunk c, each node where plain decoding
 * would have put it. The committed slots are there already (copy_chunk). */
static void rebuild_chunk(const struct region *g, struct tile_mem *m, const struct tile *t, int c,
                          int row)
{
    const struct attn_run *run = t->run;
    int begin = c * KV_CHUNK, at = row_limit(run, row) - 1;
    for (int node = row; node >= 0; node = run->parent[node], at--)
        if (at >= begin && at < begin + KV_CHUNK)
            copy_slot(g, m, run->kv, t->head, run->first_slot + node, at - begin);
}

/* Copy chunk c from the cache; its committed part is shared by all rows of the tile. */
static void copy_chunk(const struct region *g, struct tile_mem *m, const struct tile *t, int c)
{
    const struct kv_layer *kv = t->run->kv;
    if (kv->dtype == DTYPE_F8) {
        kv_f8_keys(g->chunk.k, (uint16_t *)m->k_copy, kv, t->head, c * KV_CHUNK, KV_CHUNK);
        kv_f8_values(g->chunk.k, (uint16_t *)m->v_copy, KV_CHUNK, kv, t->head, c * KV_CHUNK,
                     KV_CHUNK);
        return;
    }
    size_t size = dtype_row_size(kv->dtype, KV_CHUNK) * (size_t)g->d;
    memcpy(m->k_copy, kv_page_at(kv, kv->k, t->head, c), size);
    memcpy(m->v_copy, kv_page_at(kv, kv->v, t->head, c), size);
}

/* Chunk c in a type that kernels read: in place, or (F8) as a copy. */
static struct attn_chunk view_chunk(const struct region *g, struct tile_mem *m,
                                    const struct tile *t, int c)
{
    const struct kv_layer *kv = t->run->kv;
    if (kv->dtype == DTYPE_F8) {
        copy_chunk(g, m, t, c);
        return (struct attn_chunk){ .k = m->k_copy, .vt = m->v_copy, .positions = KV_CHUNK };
    }
    return (struct attn_chunk){ .k = kv_page_at(kv, kv->k, t->head, c),
                                .vt = kv_page_at(kv, kv->v, t->head, c),
                                .positions = KV_CHUNK };
}

static int query_row(const struct region *g, const struct tile *t, int i)
{
    return t->run->pending + (t->q0 + i) / g->group;
}

static bool is_ancestor(const struct attn_run *run, int row, int of)
{
    while (of > row)
        of = run->parent[of];
    return of == row;
}

/* Find the deepest row that has queries not yet done, and collect the open queries of all rows on
 * its path. Returns the number of queries collected, 0 when all are done. */
static int take_path(const struct region *g, struct tile_mem *m, const struct tile *t, int *row)
{
    int deepest = -1, n = 0;
    for (int i = 0; i < t->n; i++)
        if (!m->done[i] && (deepest < 0 || m->depth[i] > m->depth[deepest]))
            deepest = i;
    if (deepest < 0)
        return 0;
    *row = query_row(g, t, deepest);
    for (int i = 0; i < t->n; i++) {
        if (m->done[i] || !is_ancestor(t->run, query_row(g, t, i), *row))
            continue;
        m->done[i] = true;
        m->on_path[n] = i;
        m->q_path[n] = m->q[i];
        m->limit_path[n++] = m->limit[i];
    }
    return n;
}

/* Chunk c, which contains tree nodes, for a kernel without support for trees: for each path,
 * rebuild the chunk as the path's last row sees it, and run the queries of the path on it. */
static void run_rebuilt_chunk(const struct region *g, struct tile_mem *m, const struct tile *t,
                              int c)
{
    struct attn_chunk chunk = { .k = m->k_copy, .vt = m->v_copy, .positions = KV_CHUNK };
    size_t d = (size_t)g->d;
    int row = 0, n;
    copy_chunk(g, m, t, c);
    for (int i = 0; i < t->n; i++)
        m->done[i] = m->limit[i] == 0;
    for (n = take_path(g, m, t, &row); n > 0; n = take_path(g, m, t, &row)) {
        rebuild_chunk(g, m, t, c, row);
        chunk_pack(&g->chunk, m->qp_path, m->q_path, n, m->scratch);
        chunk_run(&g->chunk, m->path, m->qp_path, n, &chunk, m->limit_path, g->job->scale,
                  m->scratch);
        for (int k = 0; k < n; k++) {
            int i = m->on_path[k];
            m->chunk.max[i] = m->path.max[k];
            m->chunk.sum[i] = m->path.sum[k];
            memcpy(m->chunk.out + (size_t)i * d, m->path.out + (size_t)k * d, d * sizeof(float));
        }
    }
}

static int run_nodes(const struct attn_run *run)
{
    return run->pending + run->n;
}

/* The same for an F8 cache. */
static void read_nodes(const struct region *g, struct tile_mem *m, const struct tile *t)
{
    memset(m->node_v, 0, sizeof(uint16_t) * ATTN_NODES * (size_t)g->d);
    for (int i = 0; i < run_nodes(t->run); i++) {
        int slot = t->run->first_slot + i;
        kv_f8_keys(g->chunk.k, (uint16_t *)m->node_k + (size_t)i * g->d, t->run->kv, t->head, slot,
                   1);
        kv_f8_values(g->chunk.k, (uint16_t *)m->node_v + i, ATTN_NODES, t->run->kv, t->head, slot,
                     1);
    }
}

/* Copy keys and values of all nodes of the tree; the values transposed, as [d, ATTN_NODES]. */
static void copy_nodes(const struct region *g, struct tile_mem *m, const struct tile *t)
{
    const struct attn_run *run = t->run;
    const struct kv_layer *kv = run->kv;
    if (kv->dtype == DTYPE_F8) {
        read_nodes(g, m, t);
        return;
    }
    size_t size = dtype_row_size(kv->dtype, 1), d = (size_t)g->d;
    int at = run->first_slot % KV_CHUNK, n = run_nodes(run);
    int first = KV_CHUNK - at < n ? KV_CHUNK - at : n;
    const uint8_t *k = kv_page_at(kv, kv->k, t->head, run->first_slot / KV_CHUNK);
    const uint8_t *v = kv_page_at(kv, kv->v, t->head, run->first_slot / KV_CHUNK);
    const uint8_t *rest_k = NULL, *rest_v = NULL; /* the next chunk, if the nodes reach into it */
    if (first < n) {
        rest_k = kv_page_at(kv, kv->k, t->head, run->first_slot / KV_CHUNK + 1);
        rest_v = kv_page_at(kv, kv->v, t->head, run->first_slot / KV_CHUNK + 1);
        memcpy(m->node_k + (size_t)first * d * size, rest_k, (size_t)(n - first) * d * size);
    }
    memcpy(m->node_k, k + (size_t)at * d * size, (size_t)first * d * size);
    memset(m->node_v, 0, ATTN_NODES * d * size);
    for (size_t i = 0; i < d; i++) {
        uint8_t *to = m->node_v + i * ATTN_NODES * size;
        memcpy(to, v + (i * KV_CHUNK + (size_t)at) * size, (size_t)first * size);
        if (first < n)
            memcpy(to + (size_t)first * size, rest_v + i * KV_CHUNK * size,
                   (size_t)(n - first) * size);
    }
}

/* Divide the rows of the tile into sets, such that the rows of a set lie on one path. Goes from the
 * last row to the first: a row that is in no set yet begins one, and takes along its ancestors that
 * are in none. Returns the number of sets. */
static int find_sets(const struct region *g, struct tile_mem *m, const struct tile *t)
{
    const struct attn_run *run = t->run;
    int n = 0;
    for (int r = 0; r < run_nodes(run); r++)
        m->row_set[r] = -1;
    for (int i = t->n - 1; i >= 0; i--) {
        int row = query_row(g, t, i);
        if (m->row_set[row] < 0) {
            for (int r = row; r >= 0 && m->row_set[r] < 0; r = run->parent[r])
                m->row_set[r] = n;
            m->tip[n++] = i;
        }
        m->set[i] = m->row_set[row];
    }
    return n;
}

/* Chunk c, which contains tree nodes, for a kernel that supports trees. */
static void run_tree_chunk(const struct region *g, struct tile_mem *m, const struct tile *t, int c)
{
    const struct attn_run *run = t->run;
    int begin = c * KV_CHUNK, shared = run->first_slot > begin ? run->first_slot - begin : 0;
    struct attn_tree tree = { .shared = shared,
                              .n_nodes = run_nodes(run),
                              .k = m->node_k,
                              .vt = m->node_v,
                              .node = (const int(*)[ATTN_TREE_QUERIES])m->node,
                              .n_sets = find_sets(g, m, t),
                              .set = m->set,
                              .tip = m->tip };
    struct attn_chunk chunk = view_chunk(g, m, t, c);
    chunk.tree = &tree;
    copy_nodes(g, m, t);
    memset(m->node, 0, sizeof *m->node * ATTN_NODES);
    for (int i = 0; i < t->n; i++) {
        int row = query_row(g, t, i), at = m->depth[i] - 1 - begin - shared;
        for (; row >= 0 && at >= 0; row = run->parent[row], at--)
            if (shared + at < KV_CHUNK)
                m->node[at][i] = row;
    }
    chunk_run(&g->chunk, m->chunk, m->qp, t->n, &chunk, m->limit, g->job->scale, m->scratch);
}

/* more: chunk c + 1 comes next, so prefetch it. */
static void run_chunk(const struct region *g, struct tile_mem *m, const struct tile *t, int c,
                      bool more)
{
    const struct kv_layer *kv = t->run->kv;
    struct attn_chunk chunk = view_chunk(g, m, t, c);
    if (more && kv->dtype != DTYPE_F8) {
        chunk.next_k = kv_page_at(kv, kv->k, t->head, c + 1);
        chunk.next_vt = kv_page_at(kv, kv->v, t->head, c + 1);
    }
    chunk_run(&g->chunk, m->chunk, m->qp, t->n, &chunk, m->limit, g->job->scale, m->scratch);
}

static void tail_chunk(const struct region *g, struct tile_mem *m, const struct tile *t, int c)
{
    if (chunk_trees(&g->chunk) && run_nodes(t->run) <= ATTN_NODES)
        run_tree_chunk(g, m, t, c);
    else
        run_rebuilt_chunk(g, m, t, c);
}

/* Compute segment s of a tile into m->seg. The sum is 0 for queries that see none of the segment.
 * more: the next segment will be computed too, so prefetch it. */
static void segment_run(const struct region *g, struct tile_mem *m, const struct tile *t, int s,
                        bool more)
{
    int end = (s + 1) * SEGMENT_CHUNKS, most = 0;
    partial_clear(m->seg, t->n, g->d);
    for (int i = 0; i < t->n; i++)
        most = m->depth[i] > most ? m->depth[i] : most;
    for (int c = s * SEGMENT_CHUNKS; c < end && c * KV_CHUNK < most; c++) {
        bool next = (c + 1) * KV_CHUNK < most && (c + 1 < end || more);
        for (int i = 0; i < t->n; i++)
            m->limit[i] = chunk_limit(m->depth[i], c);
        if (t->run->parent && (c + 1) * KV_CHUNK > t->run->first_slot)
            tail_chunk(g, m, t, c);
        else
            run_chunk(g, m, t, c, next);
        for (int i = 0; i < t->n; i++)
            if (m->limit[i] > 0)
                partial_join(g->chunk.k, m->seg, i, m->chunk, i, g->d);
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
    for (int i = 0; i < t->n; i++) {
        m->q[i] = g->job->q + query_offset(g, t, i);
        m->depth[i] = row_limit(t->run, query_row(g, t, i));
    }
    chunk_pack(&g->chunk, m->qp, m->q, t->n, m->scratch);
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
    partial_clear(m->row, t->n, g->d);
    for (int s = 0; s < t->n_segments; s++) {
        segment_run(g, m, t, s, true);
        for (int i = 0; i < t->n; i++)
            if (m->seg.sum[i] > 0)
                partial_join(g->chunk.k, m->row, i, m->seg, i, g->d);
    }
    for (int i = 0; i < t->n; i++)
        write_row(g, t, i, m->row.sum[i], m->row.out + (size_t)i * g->d);
}

/* ---- segments spread over threads ---- */

static float *partial_at(const struct region *g, const struct tile *t, int s, int i)
{
    size_t width = (size_t)g->d + 2;
    return g->w->partial +
           (((size_t)t->partial0 + (size_t)s) * (size_t)g->chunk.tile + (size_t)i) * width;
}

/* Compute segments [s, end) of a tile and store the partial results. */
static void segment_items(const struct region *g, struct tile_mem *m, const struct tile *t, int s,
                          int end)
{
    tile_begin(g, m, t);
    for (; s < end; s++) {
        segment_run(g, m, t, s, s + 1 < end);
        for (int i = 0; i < t->n; i++) {
            float *p = partial_at(g, t, s, i);
            p[0] = m->seg.max[i];
            p[1] = m->seg.sum[i];
            memcpy(p + 2, m->seg.out + (size_t)i * g->d, sizeof(float) * (size_t)g->d);
        }
    }
}

static void join_item(const struct region *g, struct tile_mem *m, const struct tile *t)
{
    for (int i = 0; i < t->n; i++) {
        partial_clear(m->row, 1, g->d);
        for (int s = 0; s < t->n_segments; s++) {
            float *p = partial_at(g, t, s, i);
            if (p[1] > 0)
                partial_join(g->chunk.k, m->row, 0, (struct attn_partial){ p, p + 1, p + 2 }, 0,
                             g->d);
        }
        write_row(g, t, i, m->row.sum[0], m->row.out);
    }
}

/* Run work items [begin, end). Items are the segments of tile 0, of tile 1, and so on; the number
 * of segments may differ from tile to tile. */
static void split_items(const struct region *g, struct tile_mem *m, int begin, int end)
{
    for (int t = 0; t < g->n_tiles && begin < end; t++) {
        struct tile tile = tile_find(g, t);
        int last = end < tile.n_segments ? end : tile.n_segments;
        if (begin < last) {
            segment_items(g, m, &tile, begin, last);
            begin = last;
        }
        begin -= tile.n_segments;
        end -= tile.n_segments;
    }
}

/* Threads take long ranges of segments, so that a segment can prefetch the next one of its range.
 */
static void split_run(struct region *g, struct tile_mem *m, int n_threads)
{
    int begin, end;
    while (work_range(&g->queue, n_threads, &begin, &end))
        split_items(g, m, begin, end);
    pool_barrier(g->w->pool);
    for (int i = work_next(&g->join_queue); i >= 0; i = work_next(&g->join_queue)) {
        struct tile t = tile_find(g, i);
        join_item(g, m, &t);
    }
}

static void region_run(void *arg, int thread, int n_threads)
{
    struct region *g = arg;
    struct tile_mem m;
    tile_mem_init(&m, work_thread_mem(g->w, thread), g->w->thread_size, &g->chunk);
    if (g->split) {
        split_run(g, &m, n_threads);
        return;
    }
    for (int i = work_next(&g->queue); i >= 0; i = work_next(&g->queue)) {
        /* Later rows see more: handing out the tiles from the end balances the load. */
        struct tile t = tile_find(g, g->n_tiles - 1 - i);
        tile_run(g, &m, &t);
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
    struct chunk_kernel c = find_chunk(&cpu->k, s);
    size_t per_tile = (size_t)c.tile * ((size_t)s->head_dim + 2);
    return sizeof(float) * tiles * segments_of(s->context) * per_tile;
}

void attention_cpu(struct device_work *w, const struct attn_job *job)
{
    const struct kv_layer *kv = job->runs[0].kv;
    struct region g = { .w = w, .job = job, .d = kv->d, .group = job->n_heads / kv->n_kv };
    int segments = 0;
    g.chunk =
        chunk_kernel_find(&w->cpu->k, kv->dtype, kv->d, job->group > 0 ? job->group : g.group);
    for (int r = 0; r < job->n_runs; r++) {
        int tiles = run_tiles(&g, &job->runs[r]) * kv->n_kv;
        g.n_tiles += tiles;
        segments += tiles * run_segments(&job->runs[r]);
    }
    size_t need = sizeof(float) * (size_t)segments * (size_t)g.chunk.tile * ((size_t)g.d + 2);
    g.split = g.n_tiles < SPLIT_FACTOR * pool_threads(w->pool) && need <= w->partial_size &&
              segments > g.n_tiles;
    g.n_items = g.split ? segments : g.n_tiles;
    work_init(&g.queue, g.n_items);
    work_init(&g.join_queue, g.n_tiles);
    pool_run(w->pool, region_run, &g);
}
