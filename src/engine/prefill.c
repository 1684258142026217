/* The prefill reuses the longest common prefix of cache and timeline, asks the encoder for rows of
 * media when their step comes, and gives steps the taps from which a view is chosen: column sums of
 * the question's attention, or the residual stream before the first and after some layer.
 *
 * A view that needs only the first layers can be chosen before the prefill ends. For that, a step
 * over some layers stores its rows' residual stream, and the next step continues from there. */
#include "engine/prefill.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "engine/disk_pages.h"
#include "engine/media_rows.h"
#include "spec/view_alignment.h"

#include <string.h>

struct prefill {
    struct pv_session *s;
    const struct pv_gen_params *p;
    const struct view_signal *signal;
    enum want want;
    int first;       /* first row that is not in the cache */
    int layer0, end; /* layers that this part runs; both 0: all */
    /* On the device. */
    float *residual;  /* [rows from `first` on, hidden], between the parts */
    float *embeds;    /* [chunk, media width]: rows of media of one step */
    float *hidden[2]; /* [chunk, hidden]: taps of the view alignment */
    /* On the host. */
    int *all;   /* [chunk]: 0, 1, ... */
    int *token; /* [chunk]: kind of each row for that view */
    struct column_tap *taps;
    struct alignment *alignment;
    uint64_t claimed; /* bytes claimed for all of this */
};

/* ---- rows ---- */

/* Put the rows of media among [from, from + n) into embeds. */
static enum pv_status fill_embeds(struct pv_session *s, float *embeds, int from, int n,
                                  struct pv_error *err)
{
    size_t width = (size_t)config_media_width(decoder_config(s->model->dec));
    bool copied = false;
    for (int i = 0; i < n;) {
        int row, some;
        const struct media_item *item = timeline_item(&s->seq.line, from + i, &row);
        float *to, *kept = NULL, *on_device = NULL;
        enum pv_status st;
        if (!item) {
            i++;
            continue;
        }
        to = embeds + (size_t)i * width; /* embeds exists only if there are media */
        some = timeline_stretch(&s->seq.line, from + i, n - i);
        st = session_media_rows(s, item, row, some, to, true, err);
        if (st)
            return st;
        if (s->draft.keep_features)
            kept = drafting_keep(&s->draft, item, row, some, width, false);
        if (kept)
            s->model->dev->ops->get(s->target.base.work, kept, to,
                                    sizeof *to * (size_t)some * width);
        if (s->draft.keep_on_device)
            on_device = drafting_keep(&s->draft, item, row, some, width, true);
        if (on_device)
            s->model->dev->ops->copy(s->target.base.work, on_device, to,
                                     sizeof *to * (size_t)some * width);
        copied = copied || on_device;
        i += some;
    }
    /* The step may run on another stream, and the tower may write the next rows on a third. */
    return copied ? s->model->dev->ops->wait(s->target.base.work, err) : PV_OK;
}

/* What a step of the prefill has in addition to its rows. */
struct extras {
    int layer0, layer1;
    float *embeds; /* [chunk, media width]: room for rows of media, on the device */
    float *residual;
    int n_hidden, n_columns;
    const struct hidden_tap *hidden;
    const struct column_tap *columns;
    bool decodes; /* rows of an answer, not of a prompt */
    bool token;   /* and it is a new token */
    const struct pv_gen_params *p;
};

/* States are kept only for rows that go through all layers at once; for others, they are found
 * missing when a draft head needs them. */
static bool keeps_states(const struct pv_session *s, const struct extras *x)
{
    return s->draft.states.hidden > 0 && x->layer0 == 0 && x->layer1 == 0 && !x->token && x->p;
}

static int list_taps(struct pv_session *s, int from, int n, const struct extras *x,
                     struct hidden_tap *taps)
{
    if (x->n_hidden > 0)
        memcpy(taps, x->hidden, (size_t)x->n_hidden * sizeof *taps);
    if (!keeps_states(s, x))
        return x->n_hidden;
    return x->n_hidden + states_tap(&s->draft.states, s->seq.line.ids, s->seq.line.n, from, n,
                                    taps + x->n_hidden);
}

static const int first_row = 0;

