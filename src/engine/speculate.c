/* The serial schedule, and what comes before it. The target's prefill gives the attention of the
 * question to the video; the view chooses from it what the drafter sees; then drafter and target
 * take turns. A round writes the whole tree behind the target's cache and commits nothing:
 * generate.c commits the rows whose tokens it emits. */
#include "engine/generate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/draft_read.h"
#include "engine/parallel.h"
#include "spec/method_rules.h"

#include <string.h>

enum { SIMULATE_SEED = 0x73696d };
/* Tokens of an answer before `auto` wakes the drafter: a word or two are told sooner without. */
enum { AUTO_PATIENCE = 4 };
/* Threads of a CPU with which `auto` also tries the parallel schedule, and its longest window. */
enum { AUTO_PARALLEL = 4, AUTO_MAX_WINDOW = 16 };
enum { MAX_SLOW_ROUNDS = 8 }; /* on end whose times are not believed */
enum { FITTED_USUAL = 8 };    /* rows of a fitted tree, before any is measured */

/* ---- the method ---- */

static bool is_llava(const struct pv_session *s)
{
    return s->model->vision && vision_config(s->model->vision)->kind == VISION_LLAVA;
}

/* What defaults of a method depend on. */
static struct method_setting setting_of(const struct pv_session *s)
{
    bool llava = is_llava(s);
    return (struct method_setting){ .has_draft = s->draft.model != NULL,
                                    .has_head = s->model->head != NULL,
                                    .lambda = llava ? 0.4 : 0.5,
                                    .positions = llava ? PV_POS_COMPACT : PV_POS_ORIGINAL };
}

/* Rows of videos, and the first row whose attention to them counts: of the last message, and after
 * the last video. */
static void list_video_rows(struct speculation *sp, struct pv_session *s)
{
    struct draft_side *d = &s->draft;
    int last = -1;
    d->n_rows = 0;
    for (int k = 0; k < s->line.n_spans; k++) {
        const struct media_span *span = &s->line.span[k];
        const struct media *m = &s->line.media[span->medium].m;
        last = span->row0 + m->n_rows - 1;
        for (int i = 0; m->video && i < m->n_units * m->unit_rows; i++)
            d->rows[d->n_rows++] = span->row0 + i;
    }
    sp->query0 = last + 1 > s->message0 ? last + 1 : s->message0;
    if (sp->query0 >= s->line.n)
        sp->query0 = s->line.n - 1;
}

/* Room for what the drafter sees, and for what says so. */
static enum pv_status reserve_sight(struct speculation *sp, struct pv_session *s,
                                    struct pv_error *err)
{
    struct draft_side *d = &s->draft;
    const struct pv_view_info *view = &view_find(sp->view)->info;
    bool own_tower =
        drafter_find(sp->method.drafter)->draft_media && d->encoder && !d->shared && view->pictures;
    enum pv_status st = own_tower ? draft_side_tower(s, !view->videos, err) : PV_OK;
    memset(d->scores, 0, (size_t)d->n_rows * sizeof *d->scores);
    if (!st && sp->by_layer)
        st = draft_side_scores(s, err);
    return st;
}

/* The trees that `auto` may choose: fitted ones where the drafter can grow them. */
static void open_policy(struct speculation *sp)
{
    bool fitted = drafter_find(sp->method.drafter)->fits_trees;
    if (!fitted || shape_fitted(&sp->tree, FITTED_TOTAL, FITTED_DEPTH, FITTED_WIDTH, NULL) != PV_OK)
        shape_static25(&sp->tree);
    policy_open(&sp->policy, fitted ? FITTED_USUAL : shape_rows(&sp->tree));
    if (fitted)
        policy_fit(&sp->policy);
}

/* Whether two sides at once are worth a trial: on devices of their own, or with threads to share.
 * On one GPU each fills the memory's time (7B with 0.5B and 72B with 7B: behind the serial one). */
static bool sides_have_room(const struct pv_session *s, const struct pv_method *m)
{
    const struct pv_model *target = s->model, *draft = s->draft.model;
    if (drafter_find(m->drafter)->runs == DRAFTER_RUNS_DRAFT && draft && draft->gpu != target->gpu)
        return true;
    return target->gpu < 0 && target->threads >= AUTO_PARALLEL;
}

