/* Which part of the prompt a drafter gets, and its prefill: rows of media come from the draft
 * model's own tower or, for drafters with the target's weights, from the rows that the target's
 * tower has computed; a vision adaptor maps those for a draft model that has one. */
#include "engine/draft_read.h"
#include "engine/draft_adapt.h"
#include "spec/method_rules.h"
#include "spec/view_holistic.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/media_rows.h"

#include <string.h>

/* ---- the view ---- */

/* Features (embeddings) of a video's first n rows: those that were kept, or else computed again or
 * cut out of wide rows; then they are also in *made, which the caller frees. */
static enum pv_status find_features(struct pv_session *s, const struct media_item *m, int n,
                                    const float **out, float **made, struct pv_error *err)
{
    const struct config *c = decoder_config(s->model->dec);
    size_t width = (size_t)config_media_width(c), hidden = (size_t)c->hidden;
    size_t size = (size_t)n * width * sizeof(float);
    const float *kept = drafting_features(&s->draft, m, 0, n, width, false);
    enum pv_status st;
    *out = kept;
    if (kept && width == hidden)
        return PV_OK;
    st = budget_claim(&s->budget, size, "a view that wants the rows of the video", err);
    if (st)
        return st;
    *made = mem_alloc(size);
    if (!*made)
        return fail_nomem(err, size);
    if (!kept)
        st = session_media_rows(s, m, 0, n, *made, false, err);
    for (int i = 0; i < n && !st && width > hidden; i++)
        memmove(*made + (size_t)i * hidden, (kept ? kept : *made) + (size_t)i * width,
                hidden * sizeof **made);
    *out = *made;
    return st;
}

/* Features as cosine similarities, computed by the target's device from the rows there: those that
 * were kept, or computed again. */
struct measured {
    struct view_cosines cosines; /* of view_input */
    double *numbers;             /* [2, n], owned */
};

static enum pv_status measure_features(struct pv_session *s, const struct media_item *m,
                                       struct view_input *in, struct measured *out,
                                       struct pv_error *err)
{
    struct device *dev = s->model->dev;
    int n = m->m.n_units * m->m.unit_rows;
    size_t width = (size_t)config_media_width(decoder_config(s->model->dec));
    size_t size = (size_t)n * width * sizeof(float), numbers = 2 * (size_t)n * sizeof(double);
    const float *rows = drafting_features(&s->draft, m, 0, n, width, true);
    void *made = NULL;
    enum pv_status st = PV_OK;
    if (in->grid_width <= 0 || in->frame_tokens % in->grid_width)
        return PV_OK; /* the view will report it */
    out->numbers = mem_alloc(numbers);
    if (!out->numbers)
        return fail_nomem(err, numbers);
    if (!rows) {
        st = budget_claim(&s->budget, size, "a view that wants the rows of the video", err);
        if (!st)
            st = device_alloc(dev, &made, size, err);
        if (!st)
            st = session_media_rows(s, m, 0, n, made, true, err);
        rows = made;
    }
    if (!st)
        st = holistic_measure(in, dev, s->target.base.work, rows, width, out->numbers,
                              out->numbers + n, err);
    if (made)
        dev->ops->free(dev, made);
    out->cosines = (struct view_cosines){ out->numbers, out->numbers + n };
    in->cosines = &out->cosines;
    return st;
}

/* Compute the view of the video that begins with span k; `first` is the index of its first row in
 * draft.rows. */