static enum pv_status run_rows(struct pv_session *s, int from, int n, enum want want,
                               const struct extras *x, struct pv_error *err)
{
    struct step_seq seq = { .kv = &s->seq.kv, .n = n };
    struct hidden_tap taps[ALIGNMENT_SNAPSHOTS + STATES_MAX_TAPS];
    struct answer_ask ask;
    int n_taps = list_taps(s, from, n, x, taps), chunk = s->engine->chunk;
    struct step step = { .n = n,
                         .ids = s->seq.line.ids + from,
                         .embeds = x->embeds,
                         .embeds_there = true,
                         .pos = (const int32_t(*)[3])(s->seq.line.pos + from),
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_hidden = n_taps,
                         .hidden = taps,
                         .n_columns = x->n_columns,
                         .columns = x->columns,
                         .layer0 = x->layer0,
                         .layer1 = x->layer1,
                         .residual = x->residual,
                         .residual_there = true,
                         .bulk = !x->decodes,
                         .n_next = x->decodes ? 0 : min_int(s->seq.line.n - from - n, chunk),
                         .next_pos = (const int32_t(*)[3])(s->seq.line.pos + from + n) };
    enum pv_status st = PV_OK;
    answer_asks(&s->answer, &step, &ask, want, x->p, s->seq.line.n);
    if (x->token)
        drafting_ask(&s->draft, &step, &first_row, taps);
    if (x->layer0 == 0 || x->layer0 < decoder_config(s->model->dec)->n_deepstack)
        st = fill_embeds(s, x->embeds, from, n, err);
    if (!st)
        st = s->target.base.run(&s->target.base, &step, err);
    if (st)
        return st;
    if (x->token)
        drafting_decoded(&s->draft, from, &first_row, 1);
    else if (keeps_states(s, x))
        states_commit(&s->draft.states, s->seq.line.ids, s->seq.line.n, from, n);
    sequence_commit(&s->seq, s->target.base.work, n, NULL,
                    x->layer1 == 0 || x->layer1 == decoder_config(s->model->dec)->n_layers);
    return PV_OK;
}

enum pv_status prefill_token(struct pv_session *s, const struct pv_gen_params *p, enum want want,
                             struct pv_error *err)
{
    struct extras none = { .decodes = true, .token = true, .p = p };
    return run_rows(s, s->seq.line.n - 1, 1, want, &none, err);
}

/* ---- signals for the view ---- */

/* Tell the view `alignment` what rows [from, from + n) are. */
static void tell_tokens(const struct prefill *f, int from, int n)
{
    const struct pv_session *s = f->s;
    const struct drafting *d = &s->draft;
    int at = 0;
    for (int i = 0; i < n; i++) {
        bool text = s->seq.line.ids[from + i] >= 0 &&
                    (!f->signal->text_after || from + i >= f->signal->query0);
        while (at < d->n_rows && d->rows[at] < from + i)
            at++;
        f->token[i] = at < d->n_rows && d->rows[at] == from + i ? at
                      : text                                    ? ALIGNMENT_TEXT
                                                                : ALIGNMENT_NEITHER;
    }
}

static bool part_has_layer(const struct prefill *f, int layer)
{
    return f->end == 0 || (layer >= f->layer0 && layer < f->end);
}

/* Run a step, and give its residual stream before the first layer and after the view's last layer
 * to the view `alignment`. */
static enum pv_status run_aligning(struct prefill *f, int from, int n, enum want want,
                                   struct extras *x, struct pv_error *err)
{
    int layers[ALIGNMENT_SNAPSHOTS] = { TAP_EMBEDDING, f->signal->layers - 1 };
    struct hidden_tap tap[ALIGNMENT_SNAPSHOTS];
    enum pv_status s = PV_OK;
    x->hidden = tap;
    for (int k = 0; k < ALIGNMENT_SNAPSHOTS; k++) {
        bool here = k == ALIGNMENT_BEFORE ? f->layer0 == 0 : part_has_layer(f, layers[k]);
        if (here)
            tap[x->n_hidden++] = (struct hidden_tap){ .layer = layers[k],
                                                      .n_rows = n,
                                                      .rows = f->all,
                                                      .out = f->hidden[k],
                                                      .on_device = true };
    }
    s = run_rows(f->s, from, n, want, x, err);
    if (s)
        return s;
    tell_tokens(f, from, n);
    for (int t = 0; t < x->n_hidden && !s; t++)
        s = alignment_add(f->alignment,
                          tap[t].layer == TAP_EMBEDDING ? ALIGNMENT_BEFORE : ALIGNMENT_AFTER,
                          f->token, tap[t].out, n, err);
    return s;
}

