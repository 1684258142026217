/* The rows of the tree are written after the committed part of the model's cache, and rows are
 * committed only when their tokens have been emitted. So, however the answer ends, the cache holds
 * the rows of emitted tokens only. */
#include "engine/round.h"

#include "base/clock.h"
#include "base/rng.h"
#include "spec/method_rules.h"

enum { SIMULATE_SEED = 0x73696d };
enum { MAX_SLOW_ROUNDS = 8 }; /* consecutive rounds whose times are treated as outliers */

/* ---- verifying ---- */

/* Run the tree. Each row gives its most likely token, a sampled token, or (drawn NULL) its logits.
 */
static enum pv_status run_tree(struct pv_session *s, const struct tree *t, bool greedy,
                               const struct sampling *drawn, struct pv_error *err)
{
    int32_t pos[TREE_MAX][3];
    int all[TREE_MAX];
    bool chain = true;
    uint64_t position[TREE_MAX];
    struct step_choice choice = { .t = drawn ? drawn->temperature : 0,
                                  .drawn = s->draft.tree_best,
                                  .position = position,
                                  .seed = drawn ? drawn->seed : 0 };
    struct hidden_tap taps[STATES_MAX_TAPS];
    struct step_seq seq = { .kv = &s->seq.kv, .n = t->n };
    struct step step = { .n = t->n,
                         .ids = t->id,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = t->n,
                         .logit_rows = all,
                         .logits = greedy || drawn ? NULL : s->draft.tree_logits,
                         .argmax = greedy ? s->draft.tree_best : NULL,
                         .choice = drawn ? &choice : NULL };
    for (int i = 0; i < t->n; i++) {
        all[i] = i;
        position[i] = (uint64_t)s->seq.line.n + (uint64_t)t->depth[i];
        for (int a = 0; a < 3; a++)
            pos[i][a] = s->seq.line.next - 1 + t->depth[i];
        chain = chain && t->parent[i] == i - 1;
    }
    seq.parent = chain ? NULL : t->parent;
    drafting_ask(&s->draft, &step, all, taps);
    return s->target.base.run(&s->target.base, &step, err);
}

static void count_round(struct pv_session *s, const struct round *r)
{
    s->answer.stats.rounds++;
    s->answer.stats.proposed += r->tree.n - 1;
    s->answer.stats.accepted += r->verdict.n - 1;
    s->answer.stats.rejections += !tree_is_leaf(&r->tree, r->verdict.path[r->verdict.n - 1]);
}

bool round_simulated(const struct speculation *sp, uint64_t position, int row)
{
    return rng_uniform(sp->s->answer.how.seed ^ SIMULATE_SEED, position, (uint64_t)row) <
           method_test(&sp->method).simulate;
}

/* Simulate the outcome: each token is accepted with the method's probability, first children first.
 */
static void simulate(const struct speculation *sp, struct round *r, uint64_t position)
{
    struct verdict *v = &r->verdict;
    int at = 0;
    v->n = 1;
    v->path[0] = 0;
    for (int i = 1; i < r->tree.n; i++) {
        uint64_t here = position + (uint64_t)r->tree.depth[i];
        if (r->tree.parent[i] != at)
            continue;
        if (!round_simulated(sp, here, i))
            continue;
        v->path[v->n++] = at = i;
    }
    v->next = sp->s->draft.tree_best[at];
}

enum pv_status round_verify(const struct speculation *sp, struct round *r, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    struct sampling how = s->answer.how;
    int vocab = pv_model_vocab_size(s->model);
    bool drawn = sp->method.accept == PV_ACCEPT_EXACT && s->answer.want == WANT_DRAWN;
    bool greedy = s->answer.want == WANT_ARGMAX;
    uint64_t position = (uint64_t)s->seq.line.n;
    double t0 = clock_now();
    enum pv_status st = run_tree(s, &r->tree, greedy, drawn ? &how : NULL, err);
    if (st)
        return st;
    if (method_test(&sp->method).simulate > 0)
        simulate(sp, r, position);
    else if (greedy || drawn)
        verify_greedy(&r->verdict, &r->tree, s->draft.tree_best);
    else if (sp->method.accept == PV_ACCEPT_EXACT)
        verify_exact(&r->verdict, &r->tree, s->draft.tree_logits, vocab, &how, position,
                     s->answer.candidates);
    else if (sp->shape.kind == SHAPE_CHAIN)
        verify_rejection_chain(&r->verdict, &r->tree, s->draft.tree_logits, s->draft.draft_q, vocab,
                               &how, position, s->draft.verify_scratch, s->answer.candidates);
    else
        verify_rejection_tree(&r->verdict, &r->tree, s->draft.tree_logits, vocab, &how, position,
                              s->draft.verify_scratch, s->answer.candidates);
    s->answer.stats.verify_s += clock_now() - t0;
    trace_add_verify(&s->answer.trace, t0, r->tree.n, r->verdict.n - 1);
    count_round(s, r);
    for (int i = 0; i < r->verdict.n && s->observer.show; i++)
        s->observer.show(s->observer.user, s->answer.n + i,
                         s->draft.tree_logits + (size_t)r->verdict.path[i] * (size_t)vocab);
    return PV_OK;
}

void round_commit(struct pv_session *s, const struct round *r, int n)
{
    drafting_decoded(&s->draft, s->seq.kv.len, r->verdict.path, n);
    sequence_commit(&s->seq, s->target.base.work, n, r->verdict.path, true);
}

/* ---- times ---- */

uint64_t round_first_runs(const struct pv_session *s)
{
    struct device *dev[] = { s->model->dev, s->draft.model ? s->draft.model->dev : NULL };
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof dev / sizeof *dev; i++)
        if (dev[i] && dev[i]->ops->first_runs)
            n += dev[i]->ops->first_runs(dev[i]);
    return n;
}

bool round_believes(struct speculation *sp, uint64_t before)
{
    bool slow = round_first_runs(sp->s) != before && sp->slow_rounds < MAX_SLOW_ROUNDS;
    sp->slow_rounds = slow ? sp->slow_rounds + 1 : 0;
    return !slow;
}
