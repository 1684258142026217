/* Column sums of attention: how much the given query rows look at the given keys.
 *
 * Two passes over the keys, neither of which stores the whole matrix: the first finds max and sum
 * of each query (over all slots it sees, or over the given keys it sees), the second computes the
 * scores again and adds up probabilities by column. In the second pass a thread owns whole chunks
 * of columns and adds rows and heads in order, so that the sums do not depend on the threads. */
#include "kernels/attn_chunk.h"
#include "kernels/device_cpu.h"

#include <math.h>
#include <string.h>

enum { COLUMN_TILE = 64 };

struct column_mem {
    float *queries, *scores, *dense;
    void *packed, *inner;
    uint16_t *keys; /* of an F8 cache: a chunk's keys as BF16 */
};

struct columns {
    struct device_work *w;
    const struct column_job *job;
    const struct kernels *k;
    const struct matmul_kernel *qk;
    const struct kv_layer *kv;
    int group, d;
    int tiles;        /* number of tiles of query rows */
    float *max, *sum; /* [n_rows * n_heads] */
    struct work_queue first, second;
};

static size_t column_mem_init(struct column_mem *m, void *mem, size_t cap,
                              const struct matmul_kernel *qk, enum dtype t, int d)
{
    struct arena a = { 0 };
    size_t sizes[] = { sizeof(float) * COLUMN_TILE * (size_t)d,
                       sizeof(float) * COLUMN_TILE * KV_CHUNK,
                       sizeof(float) * KV_CHUNK,
                       qk->packed_size(COLUMN_TILE, d),
                       qk->scratch_size(d),
                       t == DTYPE_F8 ? sizeof(uint16_t) * KV_CHUNK * (size_t)d : 0 };
    size_t total = 0;
    for (int i = 0; i < 6; i++)
        total += arena_cost(sizes[i]);
    if (!mem)
        return total;
    arena_init(&a, mem, cap);
    m->queries = arena_push(&a, sizes[0]);
    m->scores = arena_push(&a, sizes[1]);
    m->dense = arena_push(&a, sizes[2]);
    m->packed = arena_push(&a, sizes[3]);
    m->inner = arena_push(&a, sizes[4]);
    m->keys = arena_push(&a, sizes[5]);
    return total;
}

size_t columns_thread_size(const struct cpu_device *cpu, const struct work_shape *s)
{
    return column_mem_init(NULL, NULL, 0,
                           kernels_matmul(&cpu->k, kv_read_type(s->kv_dtype), s->head_dim),
                           s->kv_dtype, s->head_dim);
}

/* Pack the queries of one head of up to COLUMN_TILE of the chosen rows. Returns their number. */
static int pack_tile(const struct columns *c, struct column_mem *m, int head, int tile)
{
    int r0 = tile * COLUMN_TILE, n = c->job->n_rows - r0;
    n = n < COLUMN_TILE ? n : COLUMN_TILE;
    for (int i = 0; i < n; i++) {
        size_t row = (size_t)(c->job->run->row0 + c->job->rows[r0 + i]);
        memcpy(m->queries + (size_t)i * c->d,
               c->job->q + (row * (size_t)c->job->n_heads + (size_t)head) * (size_t)c->d,
               sizeof(float) * (size_t)c->d);
    }
    c->qk->pack(m->packed, m->queries, (size_t)c->d, n, c->d, 0, n);
    return n;
}

static void chunk_scores(const struct columns *c, struct column_mem *m, int head, int chunk, int n)
{
    const struct kv_layer *kv = c->kv;
    enum dtype t = kv_read_type(kv->dtype);
    struct matrix km = { .dtype = t,
                         .out = KV_CHUNK,
                         .in = c->d,
                         .data = kv_page_at(kv, kv->k, head / c->group, chunk),
                         .row_size = dtype_row_size(t, c->d) };
    if (kv->dtype == DTYPE_F8) {
        kv_f8_keys(c->k, m->keys, kv, head / c->group, chunk * KV_CHUNK, KV_CHUNK);
        km.data = m->keys;
    }
    c->qk->run(m->scores, KV_CHUNK, m->packed, n, &km, 0, KV_CHUNK, m->inner);
}

