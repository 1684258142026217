/* Runs of several methods in one session. The session's cache keeps the prompt, so from the second
 * run on the prefill costs nothing; what it cost is known from the first. A drafter's cache does
 * the same, where two methods show it the same tokens: only runs that found it empty tell what it
 * costs to fill, and their median counts for all. In the parallel schedule a drafter that still
 * reads would make `decode` something else, so it is shown the prompt before; what overlapping
 * saves is in the runs of their own. */
#include "trial.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "prepared.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ANSWER = 16 << 20 }; /* bytes of an answer that are kept */

struct run {
    struct figures f;
    bool cold; /* the drafter had not seen this before */
};

/* The state of one trial_run. */
struct course {
    const struct trial *t;
    const struct trial_question *q;
    pv_session *session;
    struct run *runs; /* [repeat, who->n] */
    int32_t *answer;  /* of plain decoding, the first */
    size_t n_answer;
    uint64_t *bits,
        *plain_bits; /* [max_new_tokens]: of each token's logits, and of the first run */
    const struct pv_method *last[PV_DRAFT_COUNT]; /* by drafter: who used it last */
    struct trial_result *out;
    bool told; /* the user, of what is wrong with the video */
};

/* Who is told the words; fn NULL: nobody. */
struct listener {
    pv_text_fn fn;
    void *user;
};

static bool on_text(void *user, const char *utf8, size_t len)
{
    const struct listener *l = user;
    if (interrupted())
        return false;
    return !l->fn || l->fn(l->user, utf8, len);
}

/* A number made of all bits of the logits that chose a token. */
static void on_logits(void *user, int token, const float *logits)
{
    struct course *c = user;
    uint64_t sum = 0xcbf29ce484222325u;
    if (token >= c->t->gen.max_new_tokens)
        return;
    for (int i = 0; i < pv_model_vocab_size(c->t->model); i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        sum = (sum ^ bits) * 0x100000001b3u;
    }
    c->bits[token] = sum;
}

static void tell_lost(struct progress *p, const char *path, const struct pv_video_info *info)
{
    if (info->lost || info->cut)
        progress_clear(p);
    report_lost(path, info);
}

static enum pv_status add_question(struct course *c, struct pv_error *err)
{
    const struct trial *t = c->t;
    struct pv_video_info info[MAX_ARGS];
    struct pv_video_params vp = t->video;
    int n = c->q->videos->n;
    const char *prompt = c->q->prompt;
    enum pv_status s = PV_OK;

    pv_session_reset(c->session);
    if (has_prepared(c->q->videos))
        return add_prepared(c->session, c->q->videos->items[0], err);
    vp.progress = progress_step;
    vp.progress_user = t->progress;
    s = set_no_thinking(c->session, c->q->no_thinking, err);
    if (!s && c->q->system)
        s = pv_add_text(c->session, "system", c->q->system, err);
    for (int i = 0; i < n && !s; i++) {
        s = pv_add_video(c->session, c->q->videos->items[i], &vp, &info[i], err);
        if (s)
            fail_names(err, c->q->videos->items[i]);
        else if (!c->told)
            tell_lost(t->progress, c->q->videos->items[i], &info[i]);
    }
    if (s)
        return s;
    c->told = true;
    return pv_add_text(c->session, "user", prompt ? prompt : default_question(info, n), err);
}

static enum pv_status answer(struct course *c, const struct pv_method *m, int max_tokens,
                             struct listener l, struct figures *out, struct pv_error *err)
{
    struct pv_gen_params gen = c->t->gen;
    struct pv_stats st = { .size = sizeof st };
    enum pv_status s = add_question(c, err);

