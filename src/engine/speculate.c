/* Prepares the rounds of speculation and chooses the schedule that runs them. The model's prefill
 * measures a signal; from it, the view chooses what the drafter sees; then the rounds follow. A
 * fixed method keeps its schedule as long as its request is the only one; `auto` chooses again
 * before each round. */
#include "engine/speculate.h"

#include "base/clock.h"
#include "engine/draft_adapt.h"
#include "engine/draft_ahead.h"
#include "engine/draft_read.h"
#include "engine/prefill.h"
#include "engine/schedule.h"
#include "format/family.h"
#include "spec/method_rules.h"

#include <string.h>

/* Tokens of an answer before `auto` lets the drafter read the prompt: answers of a word or two are
 * faster without it. If few of the last answers were that short, the drafter reads at once. */
enum { AUTO_PATIENCE = 4 };
static const double FEW = 0.25; /* also the weight of the last answer */
/* CPU threads from which on `auto` also tries the parallel schedule, and its longest window. */
enum { AUTO_PARALLEL = 4, AUTO_MAX_WINDOW = 16 };
/* Number of requests on a CPU from which on `auto` prefers a draft head to a draft model
 * (doc/notes/engine.md). */
enum { CROWD = 6 };
static const double USUAL_LAMBDA = 0.5; /* lambda without a tower */
enum { FITTED_USUAL = 8 };              /* rows of a fitted tree, before any is measured */

/* ---- the method ---- */

/* Properties on which a method's defaults depend. */
static struct method_setting setting_of(const struct pv_session *s)
{
    const struct family *f = model_file_vision(s->model->file)->family;
    return (struct method_setting){ .has_draft = s->draft.model != NULL,
                                    .has_head = s->model->head != NULL,
                                    .crowded = s->model->gpu < 0 && task_company(s->task) >= CROWD,
                                    .recorded = s->model->dev->ops->chains,
                                    .lambda = f ? f->lambda : USUAL_LAMBDA,
                                    .positions = f && f->compact_drafting ? PV_POS_COMPACT
                                                                          : PV_POS_ORIGINAL };
}

/* List the rows of videos, and find the first row whose attention to them counts: it is in the last
 * message and after the last video. */
static void list_video_rows(struct pv_session *s, int *query0)
{
    struct drafting *d = &s->draft;
    int last = -1;
    d->n_rows = 0;
    for (int k = 0; k < s->seq.line.n_spans; k++) {
        const struct media_span *span = &s->seq.line.span[k];
        const struct media *m = &s->seq.line.media[span->item].m;
        int n = m->n_units * m->unit_rows - span->first; /* without the newline */
        last = span->row0 + span->n - 1;
        for (int i = 0; m->video && i < span->n && i < n; i++)
            d->rows[d->n_rows++] = span->row0 + i;
    }
    *query0 = last + 1 > s->message0 ? last + 1 : s->message0;
    if (*query0 >= s->seq.line.n)
        *query0 = s->seq.line.n - 1;
}

/* Make room for what the drafter needs of the media (its tower or its adaptor), and for scores by
 * layer. */
static enum pv_status reserve_view(struct speculation *sp, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    struct drafting *d = &s->draft;
    bool stills = !view_find(sp->view)->info.videos;
    enum pv_status st = PV_OK;
    if (sp->media == DRAFT_MEDIA_OWN)
        st = drafting_tower(d, &s->seq.line, stills, err);
    else if (sp->media == DRAFT_MEDIA_ADAPTED)
        st = draft_adapt_reserve(d, err);
    memset(d->scores, 0, (size_t)d->n_rows * sizeof *d->scores);
    if (!st && sp->kind->layer_scores)
        st = drafting_scores(d, err);
    return st;
}

/* Set up the trees that `auto` may choose: fitted ones if the drafter can grow them. A GPU records
 * repeated steps, which trees of changing shape are not, and drafts chains in one step. So there it
 * chooses among chains, and for a draft head, whose chains are no faster than its trees, also the
 * tree of 25. */
static void open_policy(struct speculation *sp)
{
    bool fitted = sp->kind->fits_trees, chains = sp->s->model->dev->ops->chains;
    if (chains) {
        shape_static25(&sp->tree);
        policy_open(&sp->policy, sp->kind->cheap ? shape_rows(&sp->tree) : 0);
        policy_record(&sp->policy);
        return;
    }
    if (!fitted || shape_fitted(&sp->tree, FITTED_TOTAL, FITTED_DEPTH, FITTED_WIDTH, NULL) != PV_OK)
        shape_static25(&sp->tree);
    policy_open(&sp->policy, fitted ? FITTED_USUAL : shape_rows(&sp->tree));
    if (fitted)
        policy_fit(&sp->policy);
}