/* What the prefill is to keep and measure for the drafter and its view. */
static void ask_prefill(struct speculation *sp, struct pv_session *s,
                        const struct drafter_kind *kind)
{
    const struct view *view = view_find(sp->view);
    int n_layers = decoder_config(s->model->dec)->n_layers;
    bool from_target = kind->target_media || (kind->draft_media && s->draft.shared);
    sp->layers = view_layers(sp->view, sp->method.layer, n_layers);
    sp->by_layer = kind->layer_scores;
    sp->guided = s->draft.n_rows > 0 && (sp->by_layer || view_wants_scores(sp->view));
    s->draft.keep_features = view->info.features || (from_target && view->info.pictures);
    if (kind->states)
        draft_side_want(&s->draft, s->model, s->line.n_spans > 0 && view->info.pictures);
    sp->aligned = sp->guided && !sp->by_layer && view->info.signal == PV_SIGNAL_ALIGNMENT;
    sp->early = sp->guided && !sp->by_layer && sp->method.schedule == PV_SCHEDULE_PARALLEL &&
                view->early && sp->layers < n_layers;
}

enum pv_status speculation_open(struct speculation *sp, struct pv_session *s,
                                const struct pv_gen_params *p, struct pv_error *err)
{
    const struct pv_method *m = &sp->method;
    struct method_setting setting = setting_of(s);
    const struct drafter_kind *kind;
    enum pv_status st;
    *sp = (struct speculation){ 0 };
    s->draft.keep_features = false;
    if (!p->method || p->method->drafter == PV_DRAFT_NONE)
        return PV_OK;
    if (!s->speculates)
        return fail(err, PV_E_ARG, "method '%s' in a session that was not opened for speculation",
                    p->method->name);
    sp->method = *p->method;
    method_fill(&sp->method, &setting);
    st = method_check(m, err);
    if (!st && method_test(m).simulate > 0 && (p->temperature > 0 || p->on_logits))
        st = fail(err, PV_E_ARG,
                  "simulated acceptance works at temperature 0 only, and shows no logits");
    if (st)
        return st;
    kind = drafter_find(m->drafter);
    sp->view = view_named(m->view);
    open_policy(sp);
    if (m->automatic && m->accept == PV_ACCEPT_EXACT && sides_have_room(s, m) &&
        kind->info.reads_prompt)
        policy_allow_parallel(&sp->policy, AUTO_MAX_WINDOW);
    st = method_shape(&sp->shape, m, err);
    if (!st)
        st = draft_side_drafter(s, m, &sp->drafter, err);
    if (!st && (p->temperature > 0 || s->observer.show))
        st = draft_side_drawing(s, m->accept == PV_ACCEPT_REJECTION, err);
    if (st)
        return st;
    draft_side_forget(&s->draft, &s->line);
    list_video_rows(sp, s);
    s->drafting = m->drafter;
    ask_prefill(sp, s, kind);
    st = reserve_sight(sp, s, err);
    if (!st)
        draft_side_fit(&s->draft, session_bytes_left(s));
    return st;
}

/* ---- guidance ---- */

int speculation_taps(const struct speculation *sp, struct pv_session *s, int n, const int *rows,
                     struct column_tap *tap)
{
    struct draft_side *d = &s->draft;
    int layers = sp->layers, n_taps = sp->by_layer ? layers : 1;
    for (int i = 0; i < n_taps; i++)
        tap[i] = (struct column_tap){
            .layer0 = sp->by_layer ? i : 0,
            .layer1 = sp->by_layer ? i + 1 : layers,
            .n_rows = n,
            .rows = rows,
            .n_keys = d->n_rows,
            .keys = d->rows,
            .over_keys = view_find(sp->view)->info.signal == PV_SIGNAL_VIDEO_ATTENTION,
            .sums =
                sp->by_layer ? d->layer_scores + (size_t)(layers + i) * (size_t)d->n_rows : d->sums,
        };
    return n_taps;
}

void speculation_add(const struct speculation *sp, struct pv_session *s, int n_taps)
{
    struct draft_side *d = &s->draft;
    size_t n = (size_t)d->n_rows;
    for (int t = 0; t < n_taps; t++) {
        float *to = sp->by_layer ? d->layer_scores + (size_t)t * n : d->scores;
        const float *from = sp->by_layer ? d->layer_scores + (size_t)(n_taps + t) * n : d->sums;
        for (size_t i = 0; i < n; i++)
            to[i] += from[i];
    }
}

/* ---- the drafter's prefill ---- */

/* Whom the prefill's progress is told. */
static bool tell_progress(void *user, int done, int total)
{
    const struct pv_gen_params *p = user;
    return !p->progress || p->progress(p->progress_user, PV_PHASE_DRAFT_PREFILL, done, total);
}

