/* A rank's part of the pools of KV pages: the same pages as on all ranks, but with its own KV
 * heads. */
#include "base/mem.h"
#include "dist/rank.h"

struct kv_layer rank_kv_layer(const struct rank_pool *p, int layer, const int32_t *pages,
                              int n_pages)
{
    size_t half = p->page_size / 2 / (size_t)p->shape.n_layers;
    return (struct kv_layer){ .dtype = p->shape.dtype,
                              .n_kv = p->n_kv,
                              .d = p->shape.head_dim,
                              .cap = n_pages * KV_CHUNK,
                              .k = p->mem + 2 * (size_t)layer * half,
                              .v = p->mem + (2 * (size_t)layer + 1) * half,
                              .page_size = p->page_size,
                              .n_pool = p->shape.n_pages,
                              .page = pages };
}

void rank_pool_close(struct rank *k, struct rank_pool **p)
{
    if (!*p)
        return;
    if ((*p)->mem)
        k->dev->ops->free(k->dev, (*p)->mem);
    mem_free(*p);
    *p = NULL;
}

enum pv_status rank_kv_open(struct rank *k, const struct command *c, struct pv_error *err)
{
    const struct kv_shape *s = &((const struct command_kv *)c)->shape;
    struct head_part h = rank_heads(s->n_heads, s->n_kv_heads, k->t, k->t->rank);
    struct rank_pool *p = mem_zalloc(sizeof *p);
    void *mem = NULL;
    enum pv_status st;
    if (!p)
        return fail_nomem(err, sizeof *p);
    p->shape = *s;
    /* At least one, because pages are identified by their addresses on rank 0. */
    p->n_kv = h.kv.to > h.kv.from ? h.kv.to - h.kv.from : 1;
    p->page_size = kv_page_size(s->dtype, s->n_layers, p->n_kv, s->head_dim);
    st =
        mul_size(p->page_size, (size_t)s->n_pages, &p->size)
            ? device_alloc(k->dev, &mem, p->size, err)
            : fail(err, PV_E_LIMIT, "%d pages of %zu bytes are too many", s->n_pages, p->page_size);
    p->mem = mem;
    if (!st && !table_put(&k->pools, c->id, p))
        st = fail_nomem(err, sizeof *p);
    if (st)
        rank_pool_close(k, &p);
    return st;
}

enum pv_status rank_kv_close(struct rank *k, const struct command *c, struct pv_error *err)
{
    struct rank_pool *p = table_find(&k->pools, c->id);
    (void)err;
    rank_pool_close(k, &p);
    table_put(&k->pools, c->id, NULL);
    return PV_OK;
}

/* The work of the session for which rank 0 sent the command. */
static struct device_work *work_of(const struct rank *k, const struct command *c)
{
    return ((struct rank_work *)table_find(&k->works, c->work))->inner;
}

enum pv_status rank_kv_move(struct rank *k, const struct command *c, struct pv_error *err)
{
    const struct command_kv_move *m = (const struct command_kv_move *)c;
    const int32_t *pages = (const int32_t *)(m + 1), *to = pages + m->n_pages, *from = to + m->n;
    struct kv_layer l = rank_kv_layer(table_find(&k->pools, c->id), m->layer, pages, m->n_pages);
    (void)err;
    k->dev->ops->kv_move(work_of(k, c), &l, to, from, m->n);
    return PV_OK;
}

enum pv_status rank_kv_copy(struct rank *k, const struct command *c, struct pv_error *err)
{
    const struct command_kv_copy *m = (const struct command_kv_copy *)c;
    const int32_t *pages = (const int32_t *)(m + 1), *from_pages = pages + m->n_pages;
    const int32_t *to = from_pages + m->from_pages, *from = to + m->n;
    struct kv_layer a = rank_kv_layer(table_find(&k->pools, c->id), m->layer, pages, m->n_pages);
    struct kv_layer b =
        rank_kv_layer(table_find(&k->pools, m->from), m->from_layer, from_pages, m->from_pages);
    (void)err;
    k->dev->ops->kv_copy(work_of(k, c), &a, &b, to, from, m->n);
    return PV_OK;
}

enum pv_status rank_kv_page(struct rank *k, const struct command *c, struct pv_error *err)
{
    const struct command_kv_page *m = (const struct command_kv_page *)c;
    const struct rank_pool *p = table_find(&k->pools, c->id);
    (void)err;
    k->dev->ops->copy(work_of(k, c), p->mem + (size_t)m->to * p->page_size,
                      p->mem + (size_t)m->from * p->page_size, p->page_size);
    return PV_OK;
}
