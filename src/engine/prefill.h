/* The prefill: computes keys and values for the timeline, and measures the signal that the
 * drafter's view needs. */
#ifndef PV_ENGINE_PREFILL_H
#define PV_ENGINE_PREFILL_H

#include "engine/session.h"
#include "engine/view_signal.h"

/* One step over the last row of the timeline, a token of the answer. */
enum pv_status prefill_token(struct pv_session *s, const struct pv_gen_params *p, enum want want,
                             struct pv_error *err);
/* Compute the rows of the timeline from the end of the cache up to `len` again, which the cache has
 * held before, with the same bits. */
enum pv_status prefill_again(struct pv_session *s, int len, struct pv_error *err);
/* A function to call when the first layers of all rows are done. */
struct prefill_pause {
    enum pv_status (*run)(void *user, struct pv_error *err);
    void *user;
};
/* The whole prefill. If the view can be chosen early (signal->early), all rows pass the first
 * layers, then `pause` is called, and then the rows pass the other layers, with the same bits. If
 * `pause` is NULL or memory is missing for that, the prefill runs as a whole. */
enum pv_status prefill_run(struct pv_session *s, const struct pv_gen_params *p,
                           const struct view_signal *signal, enum want want,
                           const struct prefill_pause *pause, struct pv_error *err);

#endif
