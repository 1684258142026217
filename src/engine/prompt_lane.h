/* A second thread for steps of a decoder, with its own state: prompt rows run there in parallel
 * with the scheduler's steps. One batch of steps at a time. Used by the scheduler only. */
#ifndef PV_ENGINE_PROMPT_LANE_H
#define PV_ENGINE_PROMPT_LANE_H

#include "engine/batch.h"

struct lane;

/* Borrows its arguments. */
enum pv_status lane_open(struct lane **out, const struct decoder *dec, struct decoder_state *st,
                         struct kvpool *pool, struct pv_error *err);
/* Waits for the running batch. */
void lane_close(struct lane **l);

/* Most rows of a batch. */
int lane_rows(const struct lane *l);
/* Start a batch; the lane must be free. It borrows the parts until it is free again. */
void lane_begin(struct lane *l, struct batch_part *const *parts, int n);
/* Whether no batch is running; `wait`: wait until that is so. */
bool lane_free(struct lane *l, bool wait);
/* Statistics of the lane; may be called only while it is free. */
const struct batch *lane_batch(const struct lane *l);

#endif
