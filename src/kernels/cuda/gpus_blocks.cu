/* Layers of a decoder that is spread over GPUs. What each GPU computes, and what it sends to all:
 *
 *   q, k, v and attention of its own heads                -> attention outputs of all heads
 *   x += W_o a, its own columns of x                      -> these columns
 *   h = silu(W_gate m) * W_up m, its own outputs          -> h
 *   x += W_down h, its own columns of x                   -> these columns
 *
 * Each number is computed completely by one GPU, with the kernels and plans that a single GPU would
 * use for the whole matrix. Nothing is summed across GPUs, so the bits are those of a single GPU.
 */
#include "kernels/cuda/gpus.h"
#include "kernels/cuda/matmul_few.h"

#include <math.h>

static size_t size_of(enum dtype t)
{
    return t == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
}

static int width_of(const struct gpus_ranges *at, int r)
{
    return at->at[r + 1] - at->at[r];
}

/* Gather the compact parts of n rows into full rows on all GPUs. */
static void gather_parts(struct gpus_work *g, const struct gpus_ranges *at, int n, size_t size,
                         const size_t *stride, void *const *to, size_t to_stride)
{
    struct exchange e = {};
    e.at = at;
    e.n = n;
    e.size = size;
    e.to_stride = to_stride;
    for (int r = 0; r < g->n; r++) {
        e.from[r] = g->r[r].part;
        e.from_stride[r] = stride ? stride[r] : (size_t)width_of(at, r);
        e.to[r] = to[r];
    }
    gpus_exchange(g, &e);
}

/* Send the columns of x that each GPU has added to, to all GPUs. */
static void gather_x(struct gpus_work *g, const struct gpus_layer *l, int hidden, int n)
{
    struct exchange e = {};
    e.at = &l->hidden;
    e.n = n;
    e.size = sizeof(float);
    e.to_stride = (size_t)hidden;
    for (int r = 0; r < g->n; r++) {
        e.from[r] = g->r[r].x + l->hidden.at[r];
        e.from_stride[r] = (size_t)hidden;
        e.to[r] = g->r[r].x;
    }
    gpus_exchange(g, &e);
}

/* ---- attention ---- */

/* Copy x, cos and sin from the first GPU to all. */
static void share_inputs(struct gpus_work *g, const struct attn_block *b)
{
    void *to[3][GPUS_MOST];
    size_t half = sizeof(float) * (size_t)b->n * (size_t)(b->shape->head_dim / 2);
    for (int r = 0; r < g->n; r++) {
        to[0][r] = g->r[r].x;
        to[1][r] = g->r[r].cos;
        to[2][r] = g->r[r].sin;
    }
    gpus_share(g, to[0], b->x, sizeof(float) * (size_t)b->n * (size_t)b->shape->hidden);
    gpus_share(g, to[1], b->cos, half);
    gpus_share(g, to[2], b->sin, half);
}

/* Set GPU r's copies of the runs, with that GPU's keys and values. */
static void set_runs(struct gpus_work *g, const struct attn_block *b, int r)
{
    struct gpus_rank *k = &g->r[r];
    for (int i = 0; i < b->n_runs && i < MAX_RUNS; i++) {
        const struct gpus_pool *p = gpus_pool_of(g->g, b->runs[i].kv->k);
        k->runs[i] = b->runs[i];
        if (!p) {
            work_check(k->w, cudaErrorInvalidValue, "a cache that is not spread");
            return;
        }
        k->kv[i] = gpus_kv(p, b->runs[i].kv, r);
        k->runs[i].kv = &k->kv[i];
    }
}

/* Column sums of attention; the queries of all heads are sent to all GPUs first. */
static void sum_columns(struct gpus_work *g, const struct gpus_layer *l, const struct attn_block *b)
{
    const struct layer_shape *s = b->shape;
    struct exchange e = {};
    e.at = &l->q;
    e.n = b->n;
    e.size = sizeof(uint16_t);
    e.to_stride = (size_t)(s->n_heads * s->head_dim);
    for (int r = 0; r < g->n; r++) {
        e.from[r] = g->r[r].w->q16;
        e.from_stride[r] = (size_t)width_of(&l->q, r);
        e.to[r] = g->r[r].w->gathered;
    }
    gpus_exchange(g, &e);
    for (int i = 0; i < b->n_columns; i++)
        gpus_columns(g, l, &b->columns[i], (int)(b->columns[i].run - b->runs), s->n_heads,
                     s->n_heads / s->n_kv_heads, s->head_dim, 1.0f / sqrtf((float)s->head_dim));
}

