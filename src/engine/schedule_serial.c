/* The serial schedule: drafter and model take turns. After the prefill the drafter reads the prompt
 * at once; with `auto` it reads when the answer turns out to be long enough (speculate.c). */
#include "engine/schedule.h"

#include "base/clock.h"
#include "engine/draft_ahead.h"
#include "engine/draft_read.h"

/* Let the drafter read the prompt in the middle of the answer. */
static enum pv_status wake(struct speculation *sp, struct pv_error *err)
{
    double t0 = clock_now();
    enum pv_status s = draft_wake(sp, err);
    sp->wake_s += clock_now() - t0;
    return s;
}

/* Between two rounds: the drafter may have to read the prompt again, up to the answer. */
static enum pv_status open_serial(struct speculation *sp, struct pv_error *err)
{
    return sp->phase == DRAFT_HAS_VIEW ? wake(sp, err) : PV_OK;
}

/* With `auto` and a cheap drafter, whose trees are always fitted: while drafting does not pay, the
 * drafter is not even called. With rejection sampling, the text must not depend on measured times.
 */
static bool drafts_pay(const struct speculation *sp)
{
    return !sp->p->method->automatic || sp->shape.kind != SHAPE_FITTED ||
           sp->method.accept == PV_ACCEPT_REJECTION || price_pays(sp->book);
}

static enum pv_status prefill_done(struct speculation *sp, struct pv_error *err)
{
    draft_ahead_join(sp, false);
    return sp->method.automatic || !drafts_pay(sp) ? PV_OK : draft_wake(sp, err);
}

/* ---- rounds ---- */

/* The present costs of drafting. */
static struct price price_of(const struct speculation *sp)
{
    const struct pv_session *s = sp->s;
    struct task_load load = task_load(s->task, s->draft.steps[sp->kind->runs].batch);
    return price_shared(sp->book, load.row_s, load.level_s, load.tokens_s);
}

/* scores [TREE_MAX]: log-probabilities of the rows, 0 if the drafter reports none. */
static enum pv_status propose(struct speculation *sp, struct tree *tree, float *scores,
                              const struct price *price, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    const struct pv_gen_params *p = sp->p;
    int left = p->max_new_tokens - s->answer.n, room = s->seq.line.context - s->seq.line.n;
    struct draft_request req = { .answer = s->seq.line.ids + s->seq.answer0,
                                 .n_answer = s->answer.n,
                                 .position = (uint64_t)s->seq.line.n,
                                 .how = &s->answer.how,
                                 .shape = &sp->shape,
                                 .tree = tree,
                                 .scores = scores,
                                 .price = price,
                                 .most = left < room ? left : room,
                                 .target = &s->seq.kv };
    double t0 = clock_now();
    int64_t rows = sp->drafter->rows, slots = sp->drafter->slots;
    enum pv_status st;
    tree_begin(tree, s->seq.line.ids[s->seq.line.n - 1]);
    if (shape_rows(&sp->shape) > s->seq.line.context - s->seq.kv.len || req.most < 1)
        return PV_OK; /* no room to verify more than the root */
    if (sp->method.accept == PV_ACCEPT_REJECTION && sp->shape.kind == SHAPE_CHAIN &&
        s->answer.how.temperature > 0)
        req.q = s->draft.draft_q;
    st = sp->drafter->propose(sp->drafter, &req, err);
    s->answer.stats.draft_s += clock_now() - t0;
    s->answer.stats.draft_rows += sp->drafter->rows - rows;
    s->answer.stats.draft_slots += sp->drafter->slots - slots;
    trace_add(&s->answer.trace, PV_SIDE_DRAFTER, "draft", t0, tree->n - 1);
    return st;
}

/* Let `auto` and fitted trees learn from a serial round, and from its times unless they are
 * outliers. */
static void learn_round(struct speculation *sp, const struct round *r, const float *scores,
                        const struct price *paid, bool fitted, bool believed, double draft_s,
                        double verify_s)
{
    if (fitted && believed)
        price_learn(sp->book, &r->tree, scores, &r->verdict, paid, draft_s, verify_s);
    policy_learn(&sp->policy, sp->choice, r->tree.n,
                 fitted ? tree_deepest(&r->tree) : r->tree.n - 1, r->verdict.n - 1,
                 believed ? draft_s : 0, believed ? verify_s : 0);
}

static enum pv_status run_round(struct speculation *sp, struct round *r, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    double draft_s = s->answer.stats.draft_s, verify_s = s->answer.stats.verify_s;
    uint64_t first_runs = round_first_runs(s);
    float scores[TREE_MAX] = { 0 };
    bool plain = sp->phase == DRAFT_FAILED ||
                 (sp->method.automatic ? sp->choice.kind == POLICY_PLAIN : !drafts_pay(sp));
    bool fitted =
        plain && sp->method.automatic ? sp->policy.fitted : sp->shape.kind == SHAPE_FITTED;
    struct price price = { 0 };
    enum pv_status st = PV_OK;
    if (plain) {
        tree_begin(&r->tree, s->seq.line.ids[s->seq.line.n - 1]);
    } else {
        price = price_of(sp);
        if (sp->phase != DRAFT_AWAKE)
            st = wake(sp, err);
    }
    if (!plain && !st)
        st = propose(sp, &r->tree, scores, &price, err);
    if (!st)
        st = round_verify(sp, r, err);
    if (!st)
        learn_round(sp, r, scores, plain ? NULL : &price, fitted, round_believes(sp, first_runs),
                    s->answer.stats.draft_s - draft_s, s->answer.stats.verify_s - verify_s);
    return st;
}

static enum pv_status close_serial(struct speculation *sp, struct pv_error *err)
{
    (void)sp, (void)err;
    return PV_OK;
}

const struct schedule schedule_serial = { .name = "serial",
                                          .open = open_serial,
                                          .prefill_done = prefill_done,
                                          .round = run_round,
                                          .close = close_serial };