static enum pv_status view_video(const struct speculation *sp, int k, int first,
                                 struct pv_error *err)
{
    struct pv_session *s = sp->s;
    struct drafting *d = &s->draft;
    const struct timeline *t = &s->seq.line;
    const struct media_item *m = &t->media[t->span[k].item];
    int n = m->m.n_units * m->m.unit_rows, n_kept, *kept = mem_alloc((size_t)n * sizeof *kept);
    float *made = NULL;
    struct measured measured = { .numbers = NULL };
    struct view_input in = { .n_frames = m->m.n_units,
                             .frame_tokens = m->m.unit_rows,
                             .ratio = sp->method.ratio,
                             .lambda = sp->method.lambda,
                             .seed = sp->method.draft_seed,
                             .scores = d->scores + first,
                             .width = decoder_config(s->model->dec)->hidden,
                             .grid_width = m->m.line,
                             .holistic_terms = sp->method.terms,
                             .crop_literal = sp->method.literal };
    enum pv_status st = kept ? PV_OK : fail_nomem(err, (size_t)n * sizeof *kept);
    if (!st && view_wants_features(sp->view) && view_find(sp->view)->on_device)
        st = measure_features(s, m, &in, &measured, err);
    else if (!st && view_wants_features(sp->view))
        st = find_features(s, m, n, &in.features, &made, err);
    if (!st)
        st = view_choose(sp->view, &in, kept, &n_kept, NULL, err);
    if (!st) {
        for (int i = 0; i < n; i++)
            d->visible[timeline_row(t, k, i)] = false;
        for (int i = 0; i < n_kept; i++)
            d->visible[timeline_row(t, k, kept[i])] = true;
    }
    mem_free(measured.numbers);
    mem_free(made);
    mem_free(kept);
    return st;
}

/* Choose all rows except those that the view leaves out of each video. */
static enum pv_status choose_rows(const struct speculation *sp, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    int first = 0;
    memset(s->draft.visible, true, (size_t)s->seq.line.n * sizeof *s->draft.visible);
    for (int k = 0; k < s->seq.line.n_spans; k++) {
        const struct media_span *span = &s->seq.line.span[k];
        const struct media *m = &s->seq.line.media[span->item].m;
        enum pv_status st;
        if (!m->video || span->first > 0)
            continue;
        st = view_video(sp, k, first, err);
        if (st)
            return st;
        first += m->n_units * m->unit_rows;
    }
    return PV_OK;
}

/* Number of video rows that the drafter reads; if entries of the KV cache are limited, per layer.
 */
static int64_t count_visible(const struct speculation *sp)
{
    const struct pv_session *s = sp->s;
    int64_t n = 0, text = s->seq.line.n - s->seq.line.n_video_rows, keep = sp->method.keep;
    const struct pv_drafter_info *info = &sp->kind->info;
    if (info->takes_keep)
        return keep <= text                             ? 0
               : keep - text < s->seq.line.n_video_rows ? keep - text
                                                        : s->seq.line.n_video_rows;
    for (int i = 0; i < s->seq.line.n && info->reads_prompt; i++)
        n += s->draft.visible[i] && s->seq.line.ids[i] < 0;
    return n;
}

static enum pv_status choose_visible(struct speculation *sp, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    bool hidden = sp->media == DRAFT_MEDIA_HIDDEN;
    enum pv_status st = PV_OK;
    for (int i = 0; i < s->seq.line.n && hidden; i++)
        s->draft.visible[i] = s->seq.line.ids[i] >= 0;
    if (!hidden)
        st = choose_rows(sp, err);
    s->answer.stats.draft_video_tokens = count_visible(sp);
    s->draft.n_visible = st ? 0 : s->seq.line.n;
    s->draft.scored = view_signal_scores(&sp->signal);
    return st;
}

/* ---- reading ---- */

/* Rows of a media item from the draft model's own tower, which runs on the drafter's threads if it
 * has any. */
static enum pv_status draft_rows(struct pv_session *s, const struct media_item *m, int row, int n,
                                 float *out, struct pv_error *err)
{
    bool locks = s->draft.place != DRAFT_DIVIDED && s->draft.model->gpu < 0; /* GPU: streams */
    size_t width = (size_t)config_media_width(decoder_config(s->draft.model->dec));
    const float *ahead = drafting_ahead(&s->draft, m, row, n);
    enum pv_status st = PV_OK;
    if (ahead) {
        memcpy(out, ahead, (size_t)n * width * sizeof *out);
        return PV_OK;
    }
    if (locks)
        st = task_lock(s->task, s->draft.model->step_lock, err);
    if (st)
        return st;
    st = encoder_rows(s->draft.encoder, &m->m, session_media_key(s, m), row, n, out, err);
    if (locks)
        pthread_mutex_unlock(s->draft.model->step_lock);
    return st;
}

/* Rows of a video between two calls of go_on. */
enum { AHEAD_ROWS = 4096 };