void gpus_attn(struct device_work *w, const struct attn_block *b)
{
    const struct gpus_layer *l = (const struct gpus_layer *)b->w->handle;
    struct gpus_work *g = w->gpus;
    if (!l || !g) {
        block_attn(w, b);
        return;
    }
    for (int r = 0; r < g->n; r++)
        if (g->r[r].w->error != cudaSuccess)
            return;
    g->r[0].x = (float *)(uintptr_t)b->x;
    g->r[0].cos = (float *)(uintptr_t)b->cos;
    g->r[0].sin = (float *)(uintptr_t)b->sin;
    if (g->there != b->x || g->n_there != b->n)
        share_inputs(g, b);
    g->there = NULL;
    for (int r = 0; r < g->n; r++) {
        struct gpus_rank *k = &g->r[r];
        struct attn_block own = *b;
        on_gpu(k);
        set_runs(g, b, r);
        own.w = &l->part[r].w;
        own.shape = &l->part[r].shape;
        own.x = k->x;
        own.cos = k->cos;
        own.sin = k->sin;
        own.runs = k->runs;
        own.n_columns = 0;
        block_attention(k->w, &own, k->part);
    }
    on_gpu(&g->r[0]);
    if (b->n_columns > 0)
        sum_columns(g, l, b);
}

/* ---- the rest of a layer ---- */

/* What the functions below need of a finish_block and its layer. */
struct finish {
    struct gpus_work *g;
    const struct gpus_layer *l;
    const struct layer_shape *s;
    int n;
    bool bulk;
};

/* Keep only the wanted rows, on every GPU. First wait until all GPUs have read the others' columns
 * of x. */
static void keep_some(const struct finish *f, const struct finish_block *b)
{
    void *to[GPUS_MOST];
    gpus_join(f->g);
    gpus_fork(f->g);
    for (int r = 0; r < f->g->n; r++)
        to[r] = f->g->r[r].rows;
    gpus_share(f->g, to, b->rows, sizeof(int32_t) * (size_t)b->n_rows);
    for (int r = 0; r < f->g->n; r++) {
        struct gpus_rank *k = &f->g->r[r];
        struct finish_block own = *b;
        on_gpu(k);
        own.w = &f->l->part[r].w;
        own.shape = &f->l->part[r].shape;
        own.x = k->x;
        own.rows = r == 0 ? b->rows : k->rows;
        block_keep_rows(k->w, &own, k->part);
    }
}

/* x += m y, for the columns of x that belong to GPU r. */
static void add_part(const struct finish *f, int r, const struct matrix *m, const void *y,
                     size_t y_stride)
{
    struct gpus_rank *k = &f->g->r[r];
    float *to = k->x + f->l->hidden.at[r];
    struct matmul_job job = { m, to, (size_t)f->s->hidden };
    if (m->out == 0)
        return;
    on_gpu(k);
    if (f->bulk)
        matmul_many(k->w, m, to, DTYPE_F32, (size_t)f->s->hidden, y, y_stride, f->n, true);
    else
        matmul_few(k->w, &job, 1, y, f->n, true);
}

static void add_attention(const struct finish *f)
{
    struct gpus_work *g = f->g;
    enum dtype t = few_x_dtype(&f->l->part[0].w.o);
    size_t q = (size_t)(f->s->n_heads * f->s->head_dim);
    void *to[GPUS_MOST];
    for (int r = 0; r < g->n; r++)
        to[r] = g->r[r].w->att;
    gather_parts(g, &f->l->q, f->n, size_of(t), NULL, to, q);
    for (int r = 0; r < g->n; r++)
        add_part(f, r, &f->l->part[r].w.o, g->r[r].w->att, q);
    gather_x(g, f->l, f->s->hidden, f->n);
}