    if (s)
        return s;
    gen.method = m;
    gen.trace = true; /* rounds are counted from the spans */
    gen.max_new_tokens = max_tokens;
    gen.progress = progress_step;
    gen.progress_user = c->t->progress;
    if (c->t->bits) {
        memset(c->bits, 0, (size_t)c->t->gen.max_new_tokens * sizeof *c->bits);
        gen.on_logits = on_logits;
        gen.logits_user = c;
    }
    s = pv_generate(c->session, &gen, on_text, &l, err);
    if (s)
        return s;
    pv_session_stats(c->session, &st);
    *out = figures_of(&st);
    c->out->frames = (int)st.frames;
    c->out->lost = (int)st.lost_frames;
    if (has_prepared(c->q->videos) && !c->told) {
        struct pv_video_info info = { .frames = (int)st.frames, .lost = (int)st.lost_frames };
        tell_lost(c->t->progress, c->q->videos->items[0], &info);
        c->told = true;
    }
    c->out->peak_bytes = c->out->peak_bytes > st.peak_bytes ? c->out->peak_bytes : st.peak_bytes;
    return PV_OK;
}

/* Does a method need what the model's tower made of the video? The model's own weights do, and
 * heads with rows for the video. */
static bool wants_features(const struct pv_method *m)
{
    const struct pv_drafter_info *who = pv_drafter_find(m->drafter);
    const struct pv_view_info *view = pv_view_find(m->view);
    return method_prunes_model(m) || who->own_weights || view->features ||
           (who->needs_head && who->reads_prompt && view->videos);
}

/* Read the video in a way that keeps the tower's output for those who need it, as their own first
 * run would: a drafter that costs nothing with a view that wants it. */
static enum pv_status read_video(struct course *c, struct figures *cold, bool *done,
                                 struct pv_error *err)
{
    struct pv_method m = { .size = sizeof m };
    enum pv_status s = pv_method_find(&m, "ngram", err);
    *done = false;
    if (s)
        return s;
    m.name = "reading";
    for (int i = 0; i < c->t->who->n; i++) {
        const struct pv_method *its = &c->t->who->items[i].method;
        *done = *done || wants_features(its);
        if (pv_view_find(its->view)->features)
            m.view = its->view; /* views differ in where they want it */
    }
    for (int i = 0; !pv_view_find(m.view)->features; i++)
        m.view = pv_view_name(i);
    return *done ? answer(c, &m, 1, (struct listener){ 0 }, cold, err) : PV_OK;
}

static bool shows_the_same(const struct pv_method *a, const struct pv_method *b)
{
    return a->drafter == b->drafter && !strcmp(a->view, b->view) && a->ratio == b->ratio &&
           a->lambda == b->lambda && a->layer == b->layer && a->terms == b->terms &&
           a->literal == b->literal && a->text_after == b->text_after &&
           a->positions == b->positions && a->draft_seed == b->draft_seed && a->keep == b->keep &&
           !a->lossy == !b->lossy && (!a->lossy || !strcmp(a->lossy, b->lossy));
}

static enum identity identify(const struct course *c, const struct pv_method *m)
{
    size_t n;
    const int32_t *ids = pv_session_answer(c->session, &n);
    if (method_prunes_model(m) || method_simulates(m) > 0 ||
        (m->accept == PV_ACCEPT_REJECTION && c->t->gen.temperature > 0))
        return NOT_COMPARED;
    if (n != c->n_answer || memcmp(ids, c->answer, n * sizeof *ids) != 0)
        return DIFFERENT;
    return c->t->bits && memcmp(c->bits, c->plain_bits, n * sizeof *c->bits) ? DIFFERENT : SAME;
}

static enum pv_status keep_answer(struct course *c, struct pv_error *err)
{
    const int32_t *ids = pv_session_answer(c->session, &c->n_answer);
    size_t size = (c->n_answer ? c->n_answer : 1) * sizeof *ids;
    c->answer = mem_alloc(size);
    if (!c->answer)
        return fail_nomem(err, size);
    memcpy(c->answer, ids, c->n_answer * sizeof *ids);
    if (c->t->bits)
        memcpy(c->plain_bits, c->bits, c->n_answer * sizeof *c->bits);
    return PV_OK;
}

