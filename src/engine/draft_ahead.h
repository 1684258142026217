/* Runs the draft model's vision tower before the view has chosen which rows the drafter gets. */
#ifndef PV_ENGINE_DRAFT_AHEAD_H
#define PV_ENGINE_DRAFT_AHEAD_H

#include "engine/speculation.h"

/* Whether the draft model's own tower can run during the target's prefill: only on a GPU, where
 * each has its own stream. On a CPU the target uses all threads until its prefill has ended. */
bool draft_ahead_possible(const struct speculation *sp);

/* Start the tower on its own thread if that is possible and there is no other request; otherwise
 * draft_wake runs it later. */
void draft_ahead_start(struct speculation *sp);
/* Wait until the tower has ended; `stop`: make it end as soon as possible. A failure is not
 * reported here; it occurs again when the rows are needed. */
void draft_ahead_join(struct speculation *sp, bool stop);

#endif
