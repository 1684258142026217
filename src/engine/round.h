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

/* Whether the measured times of a round are representative. Devices may need longer for steps that
 * are new to them: first_runs counts these, of model and drafter, and is called before the round.
 * After some rounds in a row that are not, the next one counts anyway. */
uint64_t round_first_runs(const struct pv_session *s);
bool round_believes(struct speculation *sp, uint64_t before);

#endif
