/* The words of a session: messages to ids by the chat template, ids back to text. In a CORE build
 * there is no tokenizer: opening gives NULL and every use says so. */
#ifndef PV_ENGINE_DIALOGUE_H
#define PV_ENGINE_DIALOGUE_H

#include "engine/model.h"
#include "text/chat.h"

struct dialogue;

/* Ids to append to the timeline; memory of the dialogue, until its next call. */
struct id_span {
    const int32_t *ids;
    size_t n;
};

/* *out is NULL when the model has no tokenizer. */
enum pv_status dialogue_open(struct dialogue **out, const struct pv_model *m, size_t max_ids,
                             struct pv_error *err);
void dialogue_close(struct dialogue **d);

/* One message, its media before the text; `first`: the timeline is empty. */
enum pv_status dialogue_add(struct dialogue *d, bool first, const char *role,
                            const struct chat_media *media, int n_media, const char *utf8,
                            struct id_span *out, struct pv_error *err);
/* For what comes before the answers from now on; unchanged on failure. */
enum pv_status dialogue_set_options(struct dialogue *d, const struct pv_chat_options *o,
                                    struct pv_error *err);
/* What comes before an answer, and after it. */
enum pv_status dialogue_ask(struct dialogue *d, struct id_span *out, struct pv_error *err);
enum pv_status dialogue_end(struct dialogue *d, struct id_span *out, struct pv_error *err);

/* The text that a token of the answer completes; `last`: flush what is held back instead. The
 * bytes are the dialogue's until the next call; NULL when there is no memory for them. */
const char *dialogue_text(struct dialogue *d, int32_t id, bool last, size_t *len);

#endif