enum pv_status speculation_see(struct speculation *sp, struct pv_session *s, struct pv_error *err)
{
    double t0 = clock_now();
    enum pv_status st = draft_see(sp, s, err);
    double tower = session_take_tower(s); /* a view that wanted features may have run it */
    s->stats.vision_s += tower;
    t0 += tower;
    s->stats.view_s += clock_now() - t0;
    sp->seen = !st;
    return st;
}

static enum pv_status wake(struct speculation *sp, struct pv_session *s,
                           const struct pv_gen_params *p, struct pv_error *err)
{
    struct draft_reading reading = { .n = s->answer0,
                                     .next = s->line.next - s->n_answer,
                                     .go_on = tell_progress,
                                     .user = (void *)p };
    struct pv_error why = { 0 };
    double t0;
    enum pv_status st = sp->seen ? PV_OK : speculation_see(sp, s, err);
    if (st)
        return st;
    t0 = clock_now();
    st = draft_read(sp, s, &reading, &why);
    if (st == PV_E_DRAFTER) { /* no room for it now: the answer goes on without */
        sp->asleep = true;
        return PV_OK;
    }
    if (st)
        fail(err, st, "%s", why.text);
    trace_add(&s->trace, PV_SIDE_DRAFTER, "prefill", t0, reading.rows);
    s->stats.vision_s += reading.tower_s;
    s->stats.draft_prefill_s = reading.prefill_s;
    sp->awake = !st;
    return st;
}

enum pv_status speculation_begin(struct speculation *sp, struct pv_session *s,
                                 const struct pv_gen_params *p, struct pv_error *err)
{
    if (!sp->drafter || sp->method.automatic)
        return PV_OK;
    if (!sp->parallel)
        return wake(sp, s, p, err);
    if (!sp->seen) { /* the prefill did not show it */
        enum pv_status st = speculation_see(sp, s, err);
        if (st)
            return st;
        parallel_show(sp->parallel);
    }
    return PV_OK;
}

/* ---- rounds ---- */

/* scores [TREE_MAX]: log-probabilities of the rows, 0 where the drafter tells none. */
static enum pv_status propose(struct speculation *sp, struct pv_session *s,
                              const struct pv_gen_params *p, const struct sampling *how,
                              struct tree *tree, float *scores, struct pv_error *err)
{
    struct price price = price_now(&s->draft.book[sp->method.drafter]);
    int left = p->max_new_tokens - s->n_answer, room = s->line.context - s->line.n;
    struct draft_request req = { .answer = s->line.ids + s->answer0,
                                 .n_answer = s->n_answer,
                                 .position = (uint64_t)s->line.n,
                                 .how = how,
                                 .shape = &sp->shape,
                                 .tree = tree,
                                 .scores = scores,
                                 .price = &price,
                                 .most = left < room ? left : room,
                                 .target = &s->kv };
    struct pv_error why = { 0 };
    double t0 = clock_now();
    int64_t rows = sp->drafter->rows, slots = sp->drafter->slots;
    enum pv_status st;
    tree_begin(tree, s->line.ids[s->line.n - 1]);
    if (shape_rows(&sp->shape) > s->line.context - s->kv.len || req.most < 1)
        return PV_OK; /* no room to verify: the root alone */
    if (sp->method.accept == PV_ACCEPT_REJECTION && sp->shape.kind == SHAPE_CHAIN &&
        how->temperature > 0)
        req.q = s->draft_q;
    st = sp->drafter->propose(sp->drafter, &req, &why);
    if (st == PV_E_DRAFTER) {
        sp->asleep = true;
        tree_begin(tree, s->line.ids[s->line.n - 1]);
        st = PV_OK;
    }
    if (st)
        fail(err, st, "%s", why.text);
    s->stats.draft_s += clock_now() - t0;
    s->stats.draft_rows += sp->drafter->rows - rows;
    s->stats.draft_slots += sp->drafter->slots - slots;
    trace_add(&s->trace, PV_SIDE_DRAFTER, "draft", t0, tree->n - 1);
    return st;
}

/* What is wanted of each row: its likeliest token, the one that is drawn, or (drawn NULL) logits.
 */