/* Find the number of rows of the step from row `at` on. Attention is measured for the question's
 * rows. A step that does not reach the end of the prompt stops before them, so that the order in
 * which they are summed up does not depend on the rows before. */
static enum pv_status count_rows(const struct prefill *f, int at, bool columns, int *n,
                                 struct pv_error *err)
{
    struct pv_session *s = f->s;
    int end = s->seq.line.n, query0 = f->signal->query0;
    bool before = columns && at < query0;
    enum pv_status st;
    if (before && end - at > s->engine->chunk)
        end = query0;
    *n = end - at < s->engine->chunk ? end - at : s->engine->chunk;
    st = task_prompt_rows(s->task, *n, n, err);
    if (before && at + *n > query0 && at + *n < s->seq.line.n)
        *n = query0 - at;
    return st;
}

/* Run the next step, from row `at` on. *n: number of its rows. */
static enum pv_status run_step(struct prefill *f, int at, int *n, struct pv_error *err)
{
    struct pv_session *s = f->s;
    const struct view_signal *v = f->signal;
    size_t hidden = (size_t)decoder_config(s->model->dec)->hidden;
    struct extras x = { .layer0 = f->layer0, .layer1 = f->end, .embeds = f->embeds, .p = f->p };
    bool columns = v->kind == SIGNAL_ATTENTION || v->kind == SIGNAL_LAYER_ATTENTION, guides;
    int before = at < v->query0 ? v->query0 - at : 0; /* rows that come before the question */
    enum want want;
    enum pv_status st = count_rows(f, at, columns, n, err);
    if (st)
        return st;
    guides = columns && *n > before;
    want = at + *n == s->seq.line.n && (f->end == 0 || f->layer0 > 0) ? f->want : WANT_NOTHING;
    if (f->residual)
        x.residual = f->residual + (size_t)(at - f->first) * hidden;
    if (f->alignment)
        return run_aligning(f, at, *n, want, &x, err);
    if (guides) {
        x.n_columns = view_signal_taps(v, &s->draft, *n - before, f->all + before, f->taps);
        x.columns = f->taps;
    }
    st = run_rows(s, at, *n, want, &x, err);
    if (!st && guides && f->layer0 == 0) /* only the first part has taps */
        view_signal_add(v, &s->draft, x.n_columns);
    return st;
}

/* Trace a step that began at t0. The tower computes rows of media before the decoder runs. */
static void trace_step(struct pv_session *s, double t0, double tower_s, int n)
{
    double begin = t0 + (tower_s > 0 ? tower_s : 0);
    if (tower_s > 0)
        trace_add_until(&s->answer.trace, PV_SIDE_MODEL, "vision", t0, begin, 0);
    trace_add(&s->answer.trace, PV_SIDE_MODEL, "prefill", begin, n);
}

/* Run all rows through the layers of this part. */
static enum pv_status run_part(struct prefill *f, struct pv_error *err)
{
    struct pv_session *s = f->s;
    const struct pv_gen_params *p = f->p;
    for (int at = f->first; at < s->seq.line.n;) {
        double t0 = clock_now(), tower = session_tower_seconds(s);
        int n;
        enum pv_status st = run_step(f, at, &n, err);
        if (st)
            return st;
        trace_step(s, t0, session_tower_seconds(s) - tower, n);
        at += n;
        if (p->progress && !p->progress(p->progress_user, PV_PHASE_PREFILL, at, s->seq.line.n))
            return fail(err, PV_E_CANCELLED, "stopped after %d of %d prompt tokens", at,
                        s->seq.line.n);
    }
    return PV_OK;
}

/* ---- the whole ---- */

static void free_there(const struct prefill *f, void *p)
{
    if (p)
        f->s->model->dev->ops->free(f->s->model->dev, p);
}

