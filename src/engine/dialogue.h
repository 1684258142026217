/* The text side of a session: messages to token ids with the chat template, and ids to text. A CORE
 * build has no tokenizer: opening returns NULL, and every use fails with that reason. */
#ifndef PV_ENGINE_DIALOGUE_H
#define PV_ENGINE_DIALOGUE_H

#include "engine/model.h"
#include "text/chat.h"

struct dialogue;

/* Ids to append to the timeline; owned by the dialogue, valid until its next call. */
struct id_span {
    const int32_t *ids;
    size_t n;
};

/* *out is NULL if the model has no tokenizer. */
enum pv_status dialogue_open(struct dialogue **out, const struct pv_model *m, size_t max_ids,
                             struct pv_error *err);
void dialogue_close(struct dialogue **d);

/* One message, its media before the text; `first`: the timeline is empty. */
enum pv_status dialogue_add(struct dialogue *d, bool first, const char *role,
                            const struct chat_media *media, int n_media, const char *utf8,
                            struct id_span *out, struct pv_error *err);
/* Set the options of the following answers; unchanged on failure. */
enum pv_status dialogue_set_options(struct dialogue *d, const struct pv_chat_options *o,
                                    struct pv_error *err);
/* The ids that the template puts before an answer, and after it. */
enum pv_status dialogue_ask(struct dialogue *d, struct id_span *out, struct pv_error *err);
enum pv_status dialogue_end(struct dialogue *d, struct id_span *out, struct pv_error *err);

/* The text that a token of the answer completes; `last`: the end of the answer, flush incomplete
 * characters instead. Owned by the dialogue, valid until the next call; NULL if out of memory. */
const char *dialogue_text(struct dialogue *d, int32_t id, bool last, size_t *len);

#endif
