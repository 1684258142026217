/* One round of speculation, the model's part of it: a tree of proposed tokens is run, judged and,
 * as far as its tokens were told, committed. */
#ifndef PV_ENGINE_ROUND_H
#define PV_ENGINE_ROUND_H

#include "engine/speculation.h"

struct round {
    struct tree tree;
    struct verdict verdict;
};

/* Runs and judges r->tree, begun with the last token of the answer. */
enum pv_status round_verify(const struct speculation *sp, struct round *r, struct pv_error *err);
/* The first n rows of the accepted path become part of the cache. */
void round_commit(struct pv_session *s, const struct round *r, int n);
/* Simulated acceptance: whether the token of this row, to stand at `position`, is accepted. */
bool round_simulated(const struct speculation *sp, uint64_t position, int row);

/* Whether the times of a round tell how long such rounds take. Devices may need longer for steps
 * that are new to them: first_runs counts these, of both sides, and is asked before the round. Not
 * all rounds on end can be disbelieved, or nothing would ever be learnt. */
uint64_t round_first_runs(const struct pv_session *s);
bool round_believes(struct speculation *sp, uint64_t before);

#endif
