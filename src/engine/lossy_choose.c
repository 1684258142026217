/* Chooses which rows of a video continue through the layers of a lossy answer. Rows that are not
 * part of a video always do. */
#include "engine/lossy_parts.h"

#include "base/minmax.h"

#include <string.h>

static const double most_merged = 0.7; /* DyCoke: largest share of a frame merged before layer 0 */

void lossy_find_keys(struct lossy_run *l)
{
    l->n_keys = 0;
    for (int i = 0; i < l->n; i++)
        if (l->video[l->row[i]])
            l->keys[l->n_keys++] = i;
}

/* ---- the first stage ---- */

/* Choose which rows of one video stay, wherever it is in the prompt. */
static enum pv_status merge_video(struct lossy_run *l, int item, double keep, struct pv_error *err)
{
    const struct timeline *t = &l->s->seq.line;
    const struct config *c = decoder_config(l->s->model->dec);
    const struct media *m = &t->media[item].m;
    size_t hidden = (size_t)c->hidden, width = (size_t)config_media_width(c);
    int n = m->n_units * m->unit_rows, n_kept = 0;
    size_t size = (size_t)n * hidden * sizeof(float);
    float *features = mem_zalloc(size);
    struct view_input in = { .n_frames = m->n_units,
                             .frame_tokens = m->unit_rows,
                             .features = features,
                             .width = c->hidden };
    bool *kept = mem_zalloc((size_t)n * sizeof *kept);
    enum pv_status st = features && kept ? PV_OK : fail_nomem(err, size);
    for (int i = 0; i < t->n && !st; i++) {
        int row;
        if (l->video[i] && timeline_item(t, i, &row) == &t->media[item])
            memcpy(features + (size_t)row * hidden, l->media + (size_t)l->media_at[i] * width,
                   hidden * sizeof *features);
    }
    if (!st)
        st = lossy_merge_time(&in, keep, most_merged, l->kept, &n_kept, err);
    for (int i = 0; i < n_kept && !st; i++)
        kept[l->kept[i]] = true;
    for (int i = 0; i < t->n && !st; i++) {
        int row;
        if (l->video[i] && timeline_item(t, i, &row) == &t->media[item])
            l->stays[i] = kept[row];
    }
    mem_free(features);
    mem_free(kept);
    return st;
}

/* Whether a media item has rows in the prompt. */
static bool is_there(const struct timeline *t, int item)
{
    for (int k = 0; k < t->n_spans; k++)
        if (t->span[k].item == item)
            return true;
    return false;
}

enum pv_status lossy_choose_first(struct lossy_run *l, struct pv_error *err)
{
    const struct timeline *t = &l->s->seq.line;
    const struct lossy_stage *stage = &l->plan.stage[0];
    enum pv_status st = PV_OK;
    memset(l->stays, true, (size_t)t->n * sizeof *l->stays);
    for (int i = 0; i < t->n_media && stage->signal == LOSSY_FEATURES && !st; i++)
        if (t->media[i].m.video && is_there(t, i))
            st = merge_video(l, i, stage->keep, err);
    l->n = 0;
    for (int i = 0; i < t->n; i++)
        if (l->stays[i])
            l->row[l->n++] = i;
    return st;
}

/* Wait for copies: the next step may run on another stream. */
static enum pv_status wait_moved(const struct lossy_run *l, struct pv_error *err)
{
    return l->s->model->dev->ops->wait(l->s->target.base.work, err);
}

/* ---- later stages ---- */

/* Move the remaining rows of the residual stream together. Adjacent rows move in one copy, as far
 * as source and destination do not overlap. */
static void move_rows(struct lossy_run *l)
{
    const struct device_ops *ops = l->s->model->dev->ops;
    size_t hidden = (size_t)decoder_config(l->s->model->dec)->hidden;
    int to = 0;
    for (int from = 0; from < l->n;) {
        int n = 1;
        if (!l->stays[from]) {
            from++;
            continue;
        }
        while (from + n < l->n && l->stays[from + n] && (from == to || n < from - to))
            n++;
        if (from != to)
            ops->copy(l->s->target.base.work, l->residual + (size_t)to * hidden,
                      l->residual + (size_t)from * hidden, (size_t)n * hidden * sizeof(float));
        memmove(l->row + to, l->row + from, (size_t)n * sizeof *l->row);
        to += n;
        from += n;
    }
    l->n = to;
}

