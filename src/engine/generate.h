/* What other files of the engine need of generation: how tokens are drawn, and how a prompt ends.
 */
#ifndef PV_ENGINE_GENERATE_H
#define PV_ENGINE_GENERATE_H

#include "engine/speculate.h"

/* How the caller wants tokens drawn. */
struct sampling generate_sampling(const struct pv_gen_params *p);
/* Whether they are drawn where the logits lie, on a GPU: filters need to see them. */
bool generate_draws_there(const struct pv_session *s, const struct pv_gen_params *p);
/* Append what the template puts before an answer, if the last thing added was a message. */
enum pv_status generate_ask(struct pv_session *s, const struct pv_gen_params *p,
                            struct pv_error *err);

#endif
