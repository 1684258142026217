/* The prefill of a lossy answer: the rows of media, the rows of text that rate them, and the stages
 * one after the other. */
#include "engine/lossy_parts.h"

#include "base/clock.h"
#include "engine/media_rows.h"

#include <string.h>

/* Get the tower's rows for all media; they are kept in the session for the next answer if possible.
 */
static enum pv_status read_media(struct lossy_run *l, struct pv_error *err)
{
    struct pv_session *s = l->s;
    const struct timeline *t = &s->seq.line;
    size_t width = (size_t)config_media_width(lossy_config(l));
    enum pv_status st = PV_OK;
    if (s->speculates) {
        drafting_forget(&s->draft, t);
        drafting_fit(&s->draft, budget_left(&s->budget));
    }
    for (int k = 0; k < t->n_spans && !st; k++) {
        const struct media_span *span = &t->span[k];
        const struct media_item *m = &t->media[span->item];
        for (int i = 0; i < span->n && !st;) {
            int n = span->n - i < s->engine->chunk ? span->n - i : s->engine->chunk;
            int row = span->first + i;
            double t0 = clock_now(), tower = session_tower_seconds(s);
            float *to = l->media + (size_t)l->media_at[span->row0 + i] * width, *keep;
            size_t size = (size_t)n * width * sizeof *to;
            const float *kept =
                s->speculates ? drafting_features(&s->draft, m, row, n, width, false) : NULL;
            if (kept)
                memcpy(to, kept, size);
            else
                st = session_media_rows(s, m, row, n, to, false, err);
            if (session_tower_seconds(s) > tower)
                trace_add(&s->answer.trace, PV_SIDE_MODEL, "vision", t0, 0);
            keep = !st && !kept && s->speculates ? drafting_keep(&s->draft, m, row, n, width, false)
                                                 : NULL;
            if (keep)
                memcpy(keep, to, size);
            i += n;
        }
    }
    return st;
}

/* SparseVLM: which rows of text after the videos rate their tokens. Their embeddings come from a
 * step of the first layer, whose other results are dropped. */
static enum pv_status find_raters(struct lossy_run *l, struct pv_error *err)
{
    struct pv_session *s = l->s;
    const struct config *c = lossy_config(l);
    size_t hidden = (size_t)c->hidden, width = (size_t)config_media_width(c);
    int n_text = 0, chunk = s->engine->chunk, n_video = 0;
    float *text, *video;
    struct kvcache kv = { 0 };
    enum pv_status st = PV_OK;
    for (int i = l->query0; i < s->seq.line.n; i++)
        if (s->seq.line.ids[i] >= 0)
            l->kept[n_text++] = i;
    text = mem_alloc(((size_t)n_text + (size_t)l->n_video + 1) * hidden * sizeof *text);
    if (!text)
        return fail_nomem(err, ((size_t)n_text + (size_t)l->n_video) * hidden * sizeof *text);
    video = text + (size_t)n_text * hidden;
    if (n_text > 0)
        st = lossy_open_cache(l, &kv, 0, 1, n_text, err);
    for (int i = 0; i < chunk; i++)
        l->taps[i] = i;
    for (int at = 0; at < n_text && !st; at += chunk) {
        int n = n_text - at < chunk ? n_text - at : chunk;
        struct hidden_tap tap = {
            .layer = TAP_EMBEDDING, .n_rows = n, .rows = l->taps, .out = text + (size_t)at * hidden
        };
        struct lossy_step x = { .layer1 = 1, .residual = l->residual, .hidden = &tap };
        st = lossy_run_rows(l, &kv, l->kept + at, at, n, &x, err);
    }
    if (kv.pool)
        kvcache_close(&kv);
    for (int i = 0; i < s->seq.line.n; i++)
        if (l->video[i])
            memcpy(video + (size_t)n_video++ * hidden, l->media + (size_t)l->media_at[i] * width,
                   hidden * sizeof *video);
    memset(l->rates, 0, (size_t)s->seq.line.n * sizeof *l->rates);
    if (!st && n_text > 0)
        st = lossy_raters(l->stays, text, n_text, video, n_video, c->hidden, err);
    for (int i = 0; i < n_text && !st; i++)
        l->rates[l->kept[i]] = l->stays[i];
    mem_free(text);
    return st;
}

/* List the rows of a step whose attention is measured, among rows [at, at + n) of the stage. */
static int list_taps(struct lossy_run *l, enum lossy_signal signal, int at, int n)
{
    int taps = 0;
    for (int i = 0; i < n; i++) {
        bool last = at + i == l->n - 1;
        if (signal == LOSSY_RATERS ? l->rates[l->row[at + i]] : last)
            l->taps[taps++] = i;
    }
    return taps;
}

/* Run all rows of the stage through layers [layer0, layer1), and measure the attention of the last
 * of these, as `signal` says, into l->scores. */
