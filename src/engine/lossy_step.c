/* One step of a lossy answer: rows of the timeline through a group of layers. */
#include "engine/lossy_parts.h"

#include <string.h>

enum pv_status lossy_open_cache(const struct lossy_run *l, struct kvcache *kv, int layer0,
                                int layer1, int rows, struct pv_error *err)
{
    return kvcache_open_layers(kv, l->s->model->dev, lossy_config(l), layer0, layer1,
                               l->s->engine->kv, rows, err);
}

/* The position of a row of the timeline, which is row i of the stage. */
static void place_row(const struct lossy_run *l, int32_t pos[3], int row, int stage, int i)
{
    int n_prompt = l->s->seq.answer0;
    if (l->compact && row >= n_prompt)
        i = l->n_rows[stage] + row - n_prompt;
    for (int a = 0; a < 3; a++)
        pos[a] = l->compact ? i : l->s->seq.line.pos[row][a];
}

enum pv_status lossy_run_rows(struct lossy_run *l, struct kvcache *kv, const int *rows, int at,
                              int n, const struct lossy_step *x, struct pv_error *err)
{
    struct pv_session *s = l->s;
    size_t width = (size_t)config_media_width(lossy_config(l));
    struct step_seq seq = { .kv = kv, .n = n };
    struct answer_ask ask;
    struct step step = { .n = n,
                         .ids = l->ids,
                         .embeds = l->embeds,
                         .pos = (const int32_t(*)[3])l->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_hidden = x->hidden != NULL,
                         .hidden = x->hidden,
                         .n_columns = x->n_columns,
                         .columns = x->columns,
                         .layer0 = x->layer0,
                         .layer1 = x->layer1,
                         .residual = x->residual,
                         .residual_there = true,
                         .columns_only = x->columns_only,
                         .bulk = !x->decodes };
    enum pv_status st;
    answer_asks(&s->answer, &step, &ask, x->want, l->p, s->seq.line.n);
    for (int i = 0; i < n; i++) {
        int row = rows[i];
        l->ids[i] = s->seq.line.ids[row];
        place_row(l, l->pos[i], row, x->stage, at + i);
        if (l->ids[i] < 0)
            memcpy(l->embeds + (size_t)i * width, l->media + (size_t)l->media_at[row] * width,
                   width * sizeof *l->embeds);
    }
    st = s->target.base.run(&s->target.base, &step, err);
    if (!st)
        kvcache_advance(kv, n);
    return st;
}
