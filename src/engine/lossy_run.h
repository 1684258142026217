/* An answer of a model whose own video tokens are pruned (spec/lossy.h): a prefill in which fewer
 * and fewer rows continue through the layers, and decoding with a KV cache for each group of
 * layers, which holds only the rows that these layers kept. */
#ifndef PV_ENGINE_LOSSY_RUN_H
#define PV_ENGINE_LOSSY_RUN_H

#include "engine/session.h"

struct lossy_run;

/* For the next answer of the session, which its method asks to be lossy. */
enum pv_status lossy_open(struct lossy_run **out, struct pv_session *s,
                          const struct pv_gen_params *p, struct pv_error *err);
/* The whole prompt. Nothing is reused of it, and nothing of it can be: the rows are not those that
 * the model computes from the whole video. */
enum pv_status lossy_prefill(struct lossy_run *l, enum want want, struct pv_error *err);
/* One step over the last row of the timeline, a token of the answer. */
enum pv_status lossy_token(struct lossy_run *l, enum want want, struct pv_error *err);
void lossy_close(struct lossy_run **l);

#endif