/* Whether running drafter and target at the same time is worth a trial: on separate devices, or
 * with enough threads to share. On one GPU, each alone uses the whole memory bandwidth (7B with
 * 0.5B and 72B with 7B: slower than the serial schedule). */
static bool sides_have_room(const struct pv_session *s, const struct pv_method *m)
{
    const struct pv_model *target = s->model, *draft = s->draft.model;
    if (drafter_find(m->drafter)->runs == DRAFTER_RUNS_DRAFT && draft && draft->dev != target->dev)
        return true;
    return target->gpu < 0 && target->threads >= AUTO_PARALLEL;
}

/* Tell the prefill what to keep and measure for the drafter and its view. */
static void ask_prefill(struct speculation *sp)
{
    struct pv_session *s = sp->s;
    struct view_signal *v = &sp->signal;
    const struct drafter_kind *kind = sp->kind;
    const struct view *view = view_find(sp->view);
    int n_layers = decoder_config(s->model->dec)->n_layers;
    bool adapts = sp->media == DRAFT_MEDIA_ADAPTED, features = view->info.features;
    /* If the adaptor is on the target's device, it reads them there. */
    bool stays = adapts && s->draft.model->dev == s->model->dev;
    list_video_rows(s, &v->query0);
    v->layers = view_layers(sp->view, sp->method.layer, n_layers);
    v->over_video = view->info.signal == PV_SIGNAL_VIDEO_ATTENTION;
    v->text_after = sp->method.text_after;
    v->states = kind->states;
    if (view->info.signal == PV_SIGNAL_DRAFT_ATTENTION)
        v->by_drafter = s->draft.n_rows > 0 && sp->media != DRAFT_MEDIA_HIDDEN;
    else if (s->draft.n_rows > 0 && kind->layer_scores)
        v->kind = SIGNAL_LAYER_ATTENTION;
    else if (s->draft.n_rows > 0 && view_wants_scores(sp->view))
        v->kind = view->info.signal == PV_SIGNAL_ALIGNMENT ? SIGNAL_ALIGNMENT : SIGNAL_ATTENTION;
    v->early = (v->kind == SIGNAL_ATTENTION || v->kind == SIGNAL_ALIGNMENT) && view->early &&
               v->layers < n_layers;
    s->draft.keep_on_device = (features && view->on_device) || stays;
    s->draft.keep_features =
        (features && !view->on_device) || sp->media == DRAFT_MEDIA_TARGET || (adapts && !stays);
    if (kind->states)
        drafting_want(&s->draft, s->seq.line.n_spans > 0 && sp->media == DRAFT_MEDIA_TARGET);
}

static enum pv_status check_method(const struct speculation *sp, struct pv_error *err)
{
    enum pv_status s = method_check(&sp->method, err);
    if (!s && method_test(&sp->method).simulate > 0 && (sp->p->temperature > 0 || sp->p->on_logits))
        s = fail(err, PV_E_ARG,
                 "simulated acceptance works at temperature 0 only, and shows no logits");
    return s;
}

/* Begin with what earlier answers like this one have taught. */
static void remember_answers(struct speculation *sp)
{
    struct pv_engine *e = sp->s->engine;
    int kind = price_book_of(sp->p->temperature > 0, sp->s->seq.line.n_spans > 0);
    sp->book = &e->book[sp->method.drafter][kind];
    if (!sp->method.automatic)
        return;
    sp->learnt = &e->learnt[sp->method.drafter][kind];
    policy_resume(&sp->policy, &sp->learnt->policy);
    sp->early = sp->learnt->answered && sp->learnt->short_share < FEW &&
                sp->p->max_new_tokens > AUTO_PATIENCE && policy_drafts(&sp->policy) &&
                price_pays(sp->book);
}

/* Keep what this answer has taught. */
static void learn_answer(struct speculation *sp)
{
    struct auto_memory *m = sp->learnt;
    double is_short = sp->s->answer.n <= AUTO_PATIENCE;
    if (!m || sp->s->answer.n == 0)
        return;
    m->policy = sp->policy;
    if (sp->p->max_new_tokens <= AUTO_PATIENCE)
        return;
    m->short_share = m->answered ? m->short_share + FEW * (is_short - m->short_share) : is_short;
    m->answered = true;
}

