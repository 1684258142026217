/* Generation of an answer, token by token. */
#ifndef PV_ENGINE_GENERATE_H
#define PV_ENGINE_GENERATE_H

#include "engine/session_task.h"

/* One token of an answer, and the text that it completes (valid UTF-8, possibly empty). The last
 * call may carry text without a token: id -1. */
struct answer_token {
    int32_t id;
    bool drafted; /* a drafter had proposed it */
    const char *text;
    size_t len;
};
/* False stops the answer: PV_E_CANCELLED. */
typedef bool answer_fn(void *user, const struct answer_token *token);

/* Copy and complete a caller's parameters (NULL: the defaults) and their method. */
enum pv_status generate_read(struct pv_gen_params *own, struct pv_method *method,
                             const struct pv_gen_params *theirs, struct pv_error *err);

/* Generate an answer like pv_generate. Runs inside a task of the session. */
enum pv_status generate_answer(struct pv_session *s, const struct pv_gen_params *p,
                               answer_fn *on_token, void *user, struct pv_error *err);

/* Append what the template puts before an answer, if the last thing added was a message. */
enum pv_status generate_ask(struct pv_session *s, const struct pv_gen_params *p,
                            struct pv_error *err);

#endif