enum pv_status draft_read_ahead(struct speculation *sp, const struct draft_reading *r,
                                struct pv_error *err)
{
    struct pv_session *s = sp->s;
    struct drafting *d = &s->draft;
    size_t width = (size_t)config_media_width(decoder_config(d->model->dec));
    enum pv_status st = PV_OK;
    for (int i = 0; i < d->n_ahead && !st; i++) {
        struct ahead_rows *a = &d->ahead[i];
        const struct media_item *m = s->seq.line.media;
        while (m->key != a->key) /* drafting_forget kept only items of the timeline */
            m++;
        while (a->made < a->n && !st && (!r->go_on || r->go_on(r->user, a->made, a->n))) {
            int n = a->n - a->made < AHEAD_ROWS ? a->n - a->made : AHEAD_ROWS;
            st = draft_rows(s, m, a->made, n, a->rows + (size_t)a->made * width, err);
            a->made += st ? 0 : n;
        }
    }
    return st;
}

/* Rows of one media item from the target's tower: those that were kept, or computed again. */
static enum pv_status target_rows(struct pv_session *s, const struct media_item *m, int row, int n,
                                  float *out, struct pv_error *err)
{
    size_t width = (size_t)config_media_width(decoder_config(s->model->dec));
    const float *kept = drafting_features(&s->draft, m, row, n, width, false);
    if (!kept)
        return session_media_rows(s, m, row, n, out, false, err);
    memcpy(out, kept, (size_t)n * width * sizeof *out);
    return PV_OK;
}

/* The speculation whose drafter reads the prompt, and the callback that may stop it. */
struct reader {
    const struct speculation *sp;
    const struct draft_reading *r;
};

/* Rows of media for the drafter: the draft model's own tower, or the target's. Rows of two equal
 * media may follow one another. */
static enum pv_status embed_rows(void *user, int from, int n, float *out, struct pv_error *err)
{
    const struct speculation *sp = ((struct reader *)user)->sp;
    struct pv_session *s = sp->s;
    bool own = sp->media == DRAFT_MEDIA_OWN;
    size_t width =
        (size_t)config_media_width(decoder_config(own ? s->draft.model->dec : s->model->dec));
    for (int done = 0; done < n;) {
        int row;
        const struct media_item *m = timeline_item(&s->seq.line, from + done, &row);
        int some = timeline_stretch(&s->seq.line, from + done, n - done);
        float *to = out + (size_t)done * width;
        enum pv_status st =
            own ? draft_rows(s, m, row, some, to, err) : target_rows(s, m, row, some, to, err);
        if (st)
            return st;
        done += some;
    }
    return PV_OK;
}

/* The same by the draft model's vision adaptor. */
static enum pv_status embed_adapted(void *user, int from, int n, float *out, struct pv_error *err)
{
    const struct reader *reader = user;
    return draft_adapt_rows(reader->sp->s, from, n, reader->r->n, out, err);
}

/* The same for a draft head, which takes only the embedding part of a wide row. */
static enum pv_status embed_narrow(void *user, int from, int n, float *out, struct pv_error *err)
{
    const struct config *c = decoder_config(((struct reader *)user)->sp->s->model->dec);
    size_t width = (size_t)config_media_width(c), hidden = (size_t)c->hidden;
    float *wide = mem_alloc((size_t)n * width * sizeof *wide);
    enum pv_status s = wide ? embed_rows(user, from, n, wide, err)
                            : fail_nomem(err, (size_t)n * width * sizeof *wide);
    for (size_t i = 0; i < (size_t)n && !s; i++)
        memcpy(out + i * hidden, wide + i * width, hidden * sizeof *out);
    mem_free(wide);
    return s;
}

static bool ask_go_on(void *user, int done, int total)
{
    const struct draft_reading *r = ((const struct reader *)user)->r;
    return !r->go_on || r->go_on(r->user, done, total);
}