static void close_prefill(struct prefill *f)
{
    alignment_close(&f->alignment);
    free_there(f, f->residual);
    free_there(f, f->hidden[0]);
    mem_free(f->all);
    mem_free(f->token);
    mem_free(f->taps);
}

/* Allocate floats on the device. */
static enum pv_status alloc_on_device(const struct prefill *f, float **out, size_t n,
                                      struct pv_error *err)
{
    void *p = NULL;
    enum pv_status s = device_alloc(f->s->model->dev, &p, n * sizeof **out, err);
    if (!s)
        *out = p;
    return s;
}

/* Allocate memory for the view `alignment` and the taps it reads. */
static enum pv_status open_alignment(struct prefill *f, struct pv_error *err)
{
    struct pv_session *s = f->s;
    int hidden = decoder_config(s->model->dec)->hidden, chunk = s->engine->chunk;
    size_t taps = ALIGNMENT_SNAPSHOTS * (size_t)chunk * (size_t)hidden;
    enum pv_status st;
    if (f->signal->kind != SIGNAL_ALIGNMENT)
        return PV_OK;
    f->claimed = alignment_size(s->draft.n_rows, hidden, chunk) + taps * sizeof(float);
    st = budget_claim(&s->budget, f->claimed, "the view alignment", err);
    if (!st)
        st = alignment_open(&f->alignment, s->model->dev, s->target.base.work, s->draft.n_rows,
                            hidden, chunk, err);
    if (!st)
        st = alloc_on_device(f, &f->hidden[0], taps, err);
    if (!st)
        f->hidden[1] = f->hidden[0] + taps / 2;
    return st;
}

static enum pv_status open_prefill(struct prefill *f, struct pv_error *err)
{
    struct pv_session *s = f->s;
    size_t chunk = (size_t)s->engine->chunk;
    size_t taps = (size_t)decoder_config(s->model->dec)->n_layers * sizeof *f->taps;
    enum pv_status st = open_alignment(f, err);
    if (st)
        return st;
    f->taps = mem_alloc(taps);
    f->all = mem_alloc(chunk * sizeof *f->all);
    f->token = mem_alloc(chunk * sizeof *f->token);
    if (!f->taps || !f->all || !f->token)
        return fail_nomem(err, taps + 2 * chunk * sizeof *f->all);
    for (int i = 0; i < s->engine->chunk; i++)
        f->all[i] = i;
    return PV_OK;
}

/* The first row that must run. Rows from which a signal is measured run even if the cache has them;
 * for the view `alignment` that is all rows; for a draft head, rows whose states were not kept. */
static int find_first(const struct pv_session *s, const struct view_signal *v, int held)
{
    int most = v->kind == SIGNAL_ALIGNMENT ? 0
               : v->kind != SIGNAL_NONE    ? v->query0
                                           : s->seq.line.n - 1;
    if (v->states && s->draft.states.n < most)
        most = s->draft.states.n;
    return held < most ? held : most;
}

/* Take rows of the timeline that the pool has into the cache, whichever request computed them; also
 * those on disk, unless they must run for the signal. The states for a draft head are this
 * session's own, or those that another session has left. */
static int find_held(struct pv_session *s, const struct view_signal *v)
{
    struct states *states = &s->draft.states;
    int same = sequence_name(&s->seq), held;
    if (v->kind != SIGNAL_ALIGNMENT && !v->states)
        disk_pages_fetch(&s->engine->disk, &s->seq, s->target.base.work, s->task);
    held = sequence_adopt(&s->seq, s->target.base.work);
    /* Whether a row's state was kept depends on the row after it, which may now be another one. */
    if (same < states->n && same > 0 && !states_feature(states, same - 1, 0))
        same--;
    if (states->hidden > 0)
        states_truncate(states, same < states->n ? same : states->n);
    if (states->hidden > 0 && s->engine->states)
        state_cache_find(s->engine->states, s->seq.digest, held, states);
    return held;
}