static enum pv_status run_tree(struct pv_session *s, const struct tree *t, bool greedy,
                               const struct sampling *drawn, struct pv_error *err)
{
    int32_t pos[TREE_MAX][3];
    int all[TREE_MAX];
    bool chain = true;
    uint64_t position[TREE_MAX];
    struct step_choice choice = { .t = drawn ? drawn->temperature : 0,
                                  .drawn = s->tree_best,
                                  .position = position,
                                  .seed = drawn ? drawn->seed : 0 };
    struct step_seq seq = { .kv = &s->kv, .n = t->n };
    struct step step = { .n = t->n,
                         .ids = t->id,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = t->n,
                         .logit_rows = all,
                         .logits = greedy || drawn ? NULL : s->tree_logits,
                         .argmax = greedy ? s->tree_best : NULL,
                         .states = s->draft.step_states,
                         .choice = drawn ? &choice : NULL };
    for (int i = 0; i < t->n; i++) {
        all[i] = i;
        position[i] = (uint64_t)s->line.n + (uint64_t)t->depth[i];
        for (int a = 0; a < 3; a++)
            pos[i][a] = s->line.next - 1 + t->depth[i];
        chain = chain && t->parent[i] == i - 1;
    }
    seq.parent = chain ? NULL : t->parent;
    return s->target.base.run(&s->target.base, &step, err);
}

static void count_round(struct pv_session *s, const struct round *r)
{
    s->stats.passes++;
    s->stats.rounds++;
    s->stats.proposed += r->tree.n - 1;
    s->stats.accepted += r->verdict.n - 1;
    s->stats.rejections += !tree_is_leaf(&r->tree, r->verdict.path[r->verdict.n - 1]);
}

/* `auto` begins or ends the parallel schedule; a drafter that cannot is no reason to stop. */
static void choose_schedule(struct speculation *sp, struct pv_session *s,
                            const struct pv_gen_params *p)
{
    if (sp->choice.kind != POLICY_PARALLEL) {
        sp->asleep = parallel_close(&sp->parallel, NULL) != PV_OK;
        sp->awake = !sp->asleep;
    } else if (!sp->parallel && parallel_open(&sp->parallel, sp, s, p, true, NULL) != PV_OK) {
        policy_allow_parallel(&sp->policy, 0);
        sp->choice = (struct policy_choice){ POLICY_PLAIN, 0 };
    }
    if (!sp->awake)
        sp->choice = (struct policy_choice){ POLICY_PLAIN, 0 };
}

/* `auto`: what this round is to be. */
static enum pv_status choose_round(struct speculation *sp, struct pv_session *s,
                                   const struct pv_gen_params *p, struct pv_error *err)
{
    double t0 = clock_now();
    enum pv_status st = PV_OK;
    if (!sp->awake && !sp->asleep && s->n_answer >= AUTO_PATIENCE) {
        struct pv_error why = { 0 };
        st = wake(sp, s, p, &why);
        sp->wake_s = clock_now() - t0;
        if (st == PV_E_CANCELLED)
            return fail(err, st, "%s", why.text);
        /* A drafter that cannot is no reason to stop: the answer goes on without it. */
        sp->asleep = st != PV_OK;
        st = PV_OK;
    }
    sp->choice = (struct policy_choice){ POLICY_PLAIN, 0 };
    if (!st && sp->awake)
        sp->choice = policy_next(&sp->policy);
    if (!st && sp->awake && s->changer.change)
        s->changer.change(s->changer.user, &sp->choice);
    if (!st && sp->awake)
        choose_schedule(sp, s, p);
    if (sp->choice.kind == POLICY_TREE)
        sp->shape = sp->tree;
    else if (sp->choice.kind == POLICY_CHAIN)
        st = shape_chain(&sp->shape, sp->choice.window, err);
    return st;
}

bool speculation_drawn(const struct speculation *sp, uint64_t seed, uint64_t position, int row)
{
    return rng_uniform(seed ^ SIMULATE_SEED, position, (uint64_t)row) <
           method_test(&sp->method).simulate;
}

/* A drawn outcome: each token is accepted with the method's probability, first children first. */
static void simulate(const struct speculation *sp, const struct pv_session *s, struct round *r,
                     uint64_t seed, uint64_t position)
{
    struct verdict *v = &r->verdict;
    int at = 0;
    v->n = 1;
    v->path[0] = 0;
    for (int i = 1; i < r->tree.n; i++) {
        uint64_t here = position + (uint64_t)r->tree.depth[i];
        if (r->tree.parent[i] != at)
            continue;
        if (!speculation_drawn(sp, seed, here, i))
            continue;
        v->path[v->n++] = at = i;
    }
    v->next = s->tree_best[at];
}

