/* Rows of media for a draft model without a tower: its vision adaptor computes them from the
 * target's rows (doc/speculation.md). Only rows that the drafter sees are computed, some hundreds
 * at a time. */
#ifndef PV_ENGINE_DRAFT_ADAPT_H
#define PV_ENGINE_DRAFT_ADAPT_H

#include "engine/speculation.h"

/* Room for them. Once for each session; later calls do nothing. */
enum pv_status draft_adapt_reserve(struct drafting *d, struct pv_error *err);
/* A prompt is about to be read: forget the rows of the last one. */
void draft_adapt_begin(struct drafting *d);
/* Rows [from, from + n) of the prompt, all of media and all visible -> out [n, the draft model's
 * media width]. `end`: rows of the prompt that the drafter reads. Rows that are asked for one after
 * the other in ascending order run together. */
enum pv_status draft_adapt_rows(struct pv_session *s, int from, int n, int end, float *out,
                                struct pv_error *err);

#endif
