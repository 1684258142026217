/* The model's part of one round of speculation: run a tree of proposed tokens, decide which are
 * accepted, and commit those that were emitted. */
#ifndef PV_ENGINE_ROUND_H
#define PV_ENGINE_ROUND_H

#include "engine/speculation.h"

struct round {
    struct tree tree;
    struct verdict verdict;
};

/* Runs and verifies r->tree, whose root is the last token of the answer. */
enum pv_status round_verify(const struct speculation *sp, struct round *r, struct pv_error *err);
/* The first n rows of the accepted path become part of the cache. */
void round_commit(struct pv_session *s, const struct round *r, int n);
/* Simulated acceptance: whether the token of this row, to stand at `position`, is accepted. */
bool round_simulated(const struct speculation *sp, uint64_t position, int row);

/* Whether the measured times of a round are representative. A device may need longer for steps that
 * are new to it: round_first_runs counts those of model and drafter; call it before the round and
 * pass the result to round_believes. After several rounds in succession that are not
 * representative, the next one is accepted anyway. */
uint64_t round_first_runs(const struct pv_session *s);
bool round_believes(struct speculation *sp, uint64_t before);

#endif