enum pv_status speculation_verify(const struct speculation *sp, struct pv_session *s,
                                  const struct pv_gen_params *p, struct round *r,
                                  struct pv_error *err)
{
    struct sampling how = generate_sampling(p);
    int vocab = pv_model_vocab_size(s->model);
    bool drawn = sp->method.accept == PV_ACCEPT_EXACT && generate_draws_there(s, p);
    bool greedy = p->temperature == 0 && !s->observer.show;
    uint64_t position = (uint64_t)s->line.n;
    double t0 = clock_now();
    enum pv_status st = run_tree(s, &r->tree, greedy, drawn ? &how : NULL, err);
    if (st)
        return st;
    if (method_test(&sp->method).simulate > 0)
        simulate(sp, s, r, how.seed, position);
    else if (greedy || drawn)
        verify_greedy(&r->verdict, &r->tree, s->tree_best);
    else if (sp->method.accept == PV_ACCEPT_EXACT)
        verify_exact(&r->verdict, &r->tree, s->tree_logits, vocab, &how, position, s->candidates);
    else if (sp->shape.kind == SHAPE_CHAIN)
        verify_rejection_chain(&r->verdict, &r->tree, s->tree_logits, s->draft_q, vocab, &how,
                               position, s->verify_scratch, s->candidates);
    else
        verify_rejection_tree(&r->verdict, &r->tree, s->tree_logits, vocab, &how, position,
                              s->verify_scratch, s->candidates);
    s->stats.verify_s += clock_now() - t0;
    trace_add(&s->trace, PV_SIDE_MODEL, "verify", t0, r->tree.n);
    count_round(s, r);
    for (int i = 0; i < r->verdict.n && s->observer.show; i++)
        s->observer.show(s->observer.user, s->n_answer + i,
                         s->tree_logits + (size_t)r->verdict.path[i] * (size_t)vocab);
    return PV_OK;
}

uint64_t speculation_first_runs(const struct pv_session *s)
{
    struct device *dev[] = { s->model->dev, s->draft.model ? s->draft.model->dev : NULL };
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof dev / sizeof *dev; i++)
        if (dev[i] && dev[i]->ops->first_runs)
            n += dev[i]->ops->first_runs(dev[i]);
    return n;
}

bool speculation_believes(struct speculation *sp, const struct pv_session *s, uint64_t before)
{
    bool slow = speculation_first_runs(s) != before && sp->slow_rounds < MAX_SLOW_ROUNDS;
    sp->slow_rounds = slow ? sp->slow_rounds + 1 : 0;
    return !slow;
}

/* What `auto` and fitted trees learn of a serial round, and of its seconds if these are believed.
 */
static void learn_round(struct speculation *sp, struct pv_session *s, const struct round *r,
                        const float *scores, bool fitted, bool believed, double draft_s,
                        double verify_s)
{
    if (fitted && believed)
        price_learn(&s->draft.book[sp->method.drafter], &r->tree, scores, &r->verdict, draft_s,
                    verify_s);
    policy_learn(&sp->policy, sp->choice, r->tree.n,
                 fitted ? tree_deepest(&r->tree) : r->tree.n - 1, r->verdict.n - 1,
                 believed ? draft_s : 0, believed ? verify_s : 0);
}

/* A round in which the sides take turns. */
static enum pv_status serial_round(struct speculation *sp, struct pv_session *s,
                                   const struct pv_gen_params *p, struct round *r,
                                   struct pv_error *err)
{
    struct sampling how = generate_sampling(p);
    double draft_s = s->stats.draft_s, verify_s = s->stats.verify_s;
    uint64_t first_runs = speculation_first_runs(s);
    float scores[TREE_MAX] = { 0 };
    bool plain = sp->asleep || (sp->method.automatic && sp->choice.kind == POLICY_PLAIN);
    bool fitted = plain ? sp->policy.fitted : sp->shape.kind == SHAPE_FITTED;
    enum pv_status st = PV_OK;
    if (plain)
        tree_begin(&r->tree, s->line.ids[s->line.n - 1]);
    else
        st = propose(sp, s, p, &how, &r->tree, scores, err);
    if (!st)
        st = speculation_verify(sp, s, p, r, err);
    if (!st)
        learn_round(sp, s, r, scores, fitted, speculation_believes(sp, s, first_runs),
                    s->stats.draft_s - draft_s, s->stats.verify_s - verify_s);
    return st;
}

enum pv_status speculation_round(struct speculation *sp, struct pv_session *s,
                                 const struct pv_gen_params *p, struct round *r,
                                 struct pv_error *err)
{
    enum pv_status st = sp->method.automatic ? choose_round(sp, s, p, err) : PV_OK;
    if (st)
        return st;
    return sp->parallel ? parallel_round(sp->parallel, r, err) : serial_round(sp, s, p, r, err);
}
