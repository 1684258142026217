/* The scratch memory of one session on one rank, in one block. */
#include "base/mem.h"

#include "base/minmax.h"
#include "dist/rank.h"

#include <string.h>

size_t rank_work_numbers(const struct work_shape *s)
{
    size_t pages = (size_t)(s->context + KV_CHUNK - 1) / KV_CHUNK + 1;
    return RANK_RUNS * pages + 2 * (size_t)s->rows + RANK_RUNS;
}

/* Take the buffers from the block; if `a` is NULL, only count the bytes. */
static size_t carve(struct rank_work *w, struct arena *a, const struct rank *k,
                    const struct work_shape *s)
{
    size_t f = sizeof(float), rows = (size_t)s->rows, hidden = (size_t)s->hidden;
    size_t q = (size_t)s->n_heads * (size_t)s->head_dim, ffn = (size_t)s->ffn;
    size_t kv = (size_t)s->n_kv_heads * (size_t)s->head_dim, half = (size_t)s->head_dim / 2;
    bool follows = k->t->rank > 0;
    size_t wide = max_size(q, ffn), out = max_size(rows * hidden, (size_t)s->out);
    bool spread = s->spread;
    struct {
        void *field;
        size_t size;
    } parts[] = {
        { &w->x, follows ? f * rows * max_size(hidden, (size_t)s->in) : 0 },
        { &w->wide, follows ? 2 * f * rows * hidden : 0 },
        { &w->cos, follows ? f * rows * half : 0 },
        { &w->sin, follows ? f * rows * half : 0 },
        { &w->xn, f * rows * hidden },
        { &w->q, f * rows * q },
        { &w->key, f * rows * kv },
        { &w->value, f * rows * kv },
        { &w->att, f * rows * q },
        { &w->up, f * rows * ffn },
        { &w->sums, follows ? f * (size_t)s->context : 0 },
        { &w->stage[0], spread ? f * rows * wide : 0 },
        { &w->stage[1], spread ? f * out : 0 },
        { &w->full[0], f * rows * wide },
        { &w->full[1], f * rows * hidden },
        { &w->numbers, sizeof(int32_t) * rank_work_numbers(s) },
    };
    size_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *p = a && parts[i].size > 0 ? arena_push(a, parts[i].size) : NULL;
        total += parts[i].size > 0 ? arena_cost(parts[i].size) : 0;
        memcpy(parts[i].field, &p, sizeof p);
    }
    w->stage_cap[0] = rows * wide;
    w->stage_cap[1] = out;
    w->numbers_cap = rank_work_numbers(s);
    return total;
}

size_t rank_work_size(const struct rank *k, const struct work_shape *s)
{
    struct rank_work none;
    return carve(&none, NULL, k, s);
}

enum pv_status rank_work_open(struct rank_work **out, struct rank *k, const struct work_shape *s,
                              struct pv_error *err)
{
    struct rank_work *w = mem_zalloc(sizeof *w);
    size_t size;
    enum pv_status st;
    if (!w)
        return fail_nomem(err, sizeof *w);
    w->k = k;
    w->shape = *s;
    size = carve(w, NULL, k, s);
    w->block = mem_zalloc(size);
    st = w->block ? k->dev->ops->work_open(k->dev, &w->inner, s, err) : fail_nomem(err, size);
    if (st) {
        rank_work_close(&w);
        return st;
    }
    struct arena a;
    arena_init(&a, w->block, size);
    carve(w, &a, k, s);
    *out = w;
    return PV_OK;
}

void rank_work_close(struct rank_work **w)
{
    if (!*w)
        return;
    if ((*w)->inner)
        (*w)->k->dev->ops->work_close((*w)->k->dev, &(*w)->inner);
    mem_free((*w)->block);
    mem_free(*w);
    *w = NULL;
}
