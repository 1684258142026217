/* What other files of the engine need of generation: how tokens are drawn, and how a prompt ends.
 */
#ifndef PV_ENGINE_GENERATE_H
#define PV_ENGINE_GENERATE_H

#include "engine/speculate.h"

/* One token of an answer, and the text that it completes (valid UTF-8, perhaps none). The last call
 * may bring text alone: id -1. */
struct answer_token {
    int32_t id;
    bool drafted; /* a drafter had proposed it */
    const char *text;
    size_t len;
};
/* False stops the answer: PV_E_CANCELLED. */
typedef bool answer_fn(void *user, const struct answer_token *token);

/* The answer to what was added to the session, as pv_generate; inside a task of the session. */
enum pv_status generate_answer(struct pv_session *s, const struct pv_gen_params *p,
                               answer_fn *on_token, void *user, struct pv_error *err);

/* How the caller wants tokens drawn. */
struct sampling generate_sampling(const struct pv_gen_params *p);
/* Whether they are drawn where the logits lie, on a GPU: filters need to see them. */
bool generate_draws_there(const struct pv_session *s, const struct pv_gen_params *p);
/* Append what the template puts before an answer, if the last thing added was a message. */
enum pv_status generate_ask(struct pv_session *s, const struct pv_gen_params *p,
                            struct pv_error *err);

#endif
