/* The prefill runs stage by stage. All rows that a group of layers has go through these layers,
 * chunk by chunk; then rows are dropped, and the residual stream of the others continues into the
 * next group. Rows keep their positions. A token of the answer runs as one step per group, over
 * that group's cache. Everything consists of ordinary steps over part of the layers, so it works
 * wherever the decoder does, and the bits of a row do not depend on the other rows. */
#include "engine/lossy_parts.h"

#include "base/clock.h"
#include "engine/media_rows.h"

#include <string.h>

static const struct config *config_of(const struct lossy_run *l)
{
    return decoder_config(l->s->model->dec);
}

/* ---- opening ---- */

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
    size_t width = (size_t)config_media_width(config_of(l));
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
    const struct config *c = config_of(l);
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

/* Get the tower's rows for all media; they are kept in the session for the next answer if possible.
 */
static enum pv_status read_media(struct lossy_run *l, struct pv_error *err)
{
    struct pv_session *s = l->s;
    const struct timeline *t = &s->seq.line;
    size_t width = (size_t)config_media_width(config_of(l));
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

static enum pv_status open_buffers(struct lossy_run *l, struct pv_error *err)
{
    struct pv_session *s = l->s;
    const struct config *c = config_of(l);
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
    st = lossy_plan(&l->plan, p->method->lossy, config_of(l)->n_layers, err);
    l->compact = l->plan.compact && config_of(l)->mrope == MROPE_NONE;
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

/* ---- steps ---- */

static enum pv_status open_cache(const struct lossy_run *l, struct kvcache *kv, int layer0,
                                 int layer1, int rows, struct pv_error *err)
{
    return kvcache_open_layers(kv, l->s->model->dev, config_of(l), layer0, layer1, l->s->engine->kv,
                               rows, err);
}

/* What a step has in addition to its rows. */
struct extras {
    int stage, layer0, layer1;
    float *residual;
    enum want want;
    bool decodes, columns_only;
    int n_columns;
    const struct column_tap *columns;
    const struct hidden_tap *hidden; /* one, or NULL */
};

/* The position of a row of the timeline, which is row i of the stage. */
static void place_row(const struct lossy_run *l, int32_t pos[3], int row, int stage, int i)
{
    int n_prompt = l->s->seq.answer0;
    if (l->compact && row >= n_prompt)
        i = l->n_rows[stage] + row - n_prompt;
    for (int a = 0; a < 3; a++)
        pos[a] = l->compact ? i : l->s->seq.line.pos[row][a];
}

/* Run n rows of the timeline, rows[0] < rows[1] ..., after what the cache holds: rows `at` and
 * following of the stage. */
static enum pv_status run_rows(struct lossy_run *l, struct kvcache *kv, const int *rows, int at,
                               int n, const struct extras *x, struct pv_error *err)
{
    struct pv_session *s = l->s;
    size_t width = (size_t)config_media_width(config_of(l));
    struct step_seq seq = { .kv = kv, .n = n };
    int last = n - 1;
    struct step step = { .n = n,
                         .ids = l->ids,
                         .embeds = l->embeds,
                         .pos = (const int32_t(*)[3])l->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = x->want != WANT_NOTHING,
                         .logit_rows = &last,
                         .logits = x->want == WANT_LOGITS ? s->answer.logits : NULL,
                         .argmax = x->want == WANT_ARGMAX ? &s->answer.top : NULL,
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
    uint64_t position = (uint64_t)s->seq.line.n;
    struct step_choice drawn = {
        .t = l->p->temperature, .drawn = &s->answer.top, .position = &position, .seed = l->p->seed
    };
    enum pv_status st;
    if (x->want == WANT_DRAWN)
        step.choice = &drawn;
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

/* ---- raters ---- */

/* SparseVLM: which rows of text after the videos rate their tokens. Their embeddings come from a
 * step of the first layer, whose other results are dropped. */
static enum pv_status find_raters(struct lossy_run *l, struct pv_error *err)
{
    struct pv_session *s = l->s;
    const struct config *c = config_of(l);
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
        st = open_cache(l, &kv, 0, 1, n_text, err);
    for (int i = 0; i < chunk; i++)
        l->taps[i] = i;
    for (int at = 0; at < n_text && !st; at += chunk) {
        int n = n_text - at < chunk ? n_text - at : chunk;
        struct hidden_tap tap = {
            .layer = TAP_EMBEDDING, .n_rows = n, .rows = l->taps, .out = text + (size_t)at * hidden
        };
        struct extras x = { .layer1 = 1, .residual = l->residual, .hidden = &tap };
        st = run_rows(l, &kv, l->kept + at, at, n, &x, err);
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

/* ---- the prefill ---- */

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
 * of these, as `signal` says, into l->scores. With `stream`, the residual stream is kept. */
static enum pv_status run_layers(struct lossy_run *l, struct kvcache *kv, struct extras x,
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
        x.residual = l->residual + (size_t)at * (size_t)config_of(l)->hidden;
        st = run_rows(l, kv, l->row + at, at, n, &x, err);
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
    struct extras x = { .layer0 = next->layer0, .layer1 = next->layer0 + 1, .columns_only = true };
    struct kvcache kv;
    enum pv_status st = open_cache(l, &kv, x.layer0, x.layer1, l->n, err);
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
    struct extras x = { .stage = g,
                        .layer0 = stage->layer0,
                        .layer1 = stage->layer1,
                        .want = next ? WANT_NOTHING : want };
    enum pv_status st =
        open_cache(l, &l->kv[g], stage->layer0, stage->layer1, l->n + l->most_new, err);
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
    return l->n_video > 0 ? sum / l->n_video / config_of(l)->n_layers : 1;
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
                         (int64_t)s->seq.line.n * stage->layer1 / config_of(l)->n_layers,
                         s->seq.line.n))
            st = fail(err, PV_E_CANCELLED, "stopped after %d layers of the prompt", stage->layer1);
        n_keys[g] -= s->seq.line.n - l->n_video; /* all other rows are kept */
        if (stage->signal == LOSSY_DECODING)
            n_keys[g] = lossy_budget(l->n_video, stage->keep);
    }
    s->answer.stats.video_kept = kept_share(l, n_keys);
    return st;
}

/* ---- decoding ---- */

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
        st = open_cache(l, &l->chosen, stage->layer0, stage->layer1,
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
        struct extras x = { .stage = g,
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
            st = run_rows(l, kv, &row, 0, 1, &x, err);
    }
    return st;
}
