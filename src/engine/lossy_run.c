/* An answer of a model whose video tokens are pruned: its memory, from opening to closing.
 *
 * The prefill (lossy_prefill.c) runs stage by stage. All rows that a group of layers has go through
 * these layers, chunk by chunk; then rows are dropped (lossy_choose.c), and the residual stream of
 * the others continues into the next group. Rows keep their positions, unless the method closes up
 * the gaps. A token of the answer (lossy_decode.c) runs as one step per group, over that group's
 * cache. Everything consists of ordinary steps over part of the layers (lossy_step.c), so it works
 * wherever the decoder does, and the bits of a row do not depend on the other rows. */
#include "engine/lossy_parts.h"

#include <string.h>

/* Find the rows of videos, and the first row after them. */
static void list_video(struct lossy_run *l)
{
    const struct timeline *t = &l->s->seq.line;
    int n_media = 0;
    memset(l->video, 0, (size_t)t->n * sizeof *l->video);
    for (int i = 0; i < t->n; i++)
        l->media_at[i] = t->ids[i] < 0 ? n_media++ : -1;
    for (int k = 0; k < t->n_spans; k++) {
        const struct media_span *span = &t->span[k];
        const struct media *m = &t->media[span->item].m;
        int n = m->n_units * m->unit_rows - span->first; /* without the newline */
        for (int i = 0; m->video && i < span->n && i < n; i++) {
            l->video[span->row0 + i] = true;
            l->n_video++;
            l->query0 = span->row0 + i + 1;
        }
    }
}

static enum pv_status open_arrays(struct lossy_run *l, struct pv_error *err)
{
    struct pv_session *s = l->s;
    size_t n = (size_t)s->seq.line.n, chunk = (size_t)s->engine->chunk;
    size_t width = (size_t)config_media_width(lossy_config(l));
    const struct {
        void *at; /* the pointer */
        size_t size;
    } parts[] = {
        { &l->video, n * sizeof *l->video },   { &l->media_at, n * sizeof *l->media_at },
        { &l->rates, n * sizeof *l->rates },   { &l->row, n * sizeof *l->row },
        { &l->keys, n * sizeof *l->keys },     { &l->scores, n * sizeof *l->scores },
        { &l->sums, n * sizeof *l->sums },     { &l->kept, n * sizeof *l->kept },
        { &l->stays, n * sizeof *l->stays },   { &l->before, n * sizeof *l->before },
        { &l->ids, chunk * sizeof *l->ids },   { &l->pos, chunk * sizeof *l->pos },
        { &l->taps, chunk * sizeof *l->taps }, { &l->embeds, chunk * width * sizeof *l->embeds },
    };
    size_t n_parts = sizeof parts / sizeof *parts, size = 0;
    for (size_t i = 0; i < n_parts; i++)
        size += arena_cost(parts[i].size);
    if (!arena_open(&l->arena, size))
        return fail_nomem(err, size);
    for (size_t i = 0; i < n_parts; i++) {
        void *p = arena_push(&l->arena, parts[i].size);
        memcpy(parts[i].at, &p, sizeof p);
    }
    return PV_OK;
}

/* Upper bound on the bytes of all caches and buffers. */
static uint64_t count_bytes(const struct lossy_run *l)
{
    const struct config *c = lossy_config(l);
    uint64_t n = (uint64_t)l->s->seq.line.n, size = n * (uint64_t)c->hidden * sizeof(float);
    struct config part = *c;
    size += n * (uint64_t)config_media_width(c) * sizeof(float);
    for (int g = 0; g < l->plan.n; g++) {
        const struct lossy_stage *stage = &l->plan.stage[g];
        int rows = l->s->seq.line.n - l->n_video + lossy_budget(l->n_video, stage->keep);
        part.n_layers = stage->layer1 - stage->layer0;
        if (stage->signal == LOSSY_DECODING)
            rows += l->s->seq.line.n;
        size += kvcache_size(&part, l->s->engine->kv, rows + l->most_new);
    }
    return size;
}

static enum pv_status open_buffers(struct lossy_run *l, struct pv_error *err)
{
    struct pv_session *s = l->s;
    const struct config *c = lossy_config(l);
    size_t n = (size_t)s->seq.line.n, n_media = 0;
    size_t width = (size_t)config_media_width(c) * sizeof(float);
    void *residual = NULL;
    enum pv_status st = budget_claim(&s->budget, count_bytes(l), "lossy pruning", err);
    if (st)
        return st;
    for (size_t i = 0; i < n; i++)
        n_media += l->media_at[i] >= 0;
    l->media = n_media > 0 ? mem_alloc(n_media * width) : NULL;
    if (n_media > 0 && !l->media)
        return fail_nomem(err, n_media * width);
    st = device_alloc(s->model->dev, &residual, n * (size_t)c->hidden * sizeof(float), err);
    l->residual = residual;
    return st;
}

enum pv_status lossy_open(struct lossy_run **out, struct pv_session *s,
                          const struct pv_gen_params *p, struct pv_error *err)
{
    struct lossy_run *l = mem_zalloc(sizeof *l);
    int room = s->seq.line.context - s->seq.line.n;
    enum pv_status st;
    if (!l)
        return fail_nomem(err, sizeof *l);
    l->s = s;
    l->p = p;
    l->most_new = p->max_new_tokens < room ? p->max_new_tokens : room;
    st = lossy_plan(&l->plan, p->method->lossy, lossy_config(l)->n_layers, err);
    l->compact = l->plan.compact && lossy_config(l)->mrope == MROPE_NONE;
    if (!st && s->model->spread)
        st = fail(err, PV_E_UNSUPPORTED,
                  "lossy pruning does not work with a model on several "
                  "processes (--ranks)");
    if (!st)
        st = open_arrays(l, err);
    if (!st) {
        list_video(l);
        st = open_buffers(l, err);
    }
    if (st) {
        lossy_close(&l);
        return st;
    }
    task_preemptible(s->task, false); /* it holds no pages of the pool */
    *out = l;
    return PV_OK;
}

void lossy_close(struct lossy_run **run)
{
    struct lossy_run *l = *run;
    if (!l)
        return;
    task_preemptible(l->s->task, true);
    for (int g = 0; g < LOSSY_MAX_STAGES; g++)
        if (l->kv[g].pool)
            kvcache_close(&l->kv[g]);
    if (l->chosen.pool)
        kvcache_close(&l->chosen);
    if (l->residual)
        l->s->model->dev->ops->free(l->s->model->dev, l->residual);
    arena_close(&l->arena);
    mem_free(l->media);
    mem_free(l);
    *run = NULL;
}