static enum pv_status run_layers(struct lossy_run *l, struct kvcache *kv, struct lossy_step x,
                                 enum lossy_signal signal, struct pv_error *err)
{
    struct pv_session *s = l->s;
    bool wants =
        l->n_keys > 0 && (signal == LOSSY_LAST_ROW || signal == LOSSY_RATERS || x.columns_only);
    enum want want = x.want;
    enum pv_status st = PV_OK;
    memset(l->scores, 0, (size_t)s->seq.line.n * sizeof *l->scores);
    for (int at = 0; at < l->n && !st;) {
        int n = l->n - at < s->engine->chunk ? l->n - at : s->engine->chunk;
        double t0 = clock_now();
        struct column_tap tap = { .layer0 = x.layer1 - 1,
                                  .layer1 = x.layer1,
                                  .rows = l->taps,
                                  .n_keys = l->n_keys,
                                  .keys = l->keys,
                                  .sums = l->sums };
        st = task_prompt_rows(s->task, n, &n, err);
        if (st)
            break;
        tap.n_rows = wants ? list_taps(l, signal, at, n) : 0;
        x.n_columns = tap.n_rows > 0;
        x.columns = &tap;
        x.want = at + n == l->n ? want : WANT_NOTHING;
        x.residual = l->residual + (size_t)at * (size_t)lossy_config(l)->hidden;
        st = lossy_run_rows(l, kv, l->row + at, at, n, &x, err);
        for (int i = 0; i < l->n_keys && tap.n_rows > 0; i++)
            l->scores[i] += l->sums[i];
        trace_add(&s->answer.trace, PV_SIDE_MODEL, "prefill", t0, n);
        at += n;
    }
    return st;
}

/* Measure attention as the first layer of the next stage would have it, with a cache for that layer
 * only. */
static enum pv_status run_ahead(struct lossy_run *l, const struct lossy_stage *next,
                                struct pv_error *err)
{
    struct lossy_step x = { .layer0 = next->layer0,
                            .layer1 = next->layer0 + 1,
                            .columns_only = true };
    struct kvcache kv;
    enum pv_status st = lossy_open_cache(l, &kv, x.layer0, x.layer1, l->n, err);
    if (st)
        return st;
    st = run_layers(l, &kv, x, next->signal, err);
    kvcache_close(&kv);
    return st;
}

static enum pv_status run_stage(struct lossy_run *l, int g, enum want want, struct pv_error *err)
{
    const struct lossy_stage *stage = &l->plan.stage[g];
    const struct lossy_stage *next = g + 1 < l->plan.n ? stage + 1 : NULL;
    struct lossy_step x = { .stage = g,
                            .layer0 = stage->layer0,
                            .layer1 = stage->layer1,
                            .want = next ? WANT_NOTHING : want };
    enum pv_status st =
        lossy_open_cache(l, &l->kv[g], stage->layer0, stage->layer1, l->n + l->most_new, err);
    l->n_rows[g] = l->n;
    lossy_find_keys(l);
    if (!st)
        st = run_layers(l, &l->kv[g], x, next ? next->signal : LOSSY_ALL, err);
    if (!st && next && next->signal == LOSSY_NEXT_LAYER && l->n_keys > 0)
        st = run_ahead(l, next, err);
    if (!st && next)
        st = lossy_choose_rows(l, next, err);
    return st;
}

/* The mean over layers of the share of the video's tokens that a token of the answer reads. */
static double kept_share(const struct lossy_run *l, const int *n_keys)
{
    double sum = 0;
    for (int g = 0; g < l->plan.n; g++)
        sum += (double)n_keys[g] * (l->plan.stage[g].layer1 - l->plan.stage[g].layer0);
    return l->n_video > 0 ? sum / l->n_video / lossy_config(l)->n_layers : 1;
}

enum pv_status lossy_prefill(struct lossy_run *l, enum want want, struct pv_error *err)
{
    struct pv_session *s = l->s;
    const struct pv_gen_params *p = l->p;
    int n_keys[LOSSY_MAX_STAGES] = { 0 };
    enum pv_status st = read_media(l, err);
    s->answer.stats.prompt_tokens = s->seq.line.n;
    if (!st)
        st = lossy_choose_first(l, err);
    for (int g = 1; g < l->plan.n && !st; g++)
        if (l->plan.stage[g].signal == LOSSY_RATERS) {
            st = find_raters(l, err);
            break;
        }
    for (int g = 0; g < l->plan.n && !st; g++) {
        const struct lossy_stage *stage = &l->plan.stage[g];
        st = run_stage(l, g, want, err);
        n_keys[g] = l->kv[g].len;
        if (!st && p->progress &&
            !p->progress(p->progress_user, PV_PHASE_PREFILL,
                         (int64_t)s->seq.line.n * stage->layer1 / lossy_config(l)->n_layers,
                         s->seq.line.n))
            st = fail(err, PV_E_CANCELLED, "stopped after %d layers of the prompt", stage->layer1);
        n_keys[g] -= s->seq.line.n - l->n_video; /* all other rows are kept */
        if (stage->signal == LOSSY_DECODING)
            n_keys[g] = lossy_budget(l->n_video, stage->keep);
    }
    s->answer.stats.video_kept = kept_share(l, n_keys);
    return st;
}
