/* The prefill: the KV cache is made to hold the timeline, and what the drafter's view wants to know
 * of the prompt is noted on the way. */
#ifndef PV_ENGINE_PREFILL_H
#define PV_ENGINE_PREFILL_H

#include "engine/session.h"
#include "engine/view_signal.h"

/* One step over the last row of the timeline, a token of the answer. */
enum pv_status prefill_token(struct pv_session *s, const struct pv_gen_params *p, enum want want,
                             struct pv_error *err);
/* Rows of the timeline behind the cache up to `len`, which it held before: as they went then. */
enum pv_status prefill_again(struct pv_session *s, int len, struct pv_error *err);
/* Something to do when the first layers of all rows are done. */
struct prefill_pause {
    enum pv_status (*run)(void *user, struct pv_error *err);
    void *user;
};
/* All of it. Where the view can be chosen early (signal->early) all rows go through the first
 * layers first; then `pause` runs, and the rows go through the rest: to the same bits. Without
 * memory for that, or without `pause`, in one go. */
enum pv_status prefill_run(struct pv_session *s, const struct pv_gen_params *p,
                           const struct view_signal *signal, enum want want,
                           const struct prefill_pause *pause, struct pv_error *err);

#endif
