/* Weights of the device of all ranks: every rank takes its part of matrices that are spread, rank 0
 * takes the others. In the caller's matrix, `number` is that under which the ranks know their
 * parts; its rows stay in place, for `embed`. */
#include "dist/device_ranks.h"

#include <string.h>

enum { ROLES = 3 };

/* ---- files ---- */

enum pv_status device_ranks_source(struct device *dev, const char *path, const void *data,
                                   size_t size, struct pv_error *err)
{
    struct rank_device *d = device_of(dev);
    struct file_map map = { .data = data, .size = size };
    size_t len = strlen(path) + 1;
    struct command_source *c;
    if (d->n_sources == RANK_SOURCES || size == 0)
        return PV_OK; /* its rows will be sent instead */
    pthread_mutex_lock(&d->lock);
    d->source[d->n_sources].data = data;
    d->source[d->n_sources].size = size;
    c = queue_push(d, COMMAND_SOURCE, d->n_sources, -1, sizeof *c + len);
    if (c) {
        c->file_size = size;
        source_sum(&map, c->sum);
        memcpy(c + 1, path, len);
        d->n_sources++;
    }
    pthread_mutex_unlock(&d->lock);
    return queue_settle(d, err);
}

/* The file that contains the matrix, if all ranks have it; otherwise -1. */
static int source_of(const struct rank_device *d, const struct matrix *m, uint64_t *offset)
{
    const uint8_t *data = m->data;
    size_t size = (size_t)m->out * m->row_size;
    for (int i = 0; i < d->n_sources; i++)
        if (d->k.everywhere[i] && data >= d->source[i].data &&
            data + size <= d->source[i].data + d->source[i].size) {
            *offset = (uint64_t)(data - d->source[i].data);
            return i;
        }
    return -1;
}

/* ---- matrices ---- */

static enum pv_status take_spread(struct rank_device *d, struct matrix *m, struct pv_error *err)
{
    size_t bias = m->bias ? sizeof(float) * (size_t)m->out : 0;
    struct command_take *c;
    pthread_mutex_lock(&d->lock);
    c = queue_push(d, COMMAND_TAKE, d->n_matrices, -1, sizeof *c + bias);
    if (c) {
        c->spread = m->spread;
        c->dtype = (int32_t)m->dtype;
        c->out = m->out;
        c->in = m->in;
        c->row_size = m->row_size;
        c->data = (uint64_t)(uintptr_t)m->data;
        c->source = source_of(d, m, &c->offset);
        c->bias = m->bias != NULL;
        c->repacks = d->dev.repacks;
        if (bias > 0)
            memcpy(c + 1, m->bias, bias);
        m->number = ++d->n_matrices;
    }
    pthread_mutex_unlock(&d->lock);
    return c ? PV_OK : queue_settle(d, err);
}

static enum pv_status ranks_take(struct device *dev, struct matrix *m, struct pv_error *err)
{
    struct rank_device *d = device_of(dev);
    struct device *inner = d->k.dev;
    enum pv_status s;
    if (m->spread.kind != SPREAD_NONE)
        return take_spread(d, m, err);
    s = queue_settle(d, err); /* the device's threads may be repacking */
    if (s)
        return s;
    inner->repacks = dev->repacks;
    inner->go_on = dev->go_on;
    inner->user = dev->user;
    s = inner->ops->take(inner, m, err);
    inner->go_on = NULL;
    dev->copies = inner->copies;
    return s;
}

static void push_drop(struct rank_device *d, enum command_kind kind, int id)
{
    pthread_mutex_lock(&d->lock);
    (void)queue_push(d, kind, id, -1, sizeof(struct command));
    queue_flush(d);
    pthread_mutex_unlock(&d->lock);
}

static void ranks_drop(struct device *dev, struct matrix *m)
{
    struct rank_device *d = device_of(dev);
    if (m->spread.kind == SPREAD_NONE) {
        d->k.dev->ops->drop(d->k.dev, m);
        dev->copies = d->k.dev->copies;
    } else if (m->number) {
        push_drop(d, COMMAND_DROP, m->number - 1);
        m->number = 0;
    }
}

/* ---- experts ---- */

