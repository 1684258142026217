/* Runs the draft model's vision tower before the view has chosen which rows the drafter gets. */
#ifndef PV_ENGINE_DRAFT_AHEAD_H
#define PV_ENGINE_DRAFT_AHEAD_H

#include "engine/speculation.h"

/* Whether the draft model's own tower may run during the target's prefill: on a GPU, where each has
 * a stream. On a CPU the target uses all threads until its prefill has ended. */
bool draft_ahead_possible(const struct speculation *sp);

/* Starts the tower on a thread of its own if that is possible and there is no other request;
 * otherwise draft_wake runs it later. */
void draft_ahead_start(struct speculation *sp);
/* Waits until the tower has ended; with `stop` it ends as soon as possible. A failure is not
 * reported here: it comes up again when the rows are needed. */
void draft_ahead_join(struct speculation *sp, bool stop);

#endif