enum pv_status draft_read(struct speculation *sp, struct draft_reading *r, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    struct reader reader = { sp, r };
    bool narrow =
        sp->kind->runs == DRAFTER_RUNS_HEAD && decoder_config(s->model->dec)->n_deepstack > 0;
    struct draft_prompt prompt = { .n = r->n,
                                   .ids = s->seq.line.ids,
                                   .pos = (const int32_t(*)[3])s->seq.line.pos,
                                   .next = r->next,
                                   .visible = s->draft.visible,
                                   .original = sp->method.positions == PV_POS_ORIGINAL,
                                   .embed = sp->media == DRAFT_MEDIA_ADAPTED ? embed_adapted
                                            : narrow                         ? embed_narrow
                                                                             : embed_rows,
                                   .progress = ask_go_on,
                                   .user = &reader,
                                   .target = &s->seq.kv,
                                   .scores = s->draft.layer_scores,
                                   .n_scores = s->draft.n_rows,
                                   .n_groups = s->draft.score_groups,
                                   .score_rows = s->draft.rows,
                                   .states = &s->draft.states,
                                   .attention = r->measures ? s->draft.scores : NULL,
                                   .sums = s->draft.sums,
                                   .query0 = sp->signal.query0 };
    double ahead = s->draft.encoder ? encoder_take_seconds(s->draft.encoder) : 0;
    double t0 = clock_now();
    enum pv_status st;
    draft_adapt_begin(&s->draft);
    r->rows = 0;
    r->tower_s = 0;
    for (int i = 0; i < r->n; i++)
        r->rows += s->draft.visible[i];
    st = sp->drafter->begin(sp->drafter, &prompt, err);
    if (s->draft.encoder)
        r->tower_s = encoder_take_seconds(s->draft.encoder);
    if (s->draft.place == DRAFT_TAKES_TURNS) /* otherwise the model's side counts it */
        r->tower_s += session_take_tower(s);
    r->prefill_s = clock_now() - t0 - r->tower_s;
    r->tower_s += ahead; /* time spent before */
    return st;
}

static bool tell_progress(void *user, int done, int total)
{
    const struct pv_gen_params *p = user;
    return !p->progress || p->progress(p->progress_user, PV_PHASE_DRAFT_PREFILL, done, total);
}

/* The drafter's prefill on the caller's thread; `measures`: see struct draft_reading. */
static enum pv_status read_here(struct speculation *sp, bool measures, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    struct draft_reading reading = { .n = sp->n_prompt,
                                     .next = sp->next,
                                     .measures = measures,
                                     .go_on = tell_progress,
                                     .user = (void *)sp->p };
    double t0 = clock_now();
    enum pv_status st = draft_read(sp, &reading, err);
    trace_add(&s->answer.trace, PV_SIDE_DRAFTER, "prefill", t0, reading.rows);
    s->answer.stats.vision_s += reading.tower_s;
    s->answer.stats.draft_prefill_s += reading.prefill_s;
    return st;
}

/* Let the drafter read the whole prompt, to measure the scores. Its tower's rows are kept for the
 * prefill of the chosen ones. */
static enum pv_status measure_by_drafter(struct speculation *sp, struct pv_error *err)
{
    struct drafting *d = &sp->s->draft;
    struct draft_reading tower = { 0 };
    enum pv_status s = PV_OK;
    memset(d->visible, true, (size_t)sp->s->seq.line.n * sizeof *d->visible);
    if (sp->media == DRAFT_MEDIA_OWN) {
        drafting_make_ahead(d, &sp->s->seq.line);
        s = draft_read_ahead(sp, &tower, err);
    }
    return s ? s : read_here(sp, true, err);
}

enum pv_status draft_see(struct speculation *sp, struct pv_error *err)
{
    struct pv_stats *stats = &sp->s->answer.stats;
    enum pv_status s = sp->signal.by_drafter ? measure_by_drafter(sp, err) : PV_OK;
    double t0 = clock_now(), tower;
    if (!s)
        s = choose_visible(sp, err);
    tower = session_take_tower(sp->s); /* a view that needed features may have run it */
    stats->vision_s += tower;
    stats->view_s += clock_now() - t0 - tower;
    if (!s)
        sp->phase = DRAFT_HAS_VIEW;
    return s;
}

enum pv_status draft_wake(struct speculation *sp, struct pv_error *err)
{
    enum pv_status s = sp->phase == DRAFT_NO_VIEW ? draft_see(sp, err) : PV_OK;
    if (!s)
        s = read_here(sp, false, err);
    if (!s)
        sp->phase = DRAFT_AWAKE;
    return s;
}
