/* How the tokens of an answer are chosen. */
#ifndef PV_ENGINE_ANSWER_STATE_H
#define PV_ENGINE_ANSWER_STATE_H

#include "engine/session.h"

/* What a step is to bring back of its last row. */
enum want { WANT_NOTHING, WANT_ARGMAX, WANT_DRAWN, WANT_LOGITS };

/* How the caller wants tokens drawn. */
struct sampling answer_sampling(const struct pv_gen_params *p);
/* Whether they are drawn where the logits lie, on a GPU: filters need to see them. */
bool answer_draws_there(const struct pv_session *s, const struct pv_gen_params *p);
/* What the last row of a step must bring back to choose a token. */
enum want answer_want(const struct pv_session *s, const struct pv_gen_params *p);

#endif