/* Tokens of the longest common subsequence of two answers; -1: out of memory. */
static int64_t common_tokens(const int32_t *a, size_t n, const int32_t *b, size_t m)
{
    int64_t *row = mem_zalloc((m + 1) * sizeof *row), all;
    if (!row)
        return -1;
    for (size_t i = 0; i < n; i++) {
        int64_t corner = 0;
        for (size_t j = 0; j < m; j++) {
            int64_t above = row[j + 1], left = row[j];
            row[j + 1] = a[i] == b[j] ? corner + 1 : above > left ? above : left;
            corner = above;
        }
    }
    all = row[m];
    mem_free(row);
    return all;
}

/* How far a lossy answer is that of plain decoding. */
static enum pv_status compare_lossy(const struct course *c, struct figures *f, struct pv_error *err)
{
    size_t n;
    const int32_t *ids = pv_session_answer(c->session, &n);
    int64_t common = common_tokens(ids, n, c->answer, c->n_answer);
    if (common < 0)
        return fail_nomem(err, (c->n_answer + 1) * sizeof common);
    f->v[FIG_LOSSY] = 1;
    f->v[FIG_SAME_TEXT] = n == c->n_answer && (size_t)common == n;
    f->v[FIG_COMPARED] = (double)(n > c->n_answer ? n : c->n_answer);
    f->v[FIG_AGREED] = (double)common;
    return PV_OK;
}

/* Show the drafter of a parallel method the prompt, as its serial twin does: one token. */
static enum pv_status show_drafter(struct course *c, const struct pv_method *m, struct figures *out,
                                   struct pv_error *err)
{
    struct pv_method twin = *m;
    twin.schedule = PV_SCHEDULE_SERIAL;
    return answer(c, &twin, 1, (struct listener){ 0 }, out, err);
}

/* How many tokens each verification of the last answer accepted. */
static enum pv_status keep_rounds(struct course *c, int k, struct pv_error *err)
{
    size_t n;
    const struct pv_span *span = pv_session_spans(c->session, &n);
    struct trial_rounds *rounds = &c->out->rounds[k];

    rounds->accepted = mem_alloc((n ? n : 1) * sizeof *rounds->accepted);
    if (!rounds->accepted)
        return fail_nomem(err, n * sizeof *rounds->accepted);
    rounds->n = 0;
    for (size_t i = 0; i < n; i++)
        if (span[i].side == PV_SIDE_MODEL && !strcmp(span[i].what, "verify"))
            rounds->accepted[rounds->n++] = span[i].accepted;
    return PV_OK;
}

static void keep_ids(struct course *c, int k)
{
    struct buf *out = &c->out->ids[k];
    size_t n;
    const int32_t *ids = pv_session_answer(c->session, &n);

    buf_init(out, MAX_ANSWER);
    buf_puts(out, "[");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, i ? ",%d" : "%d", (int)ids[i]);
    buf_puts(out, "]");
}

/* A listener that keeps the text, and tells another one. */
struct keeper {
    struct buf *text;
    struct listener next;
};

static bool keep_words(void *user, const char *utf8, size_t len)
{
    struct keeper *keeper = user;
    buf_add(keeper->text, utf8, len);
    return !keeper->next.fn || keeper->next.fn(keeper->next.user, utf8, len);
}

/* The first repeat of method k: its rounds and, where they are wanted, its words are kept. */
static enum pv_status run_first(struct course *c, int k, struct listener l, struct figures *out,
                                struct pv_error *err)
{
    const struct pv_method *m = &c->t->who->items[k].method;
    struct keeper keeper = { .text = &c->out->text[k], .next = l };
    enum pv_status s;

    buf_init(keeper.text, MAX_ANSWER);
    if (c->t->answers)
        l = (struct listener){ keep_words, &keeper };
    s = answer(c, m, c->t->gen.max_new_tokens, l, out, err);
    if (!s)
        s = keep_rounds(c, k, err);
    if (!s && c->t->answers)
        keep_ids(c, k);
    return s;
}