/* Index of the first of the job's keys at or after `slot`. */
static int key_from(const struct column_job *job, int slot)
{
    int lo = 0, hi = job->n_keys;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (job->keys[mid] < slot)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Probabilities of query i in this chunk, relative to the chunk's own max: over all slots it sees
 * (p[slot]) or over the keys it sees (p[key - first key]). Returns their number, which may be 0. */
static int chunk_probs(const struct columns *c, struct column_mem *m, int i, int row, int chunk,
                       float *max, float *sum)
{
    const struct column_job *job = c->job;
    float *s = m->scores + (size_t)i * KV_CHUNK;
    int begin = chunk * KV_CHUNK, limit = job->run->first_slot + job->rows[row] + 1 - begin;
    limit = limit < KV_CHUNK ? limit : KV_CHUNK;
    if (job->over_keys) {
        int n = 0, k0 = key_from(job, begin);
        for (int k = k0; k < job->n_keys && job->keys[k] - begin < limit; k++)
            m->dense[n++] = s[job->keys[k] - begin];
        memcpy(s, m->dense, sizeof(float) * (size_t)n);
        limit = n;
    }
    if (limit <= 0)
        return 0;
    *sum = c->k->softmax(s, s, KV_CHUNK, limit, job->scale, max);
    return limit;
}

static int chunks_seen(const struct columns *c)
{
    const struct column_job *job = c->job;
    return (job->run->first_slot + job->rows[job->n_rows - 1]) / KV_CHUNK + 1;
}

/* Pass one: max and sum of the queries of one head and tile. */
static void first_item(const struct columns *c, struct column_mem *m, int item)
{
    int head = item / c->tiles, tile = item % c->tiles, n = pack_tile(c, m, head, tile);
    float *max = c->max + ((size_t)head * c->job->n_rows + (size_t)tile * COLUMN_TILE);
    float *sum = c->sum + ((size_t)head * c->job->n_rows + (size_t)tile * COLUMN_TILE);
    for (int i = 0; i < n; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
    }
    for (int chunk = 0; chunk < chunks_seen(c); chunk++) {
        chunk_scores(c, m, head, chunk, n);
        for (int i = 0; i < n; i++) {
            float cm, cs, top;
            if (!chunk_probs(c, m, i, tile * COLUMN_TILE + i, chunk, &cm, &cs))
                continue;
            top = max[i] > cm ? max[i] : cm;
            sum[i] = sum[i] * expf(max[i] - top) + cs * expf(cm - top);
            max[i] = top;
        }
    }
}

/* Pass two: the columns of one chunk. */
static void second_item(const struct columns *c, struct column_mem *m, int chunk)
{
    const struct column_job *job = c->job;
    int k0 = key_from(job, chunk * KV_CHUNK), k1 = key_from(job, (chunk + 1) * KV_CHUNK);
    if (k0 == k1)
        return;
    for (int head = 0; head < job->n_heads; head++) {
        float *sums = job->sums + (job->by_group ? (size_t)(head / c->group) * job->n_keys : 0);
        for (int tile = 0; tile < c->tiles; tile++) {
            int n = pack_tile(c, m, head, tile);
            chunk_scores(c, m, head, chunk, n);
            for (int i = 0; i < n; i++) {
                int row = tile * COLUMN_TILE + i;
                size_t q = (size_t)head * job->n_rows + (size_t)row;
                float cm, cs, *p = m->scores + (size_t)i * KV_CHUNK;
                int seen = chunk_probs(c, m, i, row, chunk, &cm, &cs);
                float scale = seen ? expf(cm - c->max[q]) / c->sum[q] : 0;
                for (int k = k0; k < k1; k++) {
                    int at = job->over_keys ? k - k0 : job->keys[k] - chunk * KV_CHUNK;
                    if (at < seen)
                        sums[k] += p[at] * scale;
                }
            }
        }
    }
}

static void columns_run(void *arg, int thread, int n_threads)
{
    struct columns *c = arg;
    struct column_mem m;
    (void)n_threads;
    column_mem_init(&m, work_thread_mem(c->w, thread), c->w->thread_size, c->qk, c->kv->dtype,
                    c->d);
    for (int i = work_next(&c->first); i >= 0; i = work_next(&c->first))
        first_item(c, &m, i);
    pool_barrier(c->w->pool);
    for (int i = work_next(&c->second); i >= 0; i = work_next(&c->second))
        second_item(c, &m, i);
}

void attention_columns_cpu(struct device_work *w, const struct column_job *job)
{
    const struct kv_layer *kv = job->run->kv;
    struct columns c = { .w = w,
                         .job = job,
                         .k = &w->cpu->k,
                         .kv = kv,
                         .d = kv->d,
                         .group = job->n_heads / kv->n_kv,
                         .qk = kernels_matmul(&w->cpu->k, kv_read_type(kv->dtype), kv->d),
                         .tiles = (job->n_rows + COLUMN_TILE - 1) / COLUMN_TILE };
    if (job->n_rows == 0 || job->n_keys == 0)
        return;
    /* The buffer for packed activations is free during attention. */
    c.max = w->packed;
    c.sum = c.max + (size_t)job->n_rows * (size_t)job->n_heads;
    work_init(&c.first, job->n_heads * c.tiles);
    work_init(&c.second, chunks_seen(&c));
    pool_run(w->pool, columns_run, &c);
}
