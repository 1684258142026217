/* Attention over one chunk: chooses the kernel, computes sizes, and implements the generic kernel
 * and the merging of partial results. */
#include "kernels/attn_chunk.h"
#include "base/mem.h"
#include "base/minmax.h"

#include <math.h>
#include <string.h>

enum { GENERIC_TILE = 64 }; /* queries of one tile of the generic kernel */

struct chunk_kernel chunk_kernel_find(const struct kernels *k, enum dtype t, int d, int group)
{
    t = kv_read_type(t);
    const struct attn_kernel *a = k->attn[t];
    struct chunk_kernel c = { .k = k, .t = t, .d = d, .tile = GENERIC_TILE };
    if (a && d % a->d_multiple == 0 && (group == 0 || group >= a->least)) {
        c.fast = a;
        c.tile = a->max_queries;
    }
    return c;
}

bool chunk_trees(const struct chunk_kernel *c)
{
    return c->fast && c->fast->trees && c->fast->max_queries <= ATTN_TREE_QUERIES;
}

size_t chunk_packed_size(const struct chunk_kernel *c)
{
    return c->fast ? c->fast->packed_size(c->tile, c->d)
                   : kernels_matmul(c->k, c->t, c->d)->packed_size(c->tile, c->d);
}

/* ---- the generic kernel ---- */

struct generic_mem {
    float *scores; /* [tile, KV_CHUNK] */
    void *packed;  /* packed probabilities */
    void *inner;   /* scratch of the two matrix products */
};

static size_t generic_mem_init(struct generic_mem *m, void *mem, const struct chunk_kernel *c)
{
    const struct matmul_kernel *qk = kernels_matmul(c->k, c->t, c->d);
    const struct matmul_kernel *pv = kernels_matmul(c->k, c->t, KV_CHUNK);
    size_t scores = sizeof(float) * GENERIC_TILE * KV_CHUNK;
    size_t packed = pv->packed_size(GENERIC_TILE, KV_CHUNK);
    size_t inner = max_size(qk->scratch_size(c->d), pv->scratch_size(KV_CHUNK));
    size_t total = arena_cost(scores) + arena_cost(packed) + arena_cost(inner);
    if (mem) {
        struct arena a;
        arena_init(&a, mem, total);
        m->scores = arena_push(&a, scores);
        m->packed = arena_push(&a, packed);
        m->inner = arena_push(&a, inner);
    }
    return total;
}

size_t chunk_scratch_size(const struct chunk_kernel *c)
{
    size_t queries = sizeof(float) * GENERIC_TILE * (size_t)c->d;
    return c->fast ? c->fast->scratch_size(c->tile, c->d)
                   : max_size(queries, generic_mem_init(NULL, NULL, c));
}

static void generic_pack(const struct chunk_kernel *c, void *qp, const float *const *q, int n,
                         float *rows)
{
    for (int i = 0; i < n; i++)
        memcpy(rows + (size_t)i * c->d, q[i], sizeof(float) * (size_t)c->d);
    kernels_matmul(c->k, c->t, c->d)->pack(qp, rows, (size_t)c->d, n, c->d, 0, n);
}

static void generic_run(const struct chunk_kernel *c, struct attn_partial p, const void *qp, int n,
                        const struct attn_chunk *chunk, const int *limit, float scale,
                        void *scratch)
{
    const struct matmul_kernel *qk = kernels_matmul(c->k, c->t, c->d);
    const struct matmul_kernel *pv = kernels_matmul(c->k, c->t, KV_CHUNK);
    int seen = chunk->positions;
    struct matrix km = { .dtype = c->t,
                         .out = seen,
                         .in = c->d,
                         .data = chunk->k,
                         .row_size = dtype_row_size(c->t, c->d) };
    struct matrix vm = { .dtype = c->t,
                         .out = c->d,
                         .in = seen,
                         .data = chunk->vt,
                         .row_size = dtype_row_size(c->t, KV_CHUNK) };
    struct generic_mem m;
    generic_mem_init(&m, scratch, c);
    qk->run(m.scores, KV_CHUNK, qp, n, &km, 0, seen, m.inner);
    for (int i = 0; i < n; i++) {
        float *row = m.scores + (size_t)i * KV_CHUNK;
        if (limit[i] > 0)
            p.sum[i] = c->k->softmax(row, row, seen, limit[i], scale, &p.max[i]);
        else
            memset(row, 0, sizeof(float) * (size_t)seen);
    }
    pv->pack(m.packed, m.scores, KV_CHUNK, n, seen, 0, n);
    pv->run(p.out, (size_t)c->d, m.packed, n, &vm, 0, c->d, m.inner);
}

/* ---- special or generic ---- */

void chunk_pack(const struct chunk_kernel *c, void *qp, const float *const *q, int n, void *scratch)
{
    if (c->fast)
        c->fast->pack(qp, q, n, c->d);
    else
        generic_pack(c, qp, q, n, scratch);
}

void chunk_run(const struct chunk_kernel *c, struct attn_partial p, const void *qp, int n,
               const struct attn_chunk *chunk, const int *limit, float scale, void *scratch)
{
    if (c->fast)
        c->fast->run(p.max, p.sum, p.out, qp, n, c->d, chunk, limit, scale, scratch);
    else
        generic_run(c, p, qp, n, chunk, limit, scale, scratch);
}

void partial_clear(struct attn_partial p, int n, int d)
{
    for (int i = 0; i < n; i++) {
        p.max[i] = -INFINITY;
        p.sum[i] = 0;
    }
    memset(p.out, 0, sizeof(float) * (size_t)n * (size_t)d);
}

void partial_join(const struct kernels *k, struct attn_partial to, int i, struct attn_partial from,
                  int j, int d)
{
    float top = to.max[i] > from.max[j] ? to.max[i] : from.max[j];
    /* One of the two factors is e^0 = 1. */
    float a = to.max[i] == top ? 1 : expf(to.max[i] - top);
    float b = from.max[j] == top ? 1 : expf(from.max[j] - top);
    to.sum[i] = to.sum[i] * a + from.sum[j] * b;
    k->scale_add(to.out + (size_t)i * d, a, from.out + (size_t)j * d, b, d);
    to.max[i] = top;
}
