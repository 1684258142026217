/* The serial schedule: drafter and model take turns. After the prefill the drafter reads the prompt
 * at once; with `auto` it reads when the answer turns out to be long enough (speculate.c). */
#include "engine/schedule.h"

#include "base/clock.h"
#include "engine/draft_read.h"

/* Between two rounds: the drafter may have to read the prompt again, up to the answer. */
static enum pv_status open_serial(struct speculation *sp, struct pv_error *err)
{
    double t0 = clock_now();
    enum pv_status st = PV_OK;
    if (sp->phase == DRAFT_SEEN) {
        st = draft_wake(sp, err);
        sp->wake_s += clock_now() - t0;
    }
    return st;
}

static enum pv_status prefill_done(struct speculation *sp, struct pv_error *err)
{
    return sp->method.automatic ? PV_OK : draft_wake(sp, err);
}

/* ---- rounds ---- */

/* scores [TREE_MAX]: log-probabilities of the rows, 0 where the drafter tells none. */
static enum pv_status propose(struct speculation *sp, struct tree *tree, float *scores,
                              struct pv_error *err)
{
    struct pv_session *s = sp->s;
    const struct pv_gen_params *p = sp->p;
    struct task_load load = task_load(s->task, s->draft.steps[sp->kind->runs].batch);
    struct price price =
        price_shared(&s->draft.book[sp->method.drafter], load.row_s, load.level_s, load.tokens_s);
    int left = p->max_new_tokens - s->answer.n, room = s->seq.line.context - s->seq.line.n;
    struct draft_request req = { .answer = s->seq.line.ids + s->seq.answer0,
                                 .n_answer = s->answer.n,
                                 .position = (uint64_t)s->seq.line.n,
                                 .how = &s->answer.how,
                                 .shape = &sp->shape,
                                 .tree = tree,
                                 .scores = scores,
                                 .price = &price,
                                 .most = left < room ? left : room,
                                 .target = &s->seq.kv };
    double t0 = clock_now();
    int64_t rows = sp->drafter->rows, slots = sp->drafter->slots;
    enum pv_status st;
    tree_begin(tree, s->seq.line.ids[s->seq.line.n - 1]);
    if (shape_rows(&sp->shape) > s->seq.line.context - s->seq.kv.len || req.most < 1)
        return PV_OK; /* no room to verify: the root alone */
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

/* What `auto` and fitted trees learn of a serial round, and of its seconds if these are believed.
 */
static void learn_round(struct speculation *sp, const struct round *r, const float *scores,
                        bool fitted, bool believed, double draft_s, double verify_s)
{
    if (fitted && believed)
        price_learn(&sp->s->draft.book[sp->method.drafter], &r->tree, scores, &r->verdict, draft_s,
                    verify_s);
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
    bool plain =
        sp->phase == DRAFT_FAILED || (sp->method.automatic && sp->choice.kind == POLICY_PLAIN);
    bool fitted = plain ? sp->policy.fitted : sp->shape.kind == SHAPE_FITTED;
    enum pv_status st = PV_OK;
    if (plain)
        tree_begin(&r->tree, s->seq.line.ids[s->seq.line.n - 1]);
    else
        st = propose(sp, &r->tree, scores, err);
    if (!st)
        st = round_verify(sp, r, err);
    if (!st)
        learn_round(sp, r, scores, fitted, round_believes(sp, first_runs),
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
