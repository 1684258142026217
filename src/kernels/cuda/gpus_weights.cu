/* Weights of a decoder that is spread over GPUs: each has some rows of every matrix. Kernels choose
 * how to compute by the size of the whole matrix (cuda_matrix.whole), so that the bits are those of
 * a single GPU. */
#include "kernels/cuda/gpus.h"

#include <string.h>

enum { OUT_STEP = 64, OUT_LEAST = 8, ROLES = 3 };

static struct gpus_device *gpus_of(struct device *dev)
{
    return (struct gpus_device *)dev; /* dev is its first member */
}

static int index_of(const struct device *gpu)
{
    return ((const struct cuda_device *)gpu->impl)->index;
}

struct gpus_ranges gpus_outputs(int out, int n)
{
    struct gpus_ranges g = {};
    for (int r = 0; r < n; r++)
        g.at[r + 1] = split_steps(out, OUT_STEP, OUT_LEAST, n, r).to;
    return g;
}

static struct part part_of(const struct matrix *m, int n, int r)
{
    const struct spread *s = &m->spread;
    struct head_part h;
    int d;
    if (s->kind != SPREAD_QUERIES && s->kind != SPREAD_KEYS)
        return split_steps(m->out, OUT_STEP, OUT_LEAST, n, r);
    h = split_heads(s->n_heads, s->n_kv_heads, n, r);
    d = m->out / (s->kind == SPREAD_QUERIES ? s->n_heads : s->n_kv_heads);
    return s->kind == SPREAD_QUERIES ? part{ h.q.from * d, h.q.to * d }
                                     : part{ h.kv.from * d, h.kv.to * d };
}

/* Copy floats from the first GPU to another. */
static enum pv_status copy_floats(const struct gpus_device *g, int r, float **to, const float *from,
                                  size_t n, struct pv_error *err)
{
    void *there = NULL;
    enum pv_status s = device_alloc(g->gpu[r], &there, n * sizeof(float), err);
    if (s)
        return s;
    *to = (float *)there;
    if (cudaMemcpyPeer(there, index_of(g->gpu[r]), from, index_of(g->gpu[0]), n * sizeof(float)) !=
            cudaSuccess ||
        cudaStreamSynchronize(0) != cudaSuccess) {
        cudaGetLastError();
        return fail(err, PV_E_DEVICE, "GPU %d got nothing from GPU %d", index_of(g->gpu[r]),
                    index_of(g->gpu[0]));
    }
    return PV_OK;
}

/* ---- matrices ---- */

static void close_matrix(struct gpus_device *g, struct gpus_matrix *x)
{
    for (int r = 0; r < g->n; r++) {
        if (r > 0 || !x->viewed)
            matrix_drop(g->gpu[r], &x->part[r]);
        if (x->bias[r])
            g->gpu[r]->ops->free(g->gpu[r], x->bias[r]);
    }
    mem_free(x);
}

/* Bring rows p of m to GPU r: from the host, or with `draws` as random numbers. */
static enum pv_status take_part(struct gpus_device *g, struct gpus_matrix *x,
                                const struct matrix *m, int r, bool draws, uint64_t seed,
                                struct pv_error *err)
{
    struct part p = part_of(m, g->n, r);
    struct matrix *to = &x->part[r];
    enum pv_status s = PV_OK;
    *to = *m;
    to->spread.kind = SPREAD_NONE;
    to->out = p.to - p.from;
    to->handle = NULL;
    to->bias = m->bias ? m->bias + p.from : NULL;
    if (x->viewed && r == 0) {
        x->view = *cuda_of(m);
        x->view.out = to->out;
        to->data = &x->view;
        return PV_OK;
    }
    to->data = draws ? NULL : (const uint8_t *)m->data + (size_t)p.from * m->row_size;
    s = draws ? matrix_draw_rows(g->gpu[r], to, seed, p.from, err)
              : matrix_take(g->gpu[r], to, err);
    if (s) {
        to->data = NULL;
        return s;
    }
    ((struct cuda_matrix *)to->data)->whole = m->out;
    if (m->bias && r > 0 && to->out > 0) {
        s = copy_floats(g, r, &x->bias[r], m->bias + p.from, (size_t)to->out, err);
        to->bias = x->bias[r];
    }
    return s;
}