enum pv_status speculation_open(struct speculation *sp, struct pv_session *s,
                                const struct pv_gen_params *p, struct pv_error *err)
{
    const struct pv_method *m = &sp->method;
    struct method_setting setting = setting_of(s);
    enum pv_status st;
    *sp = (struct speculation){ .s = s,
                                .p = p,
                                .n_prompt = s->seq.line.n,
                                .next = s->seq.line.next,
                                .schedule = &schedule_serial,
                                .wanted = &schedule_serial };
    s->draft.keep_features = s->draft.keep_on_device = false;
    s->draft.n_visible = 0;
    if (!p->method || p->method->drafter == PV_DRAFT_NONE)
        return PV_OK;
    if (!s->speculates)
        return fail(err, PV_E_ARG, "method '%s' needs a session that was opened for speculation",
                    p->method->name);
    sp->method = *p->method;
    method_fill(&sp->method, &setting);
    st = check_method(sp, err);
    if (st)
        return st;
    sp->kind = drafter_find(m->drafter);
    sp->view = view_named(m->view);
    open_policy(sp);
    if (m->automatic && m->accept == PV_ACCEPT_EXACT && sides_have_room(s, m) &&
        sp->kind->info.reads_prompt)
        policy_allow_parallel(&sp->policy, AUTO_MAX_WINDOW);
    remember_answers(sp);
    st = method_shape(&sp->shape, m, err);
    if (!st)
        st = drafting_drafter(&s->draft, m, &sp->drafter, err);
    if (!st && (p->temperature > 0 || s->observer.show))
        st = drafting_drawing(&s->draft, m->accept == PV_ACCEPT_REJECTION, err);
    if (st)
        return st;
    sp->phase = DRAFT_NO_VIEW;
    sp->media = drafting_media(&s->draft, sp->kind, &view_find(sp->view)->info);
    drafting_forget(&s->draft, &s->seq.line);
    ask_prefill(sp);
    st = reserve_view(sp, err);
    if (!st)
        drafting_fit(&s->draft, budget_left(&s->budget));
    return st;
}

/* ---- the schedule ---- */

static const struct schedule *const schedules[] = {
    [PV_SCHEDULE_SERIAL] = &schedule_serial, [PV_SCHEDULE_PARALLEL] = &schedule_parallel
};

/* Whether the schedule may run now. */
static bool may_run(const struct speculation *sp, const struct schedule *schedule)
{
    return !schedule->alone || task_alone(sp->s->task);
}

/* The serial schedule needs no resources, so it remains usable after a failure. */
static enum pv_status switch_schedule(struct speculation *sp, const struct schedule *to,
                                      struct pv_error *err)
{
    enum pv_status s;
    if (sp->schedule == to)
        return PV_OK;
    s = sp->schedule->close(sp, err);
    sp->schedule = &schedule_serial;
    if (!s)
        s = to->open(sp, err);
    if (!s)
        sp->schedule = to;
    return s;
}

/* Choose the schedule of a fixed method. Once other requests have arrived, it stays serial until
 * the end of the answer: restarting the parallel one would cost more than it could gain. */
static enum pv_status follow_method(struct speculation *sp, struct pv_error *err)
{
    if (!may_run(sp, sp->wanted))
        sp->wanted = &schedule_serial;
    return switch_schedule(sp, sp->wanted, err);
}

enum pv_status speculation_start(struct speculation *sp, struct pv_error *err)
{
    const struct timeline *line = &sp->s->seq.line;
    if (sp->phase == DRAFT_OFF)
        return PV_OK;
    /* A drafter that runs ahead begins with a token. One that reads the model's states begins when
     * the prefill has computed them and the first token is known. */
    if (sp->kind->states || line->ids[line->n - 1] >= 0)
        sp->wanted = schedules[sp->method.schedule];
    if (sp->method.schedule == PV_SCHEDULE_SERIAL && (!sp->method.automatic || sp->early))
        draft_ahead_start(sp);
    return sp->kind->states ? PV_OK : follow_method(sp, err);
}

static enum pv_status signal_ready(void *user, struct pv_error *err)
{
    struct speculation *sp = user;
    return sp->schedule->signal_ready(sp, err);
}

enum pv_status speculation_prefill(struct speculation *sp, enum want want, struct pv_error *err)
{
    struct prefill_pause pause = { signal_ready, sp };
    return prefill_run(sp->s, sp->p, &sp->signal, want, sp->schedule->signal_ready ? &pause : NULL,
                       err);
}

/* If the drafter gets no KV pages, the answer continues without it. Returns false if it failed for
 * another reason, or not at all. */
static bool forgive(struct speculation *sp, enum pv_status st)
{
    if (st != PV_E_DRAFTER || !drafting_starved(&sp->s->draft))
        return false;
    (void)sp->schedule->close(sp, NULL);
    sp->schedule = sp->wanted = &schedule_serial;
    sp->phase = DRAFT_FAILED;
    return true;
}