static enum pv_status ranks_take_experts(struct device *dev, struct expert_weights *e,
                                         struct pv_error *err)
{
    struct rank_device *d = device_of(dev);
    const struct matrix *roles[ROLES] = { e->gate, e->up, e->down };
    size_t n = (size_t)e->n, router = sizeof(float) * n * (size_t)e->router.in;
    struct command_experts *c;
    if (e->gate[0].spread.kind == SPREAD_NONE)
        return PV_OK;
    pthread_mutex_lock(&d->lock);
    c = queue_push(d, COMMAND_TAKE_EXPERTS, d->n_experts, -1,
                   sizeof *c + router + ROLES * n * sizeof(int32_t));
    if (c) {
        int32_t *ids = (int32_t *)((uint8_t *)(c + 1) + router);
        c->n = e->n;
        c->used = e->used;
        c->normed = e->normed;
        c->hidden = e->router.in;
        memcpy(c + 1, e->router.data, router);
        for (size_t i = 0; i < ROLES * n; i++)
            ids[i] = roles[i / n][i % n].number - 1;
        e->number = ++d->n_experts;
    }
    pthread_mutex_unlock(&d->lock);
    return queue_settle(d, err);
}

static void ranks_drop_experts(struct device *dev, struct expert_weights *e)
{
    if (e->number)
        push_drop(device_of(dev), COMMAND_DROP_EXPERTS, e->number - 1);
    e->number = 0;
}

/* ---- layers ---- */

static void whole_layer(struct rank_layer *to, const struct layer_weights *l,
                        const struct layer_shape *shape)
{
    *to = (struct rank_layer){ .n_ranks = 1,
                               .shape = *shape,
                               .q = { 0, shape->n_heads },
                               .kv = { 0, shape->n_kv_heads },
                               .w = *l };
    to->q_at.at[1] = shape->n_heads * shape->head_dim;
    to->hidden_at.at[1] = shape->hidden;
    to->ffn_at.at[1] = shape->ffn;
}

static void push_layer(struct rank_device *d, const struct layer_weights *l,
                       const struct layer_shape *shape)
{
    const float *norm[LAYER_NORMS] = { l->attn_norm, l->ffn_norm, l->q_norm, l->k_norm };
    const struct matrix *m[LAYER_MATRICES] = { &l->q,    &l->k,  &l->v,   &l->o,
                                               &l->gate, &l->up, &l->down };
    int width[LAYER_NORMS] = { shape->hidden, shape->hidden, shape->head_dim, shape->head_dim };
    size_t floats = 2 * (size_t)(shape->hidden + shape->head_dim);
    struct command_layer *c =
        queue_push(d, COMMAND_TAKE_LAYER, d->n_layers, -1, sizeof *c + floats * sizeof(float));
    float *at = c ? (float *)(c + 1) : NULL;
    if (!c)
        return;
    c->shape = *shape;
    for (int i = 0; i < LAYER_NORMS; i++) {
        c->norm[i] = norm[i] ? width[i] : 0;
        if (norm[i])
            memcpy(at, norm[i], sizeof *at * (size_t)width[i]);
        at += c->norm[i];
    }
    for (int i = 0; i < LAYER_MATRICES; i++)
        c->matrix[i] = m[i]->number - 1;
    c->experts = l->experts ? l->experts->number - 1 : -1;
}

static enum pv_status ranks_take_layer(struct device *dev, struct layer_weights *l,
                                       const struct layer_shape *shape, struct pv_error *err)
{
    struct rank_device *d = device_of(dev);
    struct layer_handle *h = mem_zalloc(sizeof *h);
    if (!h)
        return fail_nomem(err, sizeof *h);
    l->handle = h;
    if (l->q.spread.kind == SPREAD_NONE) {
        h->id = -1;
        h->local = mem_zalloc(sizeof *h->local);
        if (!h->local)
            return fail_nomem(err, sizeof *h->local);
        whole_layer(h->local, l, shape);
        return PV_OK;
    }
    pthread_mutex_lock(&d->lock);
    push_layer(d, l, shape);
    h->id = d->n_layers++;
    pthread_mutex_unlock(&d->lock);
    return queue_settle(d, err);
}

static void ranks_drop_layer(struct device *dev, struct layer_weights *l)
{
    struct layer_handle *h = l->handle;
    if (!h)
        return;
    if (h->id >= 0)
        push_drop(device_of(dev), COMMAND_DROP_LAYER, h->id);
    mem_free(h->local);
    mem_free(h);
    l->handle = NULL;
}

void fill_weight_ops(struct device_ops *table)
{
    table->take = ranks_take;
    table->drop = ranks_drop;
    table->take_experts = ranks_take_experts;
    table->drop_experts = ranks_drop_experts;
    table->take_layer = ranks_take_layer;
    table->drop_layer = ranks_drop_layer;
}