static enum pv_status take_spread(struct gpus_device *g, struct matrix *m, bool draws,
                                  uint64_t seed, struct pv_error *err)
{
    struct gpus_matrix *x = (struct gpus_matrix *)mem_zalloc(sizeof *x);
    struct matrix whole = *m, parts = *m;
    enum pv_status s = PV_OK;
    if (!x)
        return fail_nomem(err, sizeof *x);
    x->viewed = m->spread.looked_up;
    if (x->viewed)
        s = draws ? matrix_draw(g->gpu[0], &whole, seed, err) : matrix_take(g->gpu[0], &whole, err);
    if (s) {
        mem_free(x);
        return s;
    }
    for (int r = 0; r < g->n && !s; r++)
        s = take_part(g, x, x->viewed && r == 0 ? &whole : &parts, r, draws, seed, err);
    if (s) {
        close_matrix(g, x);
        if (m->spread.looked_up)
            matrix_drop(g->gpu[0], &whole);
        return s;
    }
    m->dtype = x->part[0].dtype;
    m->data = x->viewed ? whole.data : x->part[0].data;
    m->handle = x;
    return PV_OK;
}

enum pv_status gpus_take(struct device *dev, struct matrix *m, struct pv_error *err)
{
    if (m->spread.kind == SPREAD_NONE)
        return matrix_take(dev, m, err);
    return take_spread(gpus_of(dev), m, false, 0, err);
}

enum pv_status gpus_draw(struct device *dev, struct matrix *m, uint64_t seed, struct pv_error *err)
{
    if (m->spread.kind == SPREAD_NONE)
        return matrix_draw(dev, m, seed, err);
    return take_spread(gpus_of(dev), m, true, seed, err);
}

void gpus_drop(struct device *dev, struct matrix *m)
{
    struct gpus_matrix *x = (struct gpus_matrix *)m->handle;
    if (m->spread.kind == SPREAD_NONE) {
        matrix_drop(dev, m);
        return;
    }
    if (!x)
        return;
    if (x->viewed)
        matrix_drop(dev, m);
    close_matrix(gpus_of(dev), x);
    m->data = NULL;
    m->handle = NULL;
}

static const struct gpus_matrix *spread_of(const struct matrix *m)
{
    return (const struct gpus_matrix *)m->handle;
}

/* ---- experts ---- */

/* Each GPU has some outputs of every expert, so all GPUs are equally busy whichever experts are
 * chosen. The tables of pointers for the products are made with the layers (part_experts). */
enum pv_status gpus_take_experts(struct device *dev, struct expert_weights *e, struct pv_error *err)
{
    struct gpus_device *g = gpus_of(dev);
    const struct matrix *role[ROLES] = { e->gate, e->up, e->down };
    size_t n = (size_t)e->n;
    struct gpus_experts *x;
    if (e->gate[0].spread.kind == SPREAD_NONE)
        return experts_take(dev, e, err);
    x = (struct gpus_experts *)mem_zalloc(sizeof *x);
    if (!x)
        return fail_nomem(err, sizeof *x);
    e->handle = x;
    for (int r = 0; r < g->n; r++) {
        x->matrix[r] = (struct matrix *)mem_alloc(ROLES * n * sizeof **x->matrix);
        if (!x->matrix[r])
            return fail_nomem(err, ROLES * n * sizeof **x->matrix);
        for (size_t i = 0; i < ROLES * n; i++)
            x->matrix[r][i] = spread_of(&role[i / n][i % n])->part[r];
    }
    return PV_OK;
}

void gpus_drop_experts(struct device *dev, struct expert_weights *e)
{
    struct gpus_experts *x = (struct gpus_experts *)e->handle;
    if (!e->gate || e->gate[0].spread.kind == SPREAD_NONE) {
        experts_drop(dev, e);
        return;
    }
    for (int r = 0; x && r < GPUS_MOST; r++)
        mem_free(x->matrix[r]);
    mem_free(x);
    e->handle = NULL;
}

/* Set up GPU r's part of the experts. Every GPU has the whole router. */
static enum pv_status part_experts(struct gpus_device *g, struct gpus_layer_part *p,
                                   const struct expert_weights *e, int r, struct pv_error *err)
{
    const struct gpus_experts *x = (const struct gpus_experts *)e->handle;
    const struct cuda_matrix *router = cuda_of(&e->router);
    size_t n = (size_t)e->n;
    float *w = NULL;
    enum pv_status s = PV_OK;
    p->experts = *e;
    p->experts.handle = NULL;
    p->experts.gate = x->matrix[r];
    p->experts.up = x->matrix[r] + n;
    p->experts.down = x->matrix[r] + 2 * n;
    p->router = *router;
    if (r > 0) {
        p->router.w = NULL;
        s = copy_floats(g, r, &w, (const float *)router->w, router->size / sizeof(float), err);
        p->router.w = w;
        p->experts.router.data = &p->router;
    }
    if (!s)
        s = experts_take(g->gpu[r], &p->experts, err);
    p->w.experts = &p->experts;
    return s;
}

