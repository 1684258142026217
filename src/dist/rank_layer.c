/* A layer on one rank:
 *
 *   q, k, v of its heads; keys and values into its part of the cache; attention of its heads
 *   a = the heads of all ranks                     gathered
 *   o = its outputs of W_o a                       gathered, x += o
 *   h = its outputs of silu(W_gate m) * W_up m     gathered
 *   d = its outputs of W_down h                    gathered, x += d
 *
 * Every product is over whole rows of its input, and every output is computed by one rank, in the
 * order in which a single rank would compute it; x is the same on all ranks. So no number depends
 * on how many ranks there are. Nothing is summed across ranks, except column sums of attention,
 * which go from rank to rank: each adds its heads to the sums of the ranks before it. */
#include "dist/rank.h"

#include <string.h>

static const struct device_ops *ops_of(const struct rank_work *w)
{
    return w->k->dev->ops;
}

/* ---- rows that all ranks compute a part of ---- */

/* Where this rank's part of m rows must be computed, one row after the other. */
static float *part_at(const struct rank_work *w, int n_ranks, int which, const struct ranges *at,
                      int m)
{
    if (n_ranks == 1)
        return w->full[which];
    return w->stage[which] + (size_t)at->at[w->k->t->rank] * (size_t)m;
}

static void byte_ranges(size_t *bytes, const struct ranges *at, int n_ranks, int m)
{
    for (int r = 0; r <= n_ranks; r++)
        bytes[r] = (size_t)at->at[r] * (size_t)m * sizeof(float);
}

/* Assemble rows [m, width] from the parts in the stage buffer. */
static void put_together(float *y, size_t stride, const float *parts, const struct ranges *at,
                         int n_ranks, int m)
{
    for (int r = 0; r < n_ranks; r++) {
        size_t from = (size_t)at->at[r], width = (size_t)at->at[r + 1] - from;
        const float *part = parts + from * (size_t)m;
        for (int i = 0; i < m; i++)
            memcpy(y + (size_t)i * stride + from, part + (size_t)i * width, width * sizeof *y);
    }
}

/* Gather the whole rows on every rank. If only one rank has any outputs, inputs of products are not
 * gathered. */
static const float *gather_rows(struct rank_work *w, int n_ranks, int which,
                                const struct ranges *at, int m)
{
    size_t bytes[RANKS_MAX + 1];
    if (n_ranks == 1)
        return w->full[which];
    if (which == 0 && rank_workers(w->k->t) == 1)
        return w->stage[which];
    byte_ranges(bytes, at, n_ranks, m);
    rank_gather(w->k, w->stage[which], bytes, RANKS_ALL);
    if (m == 1) /* a single row is in order already */
        return w->stage[which];
    put_together(w->full[which], (size_t)at->at[n_ranks], w->stage[which], at, n_ranks, m);
    return w->full[which];
}

/* Run those of the jobs that have outputs on this rank. */
static void multiply(struct rank_work *w, const struct matmul_job *jobs, int n_jobs, const float *x,
                     int n)
{
    struct matmul_job here[DEVICE_MAX_JOBS];
    int n_here = 0;
    for (int i = 0; i < n_jobs; i++)
        if (jobs[i].w->out > 0)
            here[n_here++] = jobs[i];
    if (n_here > 0 && n > 0)
        ops_of(w)->matmul(w->inner, here, n_here, x, n);
}

/* ---- attention ---- */

static float attention_scale(const struct rank_layer *l)
{
    return 1.0f / __builtin_sqrtf((float)l->shape.head_dim);
}

/* The sums go from rank to rank in the order of their heads, and back to rank 0. */
static void add_columns(struct rank_work *w, const struct rank_layer *l, struct column_job *job)
{
    struct transport *t = w->k->t;
    int rank = l->n_ranks > 1 ? t->rank : 0, next = (rank + 1) % l->n_ranks;
    int before = (rank + l->n_ranks - 1) % l->n_ranks;
    size_t size = sizeof *job->sums * (size_t)job->n_keys;
    job->q = w->q;
    job->n_heads = l->q.to - l->q.from;
    job->scale = attention_scale(l);
    if (rank > 0) {
        job->sums = w->sums;
        if (!w->k->status)
            w->k->status = transport_recv(t, before, job->sums, size, &w->k->err);
    }
    if (job->n_heads > 0)
        ops_of(w)->attention_columns(w->inner, job);
    if (l->n_ranks > 1 && !w->k->status)
        w->k->status = transport_send(t, next, job->sums, size, &w->k->err);
    if (l->n_ranks > 1 && rank == 0 && !w->k->status)
        w->k->status = transport_recv(t, before, job->sums, size, &w->k->err);
}