/* Run the layers in two parts, with the pause between them. */
static enum pv_status run_parts(struct prefill *f, const struct prefill_pause *pause,
                                struct pv_error *err)
{
    struct pv_session *s = f->s;
    int layers = f->signal->layers;
    enum pv_status st;
    f->layer0 = 0;
    f->end = layers;
    st = run_part(f, err);
    kvcache_truncate(&s->seq.kv, f->first); /* no row is complete yet */
    if (!st && f->alignment)
        st = alignment_finish(f->alignment, s->draft.scores, err);
    s->answer.stats.vision_s += session_take_tower(s); /* not part of the view's time */
    if (!st)
        st = pause->run(pause->user, err);
    if (st)
        return st;
    alignment_close(&f->alignment);
    f->layer0 = layers;
    f->end = decoder_config(s->model->dec)->n_layers;
    return run_part(f, err);
}

/* Allocate memory for the rows of videos and pictures in one step; *out stays NULL if the prompt
 * has none. */
static enum pv_status open_embeds(const struct pv_session *s, float **out, struct pv_error *err)
{
    size_t width = (size_t)config_media_width(decoder_config(s->model->dec));
    const struct timeline *t = &s->seq.line;
    size_t rows = (size_t)(t->n < s->engine->chunk ? t->n : s->engine->chunk);
    void *p = NULL;
    enum pv_status st = PV_OK;
    if (t->n_spans > 0)
        st = device_alloc(s->model->dev, &p, rows * width * sizeof **out, err);
    if (!st)
        *out = p;
    return st;
}

static void close_embeds(const struct pv_session *s, float *embeds)
{
    if (embeds)
        s->model->dev->ops->free(s->model->dev, embeds);
}

enum pv_status prefill_again(struct pv_session *s, int len, struct pv_error *err)
{
    float *embeds = NULL; /* not those of the prefill, which may be paused */
    enum pv_status st = open_embeds(s, &embeds, err);
    while (!st && s->seq.kv.len < len) {
        int at = s->seq.kv.len,
            end = at < s->seq.answer0 && s->seq.answer0 < len ? s->seq.answer0 : len;
        struct extras x = { .embeds = embeds, .decodes = at >= s->seq.answer0 };
        int n = end - at < s->engine->chunk ? end - at : s->engine->chunk;
        st = task_prompt_rows(s->task, n, &n, err);
        if (!st)
            st = run_rows(s, at, n, WANT_NOTHING, &x, err);
    }
    close_embeds(s, embeds);
    return st;
}

enum pv_status prefill_run(struct pv_session *s, const struct pv_gen_params *p,
                           const struct view_signal *signal, enum want want,
                           const struct prefill_pause *pause, struct pv_error *err)
{
    int held = find_held(s, signal);
    struct prefill f = {
        .s = s, .p = p, .signal = signal, .want = want, .first = find_first(s, signal, held)
    };
    size_t hidden = (size_t)decoder_config(s->model->dec)->hidden;
    size_t residual = (size_t)(s->seq.line.n - f.first) * hidden;
    enum pv_status st = open_prefill(&f, err);
    kvcache_restart(&s->seq.kv, f.first);
    if (!st)
        st = drafting_reserve(&s->draft, &s->seq.line, f.first, p->max_new_tokens,
                              signal->states ? err : NULL);
    s->answer.stats.prompt_tokens = s->seq.line.n;
    s->answer.stats.reused_tokens = f.first;
    if (!st && pause && signal->early &&
        budget_claim(&s->budget, f.claimed + residual * sizeof(float), "", NULL) == PV_OK)
        (void)alloc_on_device(&f, &f.residual, residual, NULL); /* without it: in one part */
    if (!st)
        st = open_embeds(s, &f.embeds, err);
    if (f.residual && !kvcache_reserve(&s->seq.kv, s->target.base.work, s->seq.line.n - f.first)) {
        free_there(&f, f.residual); /* it must not wait for pages between the parts */
        f.residual = NULL;
    }
    if (!st && f.residual) {
        task_preemptible(s->task, false); /* between the parts no row is complete */
        st = run_parts(&f, pause, err);
        task_preemptible(s->task, true);
    } else if (!st) {
        st = run_part(&f, err);
    }
    close_embeds(s, f.embeds);
    if (!st && f.alignment)
        st = alignment_finish(f.alignment, s->draft.scores, err);
    close_prefill(&f);
    return st;
}
