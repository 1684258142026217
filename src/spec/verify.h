/* Decides which proposed tokens are emitted. No other file does.
 *
 * `exact`: a token is accepted when it is the one that plain decoding would have emitted there, so
 * the text cannot depend on the drafter. `rejection`: the papers' speculative sampling, which keeps
 * the distribution but not the text. */
#ifndef PV_SPEC_VERIFY_H
#define PV_SPEC_VERIFY_H

#include "lm/sampling.h"
#include "spec/tree.h"

struct verdict {
    int n;              /* rows accepted, the root included: at least 1 */
    int path[TREE_MAX]; /* those rows; path[0] is 0 */
    int32_t next;       /* the token after the last of them, which becomes the next root */
};

/* `best`: the target's most likely token after each row. */
void verify_greedy(struct verdict *v, const struct tree *t, const int32_t *best);
/* logits [t->n, vocab] of the target; `position` is that of the token after the root. */
void verify_exact(struct verdict *v, const struct tree *t, const float *logits, int vocab,
                  const struct sampling *how, uint64_t position, struct candidate *scratch);

/* Size of `scratch` below, in floats. */
size_t verify_scratch(int vocab);
/* A chain whose tokens were sampled from q [t->n - 1, vocab] (after temperature and filters): row i
 * + 1 from q[i]. The random numbers are functions of (seed, position). */
void verify_rejection_chain(struct verdict *v, const struct tree *t, const float *logits,
                            const float *q, int vocab, const struct sampling *how,
                            uint64_t position, float *scratch, struct candidate *candidates);
/* A tree of deterministic candidates, tried in the order of their rows. */
void verify_rejection_tree(struct verdict *v, const struct tree *t, const float *logits, int vocab,
                           const struct sampling *how, uint64_t position, float *scratch,
                           struct candidate *candidates);

#endif