/* Compute gate and up of few rows into `part`. */
static void gate_few(const struct finish *f, int r)
{
    struct device_work *w = f->g->r[r].w;
    const struct layer_weights *l = &f->l->part[r].w;
    const struct matrix *mid[] = { &l->gate, &l->up }, *o = &l->o;
    enum dtype t = few_x_dtype(&l->down);
    bool inside = cuda_of(mid[0])->dtype == cuda_of(mid[1])->dtype &&
                  norm_inside(w, l->ffn_norm, f->s, mid, 2) && few_takes_norm(w, &o, 1);
    struct few_norm in = {};
    if (l->gate.out == 0)
        return;
    if (inside) {
        in.squares = norm_sums(w);
        in.eps = f->s->eps;
        norm_prepare(w, (uint16_t *)w->xn, norm_sums(w), f->g->r[r].x, l->ffn_norm, f->n,
                     f->s->hidden);
        matmul_few_gated_normed(w, &l->gate, &l->up, f->g->r[r].part, t, w->xn, f->n, &in);
    } else {
        norm_rows(w, w->xn, few_x_dtype(&l->gate), f->g->r[r].x, l->ffn_norm, NULL, f->n,
                  f->s->hidden, f->s->eps);
        matmul_few_gated(w, &l->gate, &l->up, f->g->r[r].part, t, w->xn, f->n);
    }
}

static size_t stride_of(int n)
{
    return (size_t)((n + 63) / 64 * 64);
}

static void gate_many(const struct finish *f, int r)
{
    struct gpus_rank *k = &f->g->r[r];
    const struct layer_weights *l = &f->l->part[r].w;
    enum dtype t = few_x_dtype(&l->down);
    size_t hidden = (size_t)f->s->hidden, stride = stride_of(l->gate.out);
    if (l->gate.out == 0)
        return;
    norm_rows(k->w, k->w->xn, few_x_dtype(&l->gate), k->x, l->ffn_norm, NULL, f->n, f->s->hidden,
              f->s->eps);
    matmul_many(k->w, &l->gate, k->part, t, stride, k->w->xn, hidden, f->n, false);
    matmul_many(k->w, &l->up, k->part2, t, stride, k->w->xn, hidden, f->n, false);
    gated_silu(k->w, k->part, k->part2, t, (size_t)f->n * stride);
}

static void add_mlp(const struct finish *f)
{
    struct gpus_work *g = f->g;
    const struct layer_weights *l = &f->l->part[0].w;
    size_t whole = f->bulk ? stride_of(f->s->ffn) : (size_t)f->s->ffn, stride[GPUS_MOST];
    void *to[GPUS_MOST];
    for (int r = 0; r < g->n; r++) {
        int width = width_of(&f->l->ffn, r);
        on_gpu(&g->r[r]);
        stride[r] = f->bulk ? stride_of(width) : (size_t)width;
        to[r] = g->r[r].w->mid;
        if (f->bulk)
            gate_many(f, r);
        else
            gate_few(f, r);
    }
    gather_parts(g, &f->l->ffn, f->n, size_of(few_x_dtype(&l->down)), stride, to, whole);
    for (int r = 0; r < g->n; r++)
        add_part(f, r, &f->l->part[r].w.down, g->r[r].w->mid, whole);
    gather_x(g, f->l, f->s->hidden, f->n);
}

/* Arguments for the experts of one GPU. */
static struct expert_call call_of(const struct finish *f, int r)
{
    struct gpus_rank *k = &f->g->r[r];
    const struct layer_weights *l = &f->l->part[r].w;
    const struct matrix *o = &l->o;
    bool inside = !f->bulk && few_takes_norm(k->w, &o, 1) && f->s->hidden <= 8 * f->s->ffn &&
                  few_x_dtype(&l->experts->gate[0]) == DTYPE_BF16;
    struct expert_call c = {};
    c.e = l->experts;
    c.y = k->x + f->l->hidden.at[r];
    c.n = f->n;
    c.add = true;
    c.bulk = f->bulk;
    on_gpu(k);
    if (inside) {
        norm_prepare(k->w, (uint16_t *)k->w->xn, norm_sums(k->w), k->x, l->ffn_norm, f->n,
                     f->s->hidden);
        c.x = k->x;
        c.xn = k->w->xn;
        c.norm_weight = l->ffn_norm;
        c.squares = norm_sums(k->w);
        c.eps = f->s->eps;
    } else {
        struct finish_block b = {};
        b.w = l;
        b.shape = f->s;
        b.x = k->x;
        b.n_rows = f->n;
        norm_sparse(k->w, &b, &c);
    }
    return c;
}