/* Method k in repeat r. */
static enum pv_status run_one(struct course *c, int r, int k, struct pv_error *err)
{
    const struct pv_method *m = &c->t->who->items[k].method;
    struct run *run = &c->runs[r * c->t->who->n + k];
    struct listener l = { 0 };
    struct figures shown;
    bool show;
    enum pv_status s = PV_OK;

    if (r == 0 && k == 0)
        l = (struct listener){ c->t->on_text, c->t->user };
    run->cold = !c->last[m->drafter] || !shows_the_same(c->last[m->drafter], m);
    c->last[m->drafter] = m;
    show = run->cold && m->schedule == PV_SCHEDULE_PARALLEL;
    if (show)
        s = show_drafter(c, m, &shown, err);
    if (!s && r == 0)
        s = run_first(c, k, l, &run->f, err);
    else if (!s)
        s = answer(c, m, c->t->gen.max_new_tokens, l, &run->f, err);
    if (show && !s) {
        run->f.v[FIG_DRAFT_PREFILL_S] = shown.v[FIG_DRAFT_PREFILL_S];
        run->f.v[FIG_VISION_S] = shown.v[FIG_VISION_S];
    }
    if (!s && r == 0 && k == 0)
        s = keep_answer(c, err);
    if (!s && method_prunes_model(m))
        s = compare_lossy(c, &run->f, err);
    if (!s && (r == 0 || c->out->identity[k] == SAME))
        c->out->identity[k] = identify(c, m);
    return s;
}

/* The median of one figure over the runs of method k, or over the cold runs of all methods that
 * show its drafter the same. */
static double middle(const struct course *c, enum figure at, int k, bool cold, double *scratch)
{
    const struct contenders *who = c->t->who;
    int n = 0;
    for (int i = 0; i < c->t->repeat * who->n; i++) {
        bool mine = i % who->n == k;
        if (cold)
            mine = c->runs[i].cold &&
                   shows_the_same(&who->items[i % who->n].method, &who->items[k].method);
        if (mine)
            scratch[n++] = c->runs[i].f.v[at];
    }
    return n ? median(scratch, n) : 0;
}

static void reduce(const struct course *c, const struct figures *first, double *scratch)
{
    const struct contenders *who = c->t->who;
    for (int k = 0; k < who->n; k++) {
        struct figures *f = &c->out->cell[k];
        for (int i = 0; i < N_FIGURES; i++)
            f->v[i] = middle(c, (enum figure)i, k, i == FIG_DRAFT_PREFILL_S, scratch);
        /* After the first run only a draft model's tower has work to do. */
        f->v[FIG_DRAFT_VISION_S] = pv_drafter_find(who->items[k].method.drafter)->needs_draft
                                       ? middle(c, FIG_VISION_S, k, true, scratch)
                                       : 0;
        f->v[FIG_VIDEO_S] = first->v[FIG_VIDEO_S];
        f->v[FIG_VISION_S] = first->v[FIG_VISION_S];
        if (!method_prunes_model(
                &who->items[k].method)) /* it reuses nothing, so its prefills are whole */
            f->v[FIG_PREFILL_S] = first->v[FIG_PREFILL_S];
    }
}

/* Every method, again and again, in one session. */
static enum pv_status run_together(struct course *c, struct pv_error *err)
{
    const struct trial *t = c->t;
    size_t n = (size_t)t->repeat * (size_t)t->who->n;
    double *scratch = mem_alloc(n * sizeof *scratch);
    struct figures first;
    bool read = false;
    enum pv_status s = scratch ? PV_OK : fail_nomem(err, n * sizeof *scratch);

    if (!s)
        s = pv_session_open(&c->session, t->model, t->session, err);
    if (!s)
        s = read_video(c, &first, &read, err);
    for (int r = 0; r < t->repeat && !s; r++) {
        for (int k = 0; k < t->who->n && !s; k++) {
            progress_stage(t->progress, "clip %d of %d: %s (method %d of %d), repeat %d of %d",
                           t->progress->video, t->progress->of_n, t->who->items[k].label, k + 1,
                           t->who->n, r + 1, t->repeat);
            s = run_one(c, r, k, err);
        }
    }
    if (!s) {
        first = read ? first : c->runs[0].f;
        reduce(c, &first, scratch);
    }
    pv_session_close(&c->session);
    mem_free(scratch);
    return s;
}