/* ---- layers ---- */

/* Copy a layer's norms to a GPU other than the first. */
static enum pv_status part_norms(struct gpus_device *g, struct gpus_layer_part *p,
                                 const struct layer_shape *shape, int r, struct pv_error *err)
{
    const float **norm[] = { &p->w.attn_norm, &p->w.ffn_norm, &p->w.q_norm, &p->w.k_norm };
    size_t size[] = { (size_t)shape->hidden, (size_t)shape->hidden, (size_t)shape->head_dim,
                      (size_t)shape->head_dim };
    size_t all = 0;
    void *there = NULL;
    enum pv_status s;
    for (int i = 0; i < 4; i++)
        all += (size[i] + 63) / 64 * 64;
    s = device_alloc(g->gpu[r], &there, all * sizeof(float), err);
    if (s)
        return s;
    p->small = (float *)there;
    float *at = p->small;
    for (int i = 0; i < 4; i++) {
        if (!*norm[i])
            continue;
        if (cudaMemcpyPeer(at, index_of(g->gpu[r]), *norm[i], index_of(g->gpu[0]),
                           size[i] * sizeof(float)) != cudaSuccess)
            return fail(err, PV_E_DEVICE, "GPU %d got nothing from GPU %d", index_of(g->gpu[r]),
                        index_of(g->gpu[0]));
        *norm[i] = at;
        at += (size[i] + 63) / 64 * 64;
    }
    cudaStreamSynchronize(0);
    return PV_OK;
}

static enum pv_status take_part_of_layer(struct gpus_device *g, struct gpus_layer *x,
                                         const struct layer_weights *l,
                                         const struct layer_shape *shape, int r,
                                         struct pv_error *err)
{
    struct gpus_layer_part *p = &x->part[r];
    struct head_part h = split_heads(shape->n_heads, shape->n_kv_heads, g->n, r);
    const struct matrix *from[] = { &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down };
    struct matrix *to[] = { &p->w.q, &p->w.k, &p->w.v, &p->w.o, &p->w.gate, &p->w.up, &p->w.down };
    enum pv_status s;
    p->w = *l;
    p->w.handle = NULL;
    p->shape = *shape;
    p->shape.n_heads = h.q.to - h.q.from;
    p->shape.n_kv_heads = h.kv.to - h.kv.from;
    x->kv[r] = h.kv;
    x->q.at[r + 1] = h.q.to * shape->head_dim;
    for (int i = 0; i < 7; i++)
        if (from[i]->handle)
            *to[i] = spread_of(from[i])->part[r];
    s = r > 0 ? part_norms(g, p, shape, r, err) : PV_OK;
    return !s && l->experts ? part_experts(g, p, l->experts, r, err) : s;
}

enum pv_status gpus_take_layer(struct device *dev, struct layer_weights *l,
                               const struct layer_shape *shape, struct pv_error *err)
{
    struct gpus_device *g = gpus_of(dev);
    struct gpus_layer *x;
    enum pv_status s = PV_OK;
    if (l->q.spread.kind == SPREAD_NONE)
        return PV_OK;
    if (shape->n_heads < g->n)
        return fail(err, PV_E_UNSUPPORTED, "a model with %d query heads cannot use %d GPUs",
                    shape->n_heads, g->n);
    x = (struct gpus_layer *)mem_zalloc(sizeof *x);
    if (!x)
        return fail_nomem(err, sizeof *x);
    l->handle = x;
    x->hidden = gpus_outputs(shape->hidden, g->n);
    x->ffn = gpus_outputs(l->experts ? l->experts->gate[0].out : shape->ffn, g->n);
    for (int r = 0; r < g->n && !s; r++)
        s = take_part_of_layer(g, x, l, shape, r, err);
    cudaSetDevice(index_of(g->gpu[0]));
    return s;
}

void gpus_drop_layer(struct device *dev, struct layer_weights *l)
{
    struct gpus_device *g = gpus_of(dev);
    struct gpus_layer *x = (struct gpus_layer *)l->handle;
    if (!x)
        return;
    for (int r = 0; r < g->n; r++) {
        struct gpus_layer_part *p = &x->part[r];
        if (p->w.experts == &p->experts)
            experts_drop(g->gpu[r], &p->experts);
        if (r > 0 && p->router.w)
            g->gpu[r]->ops->free(g->gpu[r], p->router.w);
        if (p->small)
            g->gpu[r]->ops->free(g->gpu[r], p->small);
    }
    mem_free(x);
    l->handle = NULL;
}