void layer_attn(struct rank_work *w, const struct rank_layer *l, const struct attn_args *a)
{
    const struct device_ops *ops = ops_of(w);
    const struct layer_shape *s = &l->shape;
    int d = s->head_dim, n_q = l->q.to - l->q.from, n_kv = l->kv.to - l->kv.from;
    size_t q_stride = (size_t)(n_q * d), kv_stride = (size_t)(n_kv * d);
    struct matmul_job qkv[] = { { &l->w.q, w->q, q_stride },
                                { &l->w.k, w->key, kv_stride },
                                { &l->w.v, w->value, kv_stride } };
    const float *in = a->wide ? a->wide : l->w.attn_norm ? w->xn : a->x;
    for (int i = 0; n_kv == 0 && i < a->n_columns; i++)
        add_columns(w, l, &a->columns[i]);
    if (n_kv == 0) /* this rank has no heads */
        return;
    if (in == w->xn)
        ops->rmsnorm(w->inner, w->xn, a->x, l->w.attn_norm, a->n, s->hidden, s->eps);
    multiply(w, qkv, 3, in, a->n);
    if (n_q > 0)
        ops->rope(w->inner, w->q, a->n, n_q, d, l->w.q_norm, s->eps, a->cos, a->sin);
    ops->rope(w->inner, w->key, a->n, n_kv, d, l->w.k_norm, s->eps, a->cos, a->sin);
    for (int i = 0; i < a->n_runs; i++) {
        const struct attn_run *r = &a->runs[i];
        ops->kv_write(w->inner, r->kv, r->first_slot + r->pending,
                      w->key + (size_t)r->row0 * kv_stride, w->value + (size_t)r->row0 * kv_stride,
                      r->n);
    }
    struct attn_job job = { .out = w->att,
                            .q = w->q,
                            .n_heads = n_q,
                            .scale = attention_scale(l),
                            .n_runs = a->n_runs,
                            .runs = a->runs,
                            .group = s->n_heads / s->n_kv_heads };
    if (n_q > 0)
        ops->attention(w->inner, &job);
    for (int i = 0; i < a->n_columns; i++)
        add_columns(w, l, &a->columns[i]);
}

/* ---- the rest ---- */

/* Keep only these rows of the attention's result and of x. */
static const float *keep_rows(struct rank_work *w, const struct rank_layer *l, float *x,
                              const int32_t *rows, int n_rows)
{
    int q = (l->q.to - l->q.from) * l->shape.head_dim;
    ops_of(w)->gather(w->inner, w->q, w->att, rows, n_rows, q);
    ops_of(w)->gather(w->inner, w->full[1], x, rows, n_rows, l->shape.hidden);
    ops_of(w)->copy(w->inner, x, w->full[1], sizeof *x * (size_t)n_rows * (size_t)l->shape.hidden);
    return w->q;
}

/* x += W y, where W's outputs are spread over the ranks. */
static void add_product(struct rank_work *w, const struct rank_layer *l, const struct matrix *m,
                        float *x, const float *y, int n)
{
    const struct ranges *at = &l->hidden_at;
    struct matmul_job job = { m, part_at(w, l->n_ranks, 1, at, n), (size_t)m->out };
    multiply(w, &job, 1, y, n);
    ops_of(w)->add(w->inner, x, gather_rows(w, l->n_ranks, 1, at, n), n, l->shape.hidden);
}

void layer_finish(struct rank_work *w, const struct rank_layer *l, float *x, int n,
                  const int32_t *rows, int n_rows)
{
    const struct device_ops *ops = ops_of(w);
    const struct layer_shape *s = &l->shape;
    const float *att = w->att;
    size_t q = (size_t)((l->q.to - l->q.from) * s->head_dim);
    if (rows) {
        att = keep_rows(w, l, x, rows, n_rows);
        n = n_rows;
    }
    if (n == 0)
        return;
    memcpy(part_at(w, l->n_ranks, 0, &l->q_at, n), att, sizeof *att * (size_t)n * q);
    add_product(w, l, &l->w.o, x, gather_rows(w, l->n_ranks, 0, &l->q_at, n), n);
    if (l->w.gate.out > 0 || l->w.experts)
        ops->rmsnorm(w->inner, w->xn, x, l->w.ffn_norm, n, s->hidden, s->eps);
    if (l->w.experts) {
        ops->experts(w->inner, w->full[1], l->w.experts, w->xn, n);
        ops->add(w->inner, x, w->full[1], n, s->hidden);
        return;
    }
    int ffn = l->w.gate.out;
    float *gate = part_at(w, l->n_ranks, 0, &l->ffn_at, n);
    struct matmul_job gate_up[] = { { &l->w.gate, gate, (size_t)ffn },
                                    { &l->w.up, w->up, (size_t)ffn } };
    multiply(w, gate_up, 2, w->xn, n);
    if (ffn > 0)
        ops->silu_mul(w->inner, gate, w->up, n, ffn);
    add_product(w, l, &l->w.down, x, gather_rows(w, l->n_ranks, 0, &l->ffn_at, n), n);
}

/* ---- products outside layers ---- */

/* Processes as many rows at a time as the stage buffer has room for. */
void matrix_product(struct rank_work *w, const struct rank_matrix *m, float *y, size_t y_stride,
                    const float *x, int n)
{
    int n_ranks = w->k->t->n;
    struct ranges at = ranges_outputs(m->out, w->k->t);
    int most = (int)(w->stage_cap[1] / (size_t)m->out);
    for (int i = 0; i < n; i += most) {
        int rows = n - i < most ? n - i : most;
        size_t bytes[RANKS_MAX + 1];
        float *part = w->stage[1] + (size_t)at.at[w->k->t->rank] * (size_t)rows;
        struct matmul_job job = { &m->m, part, (size_t)m->m.out };
        multiply(w, &job, 1, x + (size_t)i * (size_t)m->m.in, rows);
        byte_ranges(bytes, &at, n_ranks, rows);
        rank_gather(w->k, w->stage[1], bytes, 0);
        if (w->k->t->rank == 0)
            put_together(y + (size_t)i * y_stride, y_stride, w->stage[1], &at, n_ranks, rows);
    }
}