/* ---- runs of their own ---- */

static enum pv_status keep_spans(struct course *c, int k, struct pv_error *err)
{
    size_t n, size;
    const struct pv_span *from = pv_session_spans(c->session, &n);
    struct trial_span *to;

    size = (n ? n : 1) * sizeof *to;
    to = mem_alloc(size);
    if (!to)
        return fail_nomem(err, size);
    for (size_t i = 0; i < n; i++) {
        to[i] = (struct trial_span){
            .side = from[i].side, .begin = from[i].begin, .end = from[i].end, .rows = from[i].rows
        };
        snprintf(to[i].what, sizeof to[i].what, "%s", from[i].what);
    }
    c->out->span[k] = to;
    c->out->n_spans[k] = n;
    return PV_OK;
}

static enum pv_status run_alone(struct course *c, int k, struct pv_error *err)
{
    const struct pv_method *m = &c->t->who->items[k].method;
    struct figures *cell = &c->out->cell[k], f;
    double t0;
    enum pv_status s;

    mem_peak_reset();
    s = pv_session_open(&c->session, c->t->model, c->t->session, err);
    t0 = clock_now();
    if (!s)
        s = answer(c, m, c->t->gen.max_new_tokens, (struct listener){ 0 }, &f, err);
    if (!s) {
        cell->v[FIG_COLD_S] = clock_now() - t0;
        cell->v[FIG_PEAK_BYTES] = (double)mem_peak();
        cell->v[FIG_STARTUP_TOKENS] = f.v[FIG_STARTUP_TOKENS];
        if (c->out->identity[k] == SAME)
            c->out->identity[k] = identify(c, m);
    }
    if (!s && c->t->trace)
        s = keep_spans(c, k, err);
    pv_session_close(&c->session);
    return s;
}

enum pv_status trial_run(const struct trial *t, const struct trial_question *q,
                         struct trial_result *out, struct pv_error *err)
{
    size_t n = (size_t)t->repeat * (size_t)t->who->n;
    struct course c = { .t = t, .q = q, .runs = mem_alloc(n * sizeof *c.runs), .out = out };
    bool alone = t->trace || t->alone;
    size_t tokens = t->bits ? (size_t)t->gen.max_new_tokens : 0;
    enum pv_status s = c.runs ? PV_OK : fail_nomem(err, n * sizeof *c.runs);

    if (tokens) {
        c.bits = mem_zalloc(2 * tokens * sizeof *c.bits);
        c.plain_bits = c.bits ? c.bits + tokens : NULL;
        s = c.bits ? s : fail_nomem(err, 2 * tokens * sizeof *c.bits);
    }
    *out = (struct trial_result){ 0 };
    for (int k = 0; k < t->who->n; k++)
        alone = alone || t->who->items[k].method.schedule == PV_SCHEDULE_PARALLEL;
    if (!s)
        s = run_together(&c, err);
    for (int k = 0; k < t->who->n && alone && !s; k++) {
        progress_stage(t->progress, "clip %d of %d: %s (method %d of %d), alone",
                       t->progress->video, t->progress->of_n, t->who->items[k].label, k + 1,
                       t->who->n);
        s = run_alone(&c, k, err);
    }
    progress_clear(t->progress);
    if (s)
        trial_clear(out);
    mem_free(c.answer);
    mem_free(c.bits);
    mem_free(c.runs);
    return s;
}

void trial_clear(struct trial_result *r)
{
    for (int k = 0; k < MAX_CONTENDERS; k++) {
        mem_free(r->span[k]);
        r->span[k] = NULL;
        r->n_spans[k] = 0;
        mem_free(r->rounds[k].accepted);
        r->rounds[k] = (struct trial_rounds){ 0 };
        buf_clear(&r->text[k]);
        buf_clear(&r->ids[k]);
    }
}