enum pv_status speculation_begin(struct speculation *sp, struct pv_error *err)
{
    struct pv_error why = { 0 };
    enum pv_status s;
    if (sp->phase == DRAFT_OFF)
        return PV_OK;
    s = sp->schedule->prefill_done(sp, &why);
    return !s || forgive(sp, s) ? PV_OK : fail(err, s, "%s", why.text);
}

/* `auto` lets the drafter read the prompt. If the drafter cannot, the answer continues without it.
 */
static enum pv_status wake_late(struct speculation *sp, struct pv_error *err)
{
    struct pv_error why = { 0 };
    double t0 = clock_now(), seconds;
    enum pv_status s = draft_wake(sp, &why);
    seconds = clock_now() - t0;
    sp->wake_s += seconds;
    policy_read_prompt(&sp->policy, seconds);
    if (s == PV_E_CANCELLED)
        return fail(err, s, "%s", why.text);
    if (s)
        sp->phase = DRAFT_FAILED;
    return PV_OK;
}

/* Whether the drafter can be used: it has read the prompt, or `auto` may let it read now. If a test
 * overrides the choices, what drafts have gained so far does not matter. */
static bool can_draft(const struct speculation *sp)
{
    if (sp->phase != DRAFT_NO_VIEW && sp->phase != DRAFT_HAS_VIEW)
        return sp->phase == DRAFT_AWAKE;
    return (sp->early || sp->s->answer.n >= AUTO_PATIENCE) &&
           (price_pays(sp->book) || sp->s->changer.change);
}

/* `auto`: choose the kind of this round. */
static enum pv_status choose_kind(struct speculation *sp, struct pv_error *err)
{
    struct choice_changer *changer = &sp->s->changer;
    struct policy_choice plain = { POLICY_PLAIN, 0 };
    const struct schedule *to;
    enum pv_status s = PV_OK;
    sp->choice = plain;
    if (!can_draft(sp))
        return PV_OK;
    if (!may_run(sp, &schedule_parallel))
        policy_allow_parallel(&sp->policy, 0);
    sp->choice = policy_next(&sp->policy);
    if (changer->change)
        changer->change(changer->user, &sp->choice);
    if (sp->choice.kind == POLICY_PARALLEL && !may_run(sp, &schedule_parallel))
        sp->choice = plain;
    if (sp->choice.kind != POLICY_PLAIN && sp->phase != DRAFT_AWAKE)
        s = wake_late(sp, err);
    if (sp->phase != DRAFT_AWAKE)
        sp->choice = plain;
    if (s)
        return s;
    to = sp->choice.kind == POLICY_PARALLEL ? &schedule_parallel : &schedule_serial;
    if (switch_schedule(sp, to, NULL) == PV_OK)
        return PV_OK;
    /* The drafter has failed, or cannot run in parallel. */
    policy_allow_parallel(&sp->policy, 0);
    sp->choice = plain;
    return PV_OK;
}

static enum pv_status choose_round(struct speculation *sp, struct pv_error *err)
{
    enum pv_status s = choose_kind(sp, err);
    if (s)
        return s;
    if (sp->choice.kind == POLICY_TREE)
        sp->shape = sp->tree;
    else if (sp->choice.kind == POLICY_CHAIN)
        s = shape_chain(&sp->shape, sp->choice.window, err);
    return s;
}

enum pv_status speculation_round(struct speculation *sp, struct round *r, struct pv_error *err)
{
    struct pv_error why = { 0 };
    enum pv_status s = sp->method.automatic ? choose_round(sp, &why) : follow_method(sp, &why);
    if (s && !forgive(sp, s))
        return fail(err, s, "%s", why.text);
    s = sp->schedule->round(sp, r, &why);
    if (!sp->method.automatic && forgive(sp, s))
        return sp->schedule->round(sp, r, err);
    if (s == PV_E_DRAFTER && sp->method.automatic) {
        sp->phase = DRAFT_FAILED;
        (void)switch_schedule(sp, &schedule_serial, NULL);
        sp->choice = (struct policy_choice){ POLICY_PLAIN, 0 };
        return sp->schedule->round(sp, r, err);
    }
    if (s)
        fail(err, s, "%s", why.text);
    return s;
}

void speculation_close(struct speculation *sp)
{
    draft_ahead_join(sp, true);
    (void)sp->schedule->close(sp, NULL);
    sp->schedule = &schedule_serial;
    learn_answer(sp);
}
