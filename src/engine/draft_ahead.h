/* The drafter's vision tower before it is known which rows the drafter sees. */
#ifndef PV_ENGINE_DRAFT_AHEAD_H
#define PV_ENGINE_DRAFT_AHEAD_H

#include "engine/speculation.h"

/* Whether the draft model's own tower may run beside the target's prefill: on a GPU, where both
 * have a stream. The threads of a CPU are all the target's until its prefill has ended. */
bool draft_ahead_possible(const struct speculation *sp);

/* Runs it on a thread of its own from now on, where that is possible and there is no other request;
 * else draft_wake runs it. */
void draft_ahead_start(struct speculation *sp);
/* Until it has ended, or as soon as possible with `stop`. What failed is met again by whoever wants
 * its rows. */
void draft_ahead_join(struct speculation *sp, bool stop);

#endif