/* All experts read x as it was before any of their results is added. */
static void add_experts(const struct finish *f)
{
    struct gpus_work *g = f->g;
    const struct expert_weights *e = f->l->part[0].w.experts;
    enum dtype t = few_x_dtype(&e->down[0]);
    int most = experts_most_rows(g->r[0].w);
    struct expert_call c[GPUS_MOST];
    void *to[GPUS_MOST];
    for (int r = 0; r < g->n; r++) {
        c[r] = call_of(f, r);
        to[r] = g->r[r].pairs;
    }
    for (int first = 0; first < f->n; first += most) {
        int rows = f->n - first < most ? f->n - first : most;
        for (int r = 0; r < g->n; r++) {
            on_gpu(&g->r[r]);
            experts_part_up(g->r[r].w, &c[r], first, rows, g->r[r].part);
        }
        gather_parts(g, &f->l->ffn, rows * e->used, size_of(t), NULL, to,
                     (size_t)f->l->ffn.at[g->n]);
        for (int r = 0; r < g->n; r++) {
            on_gpu(&g->r[r]);
            experts_part_down(g->r[r].w, &c[r], first, rows, g->r[r].pairs);
        }
        if (first + most < f->n)
            gpus_join(g), gpus_fork(g); /* the next turn overwrites `part` */
    }
    gather_x(g, f->l, f->s->hidden, f->n);
}

void gpus_finish(struct device_work *w, const struct finish_block *b)
{
    struct gpus_work *g = w->gpus;
    struct finish f = { g, (const struct gpus_layer *)b->w->handle, b->shape, b->n_rows, b->bulk };
    if (!f.l || !g) {
        block_finish(w, b);
        return;
    }
    w->normed = NULL;
    g->r[0].x = b->x;
    if (b->rows)
        keep_some(&f, b);
    add_attention(&f);
    if (b->w->experts)
        add_experts(&f);
    else
        add_mlp(&f);
    if (b->next_norm) {
        g->there = b->x;
        g->n_there = b->n_rows;
    } else {
        gpus_join(g);
    }
    on_gpu(&g->r[0]);
}

/* ---- products outside layers ---- */

/* y = in . m^T, where `in` is on the first GPU; FEW_ROWS rows at a time. */
static void product(struct gpus_work *g, const struct gpus_matrix *m, int out, float *y,
                    size_t y_stride, const void *in, int n)
{
    struct gpus_ranges at = gpus_outputs(out, g->n);
    size_t row = (size_t)m->part[0].in * size_of(few_x_dtype(&m->part[0]));
    struct exchange e = {};
    void *to[GPUS_MOST];
    for (int first = 0; first < n; first += FEW_ROWS) {
        const uint8_t *x = (const uint8_t *)in + (size_t)first * row;
        int rows = n - first < FEW_ROWS ? n - first : (int)FEW_ROWS;
        float *to_y = y + (size_t)first * y_stride;
        e.at = &at;
        e.n = rows;
        e.size = sizeof(float);
        e.to[0] = to_y;
        e.to_stride = y_stride;
        for (int r = 0; r < g->n; r++)
            to[r] = g->r[r].w->xn;
        gpus_share(g, to, x, row * (size_t)rows);
        for (int r = 0; r < g->n; r++) {
            struct gpus_rank *k = &g->r[r];
            struct matmul_job job = { &m->part[r], r == 0 ? to_y : k->logits,
                                      r == 0 ? y_stride : (size_t)width_of(&at, r) };
            e.from[r] = job.y;
            e.from_stride[r] = job.y_stride;
            on_gpu(k);
            if (m->part[r].out > 0)
                matmul_few(k->w, &job, 1, r == 0 ? x : k->w->xn, rows, false);
        }
        gpus_exchange(g, &e);
    }
    on_gpu(&g->r[0]);
}

void gpus_logits(struct device_work *w, const struct logits_job *job)
{
    const struct gpus_matrix *m = (const struct gpus_matrix *)job->w->handle;
    if (job->w->spread.kind == SPREAD_NONE || !w->gpus) {
        block_logits(w, job);
        return;
    }
    norm_some_rows(w, w->xn, few_x_dtype(&m->part[0]), job->x, job->rows, job->norm, job->n,
                   job->w->in, job->eps);
    product(w->gpus, m, job->w->out, job->y, (size_t)job->w->out, w->xn, job->n);
}

void gpus_matmul(struct device_work *w, const struct matmul_job *jobs, int n_jobs, const float *x,
                 int n)
{
    if (jobs[0].w->spread.kind == SPREAD_NONE || !w->gpus) {
        gpu_matmul(w, jobs, n_jobs, x, n);
        return;
    }
    for (int i = 0; i < n_jobs; i++) {
        const struct gpus_matrix *m = (const struct gpus_matrix *)jobs[i].w->handle;
        size_t stride;
        const void *in = as_input(w, &m->part[0], x, n, &stride);
        product(w->gpus, m, jobs[i].w->out, jobs[i].y, jobs[i].y_stride, in, n);
    }
}
