/* What other files of the engine need of generation: the prefill, and how tokens are drawn. */
#ifndef PV_ENGINE_GENERATE_H
#define PV_ENGINE_GENERATE_H

#include "engine/speculate.h"

/* How the caller wants tokens drawn. */
struct sampling generate_sampling(const struct pv_gen_params *p);
/* Append what the template puts before an answer, if the last thing added was a message. */
enum pv_status generate_ask(struct pv_session *s, const struct pv_gen_params *p,
                            struct pv_error *err);
/* Make the cache hold the timeline, guiding `sp`. */
enum pv_status generate_prefill(struct pv_session *s, const struct pv_gen_params *p,
                                const struct speculation *sp, struct pv_error *err);

#endif
