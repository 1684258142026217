/* The parallel schedule of one answer (PEARL; with their views HIPPO and ParallelVLM): the drafter
 * makes tokens on a thread of its own, ahead of the target, which verifies what was made before. */
#ifndef PV_ENGINE_PARALLEL_H
#define PV_ENGINE_PARALLEL_H

#include "engine/speculate.h"

struct parallel;

/* Divides the threads and starts the drafter's, which waits to be shown the prompt
 * (parallel_show); unless it has read it before (`read`). Borrows all of its arguments. */
enum pv_status parallel_open(struct parallel **out, struct speculation *sp, struct pv_session *s,
                             const struct pv_gen_params *p, bool read, struct pv_error *err);
/* What the drafter sees is chosen: it may read its prompt. Once. */
void parallel_show(struct parallel *pl);
/* One round: pending tokens are verified while more are made. Nothing is committed: as
 * speculation_round. */
enum pv_status parallel_round(struct parallel *pl, struct round *r, struct pv_error *err);
/* Ends the drafter's thread and notes in the session's stats what it did; *pl becomes NULL, which
 * it may be before. A failure of the drafter is this call's, unless `err` has another. */
enum pv_status parallel_close(struct parallel **pl, struct pv_error *err);

#endif