/* Cluster the best of the dropped tokens: the centres stay, with the mean of their cluster. */
static enum pv_status recycle(struct lossy_run *l, const struct lossy_recycling *r,
                              struct pv_error *err)
{
    const struct device_ops *ops = l->s->model->dev->ops;
    struct device_work *work = l->s->target.base.work;
    size_t hidden = (size_t)decoder_config(l->s->model->dec)->hidden, n = (size_t)r->clustered;
    size_t size = n * hidden * sizeof(float);
    float *rows = mem_alloc(size);
    int *at = mem_alloc(2 * n * sizeof *at), *centre = at ? at + n : NULL, found = 0;
    enum pv_status st = rows && at ? PV_OK : fail_nomem(err, size);
    if (!st)
        st = lossy_highest(l->kept, l->scores, l->n_keys, r->kept + r->clustered, err);
    for (int i = 0; i < r->kept + r->clustered && !st; i++) {
        int place = l->keys[l->kept[i]];
        if (l->stays[place])
            continue;
        at[found] = place;
        ops->get(work, rows + (size_t)found++ * hidden, l->residual + (size_t)place * hidden,
                 hidden * sizeof *rows);
    }
    if (!st)
        st = lossy_cluster(rows, found, (int)hidden, r->clusters, centre, err);
    for (int i = 0; i < r->clusters && !st; i++) {
        l->stays[at[centre[i]]] = true;
        ops->put(work, l->residual + (size_t)at[centre[i]] * hidden,
                 rows + (size_t)centre[i] * hidden, hidden * sizeof *rows);
    }
    if (!st)
        st = ops->wait(work, err); /* the copies read `rows` */
    mem_free(rows);
    mem_free(at);
    return st;
}

enum pv_status lossy_choose_rows(struct lossy_run *l, const struct lossy_stage *stage,
                                 struct pv_error *err)
{
    int budget = lossy_budget(l->n_video, stage->keep);
    struct lossy_recycling r = { .kept = budget };
    enum pv_status st;
    if (stage->signal == LOSSY_DECODING || budget >= l->n_keys)
        return PV_OK;
    if (stage->merges)
        r = lossy_recycle(l->n_keys, budget);
    memset(l->stays, true, (size_t)l->n * sizeof *l->stays);
    for (int i = 0; i < l->n_keys; i++)
        l->stays[l->keys[i]] = false;
    st = lossy_highest(l->kept, l->scores, l->n_keys, r.kept, err);
    for (int i = 0; i < r.kept && !st; i++)
        l->stays[l->keys[l->kept[i]]] = true;
    if (!st && r.clusters > 0)
        st = recycle(l, &r, err);
    if (st)
        return st;
    move_rows(l);
    return wait_moved(l, err);
}

/* ---- decoding ---- */

enum pv_status lossy_choose_entries(struct lossy_run *l, const struct kvcache *all,
                                    const struct lossy_stage *stage, struct pv_error *err)
{
    int k = min_int(lossy_budget(l->n_video, stage->keep), l->n_keys), n = 0;
    bool turned = l->n_chosen == 0 || lossy_turned(l->before, l->sums, l->n_keys);
    int *from = l->kept, *to = l->row; /* l->row is no longer needed */
    enum pv_status st;
    memcpy(l->before, l->sums, (size_t)l->n_keys * sizeof *l->before);
    if (!turned)
        return PV_OK;
    st = lossy_highest(l->kept, l->sums, l->n_keys, k, err);
    if (st)
        return st;
    memset(l->stays, true, (size_t)l->n * sizeof *l->stays);
    for (int i = 0; i < l->n_keys; i++)
        l->stays[l->keys[i]] = false;
    for (int i = 0; i < k; i++)
        l->stays[l->keys[l->kept[i]]] = true;
    for (int i = 0; i < l->n; i++)
        if (l->stays[i]) {
            to[n] = n;
            from[n++] = i;
        }
    for (int i = 0; i < all->n_layers; i++)
        kvcache_copy(&l->chosen, all, l->s->target.base.work, i, to, from, n);
    if (l->n_chosen == 0)
        kvcache_advance(&l->chosen, n);
    l->n_chosen = n; /* always the same number, so the answer's rows stay in place */
    return wait_moved(l, err);
}
