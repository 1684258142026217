/* The tokens of a lossy answer: each runs through one group of layers after the other, with the
 * cache of each. */
#include "engine/lossy_parts.h"

/* For the stage whose cache entries each token chooses: reads only these entries of its cache. */
static enum pv_status read_chosen(struct lossy_run *l, int g, struct kvcache **kv,
                                  struct pv_error *err)
{
    const struct lossy_stage *stage = &l->plan.stage[g];
    enum pv_status st = PV_OK;
    int most = lossy_budget(l->n_video, stage->keep), n = l->n_keys < most ? l->n_keys : most;
    *kv = &l->kv[g];
    if (stage->signal != LOSSY_DECODING || n == l->n_keys)
        return PV_OK;
    if (!l->chosen.pool)
        st = lossy_open_cache(l, &l->chosen, stage->layer0, stage->layer1,
                              l->n - l->n_keys + n + l->most_new, err);
    if (!st)
        st = lossy_choose_entries(l, &l->kv[g], stage, err);
    *kv = &l->chosen;
    return st;
}

enum pv_status lossy_token(struct lossy_run *l, enum want want, struct pv_error *err)
{
    struct pv_session *s = l->s;
    int row = s->seq.line.n - 1, first = 0;
    enum pv_status st = PV_OK;
    for (int g = 0; g < l->plan.n && !st; g++) {
        const struct lossy_stage *stage = &l->plan.stage[g];
        bool last = g + 1 == l->plan.n, asked = !last && stage[1].signal == LOSSY_DECODING;
        struct column_tap tap = { .layer0 = stage->layer1 - 1,
                                  .layer1 = stage->layer1,
                                  .n_rows = 1,
                                  .rows = &first,
                                  .n_keys = l->n_keys,
                                  .keys = l->keys,
                                  .sums = l->sums };
        struct lossy_step x = { .stage = g,
                                .layer0 = stage->layer0,
                                .layer1 = stage->layer1,
                                .residual = l->residual,
                                .want = last ? want : WANT_NOTHING,
                                .decodes = true,
                                .n_columns = asked && l->n_keys > 0,
                                .columns = &tap };
        struct kvcache *kv;
        st = read_chosen(l, g, &kv, err);
        if (!st)
            st = lossy_run_rows(l, kv, &row, 0, 1, &x, err);
    }
    return st;
}
