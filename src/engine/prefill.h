/* The prefill: the KV cache is made to hold the timeline, and what the drafter's view wants to know
 * of the prompt is noted on the way. */
#ifndef PV_ENGINE_PREFILL_H
#define PV_ENGINE_PREFILL_H

#include "engine/speculate.h"

/* What a step is to bring back of its last row. */
enum want { WANT_NOTHING, WANT_ARGMAX, WANT_DRAWN, WANT_LOGITS };

/* One step over the last row of the timeline, a token of the answer. */
enum pv_status prefill_token(struct pv_session *s, const struct pv_gen_params *p, enum want want,
                             struct pv_error *err);
/* Rows of the timeline behind the cache up to `len`, which it held before: as they went then. */
enum pv_status prefill_again(struct pv_session *s, int len, struct pv_error *err);
/* All of it. Where `sp` wants only the first layers looked at (sp->early), all rows go through
 * these first; then sp's view is chosen and `chosen` told, and the rows go through the rest: to the
 * same bits. Without memory for that, or without `chosen`, in one go. */
enum pv_status prefill_run(struct pv_session *s, const struct pv_gen_params *p,
                           struct speculation *sp, enum want want, void (*chosen)(void *user),
                           void *user, struct pv_error *err);

#endif
