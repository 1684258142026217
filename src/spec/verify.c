/* The verdict on a proposal. Exact: from the root on, the token that plain decoding emits there
 * says which child is next, until no child has it. Rejection is speculative sampling, in two forms.
 * Chain (Leviathan et al., Chen et al.): x drawn from q is accepted with probability
 * min(1, p(x) / q(x)); a rejection is replaced by a draw from max(0, p - q), normalised. Tree
 * (as EAGLE-2 does it): the children of a node are given, not drawn, so each is proposed with
 * certainty: x is accepted with probability p(x), and a rejection takes x out of p. Both leave the
 * next token with the distribution p whatever was proposed.
 *
 * The comparison is strict, so that a token of probability 0 is never accepted. Random numbers are
 * functions of (seed, position of the token decided, purpose): a position is decided once, by one
 * acceptance draw a sibling and at most one draw of a token. Purposes lie above every token id,
 * whose numbers are the noise that drafters draw with, so the proposal and its judgement are
 * independent. */
#include "spec/verify.h"

#include "base/rng.h"

#include <assert.h>

static const uint64_t purpose_accept = (uint64_t)1 << 32; /* plus the number of the sibling */
static const uint64_t purpose_draw = (uint64_t)2 << 32;

static void begin(struct verdict *v)
{
    v->n = 1;
    v->path[0] = 0;
}

static int last(const struct verdict *v)
{
    return v->path[v->n - 1];
}

/* Go on to the child of the last row that has this token. False: there is none, and the token is
 * the one to be emitted after it. */
static bool follow(struct verdict *v, const struct tree *t, int32_t id)
{
    int child = tree_child(t, last(v), id);
    if (child < 0) {
        v->next = id;
        return false;
    }
    v->path[v->n++] = child;
    return true;
}

void verify_greedy(struct verdict *v, const struct tree *t, const int32_t *best)
{
    begin(v);
    while (follow(v, t, best[last(v)]))
        ;
}

void verify_exact(struct verdict *v, const struct tree *t, const float *logits, int vocab,
                  const struct sampling *how, uint64_t position, struct candidate *scratch)
{
    int32_t id;
    begin(v);
    do {
        const float *row = logits + (size_t)last(v) * (size_t)vocab;
        id = sample_token(row, vocab, how, position + (uint64_t)v->n - 1, scratch);
    } while (follow(v, t, id));
}

/* ---- rejection ---- */

/* What the rules have in common: the target's distribution after the last accepted row. */
struct judge {
    const float *logits;
    int vocab;
    const struct sampling *how;
    uint64_t position; /* of the token after the root */
    float *p;          /* [vocab] */
    struct candidate *candidates;
};

static void judge_row(const struct judge *j, const struct verdict *v)
{
    sample_distribution(j->logits + (size_t)last(v) * (size_t)j->vocab, j->vocab, j->how, j->p,
                        j->candidates);
}

static double uniform(const struct judge *j, const struct verdict *v, uint64_t purpose)
{
    return rng_uniform(j->how->seed, j->position + (uint64_t)v->n - 1, purpose);
}

/* A drafter's vocabulary may be wider than the target's. */
static float weight(const float *p, int vocab, int32_t id)
{
    return id >= 0 && id < vocab ? p[id] : 0;
}

static double sum(const float *p, int n)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += p[i];
    return total;
}

/* The token after the last accepted row, drawn from what is left of p by its cumulative sum in the
 * order of ids. Rounding may leave nothing though a token was rejected: then from the whole of p,
 * which is what the rule tends to there. */
static int32_t draw(const struct judge *j, const struct verdict *v)
{
    double total = sum(j->p, j->vocab), goal, reached = 0;
    int32_t id = 0;
    if (!(total > 0)) {
        judge_row(j, v);
        total = sum(j->p, j->vocab);
    }
    goal = uniform(j, v, purpose_draw) * total;
    for (int i = 0; i < j->vocab && reached <= goal; i++)
        if (j->p[i] > 0) {
            reached += j->p[i];
            id = i;
        }
    return id;
}

size_t verify_scratch(int vocab)
{
    return (size_t)vocab;
}

void verify_rejection_chain(struct verdict *v, const struct tree *t, const float *logits,
                            const float *q, int vocab, const struct sampling *how,
                            uint64_t position, float *scratch, struct candidate *candidates)
{
    struct judge j = { logits, vocab, how, position, scratch, candidates };
    begin(v);
    judge_row(&j, v);
    while (v->n < t->n) {
        const float *q_row = q + (size_t)(v->n - 1) * (size_t)vocab;
        int32_t id = t->id[v->n];
        assert(t->parent[v->n] == v->n - 1);
        /* u < p / q without the division: a q of 0 needs no case of its own. */
        if (!(uniform(&j, v, purpose_accept) * weight(q_row, vocab, id) < weight(j.p, vocab, id))) {
            for (int i = 0; i < vocab; i++)
                j.p[i] = j.p[i] > q_row[i] ? j.p[i] - q_row[i] : 0;
            break;
        }
        v->path[v->n] = v->n;
        v->n++;
        judge_row(&j, v);
    }
    v->next = draw(&j, v);
}

/* The accepted child of the last row; -1: none, and all of them are taken out of p. */
static int accept_child(const struct judge *j, const struct verdict *v, const struct tree *t)
{
    double total = sum(j->p, j->vocab);
    uint64_t sibling = 0;
    for (int row = last(v) + 1; row < t->n; row++) {
        float share;
        if (t->parent[row] != last(v))
            continue;
        share = weight(j->p, j->vocab, t->id[row]);
        if (uniform(j, v, purpose_accept + sibling++) * total < share)
            return row;
        if (share > 0) {
            /* Summed afresh, not total - share: the last token with any weight then has exactly
             * the total, and is accepted. */
            j->p[t->id[row]] = 0;
            total = sum(j->p, j->vocab);
        }
    }
    return -1;
}

void verify_rejection_tree(struct verdict *v, const struct tree *t, const float *logits, int vocab,
                           const struct sampling *how, uint64_t position, float *scratch,
                           struct candidate *candidates)
{
    struct judge j = { logits, vocab, how, position, scratch, candidates };
    begin(v);
    for (;;) {
        int row;
        judge_row(&j, v);
        row = accept_child(&j, v, t);
        if (row < 0)
            break;
        v->path[v->n++] = row;
    }
    v->next = draw(&j, v);
}
