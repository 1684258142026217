/* A prompt being written: token ids, and plain text not yet turned into ids.
 *
 * Text up to the next special token must be encoded in one go: "user\n" followed by a message that
 * begins with a newline has other tokens than the two parts have. */
#ifndef PV_TEXT_PROMPT_H
#define PV_TEXT_PROMPT_H

#include "base/buf.h"
#include "text/tokenizer.h"

struct prompt {
    const struct tokenizer *t; /* borrowed */
    int32_t *ids;              /* owned */
    size_t n, cap;
    size_t limit;    /* most ids there may be */
    struct buf text; /* waiting for prompt_flush */
};

void prompt_init(struct prompt *p, const struct tokenizer *t, size_t limit);
void prompt_clear(struct prompt *p); /* frees */

/* Add plain text: no control token is recognised in it. */
enum pv_status prompt_text(struct prompt *p, const char *utf8, size_t len, struct pv_error *err);
/* Add one token, after the text so far. */
enum pv_status prompt_token(struct prompt *p, int32_t id, struct pv_error *err);
/* Turn the text so far into ids. */
enum pv_status prompt_flush(struct prompt *p, struct pv_error *err);
/* Back to the first n ids; waiting text is dropped. */
void prompt_rewind(struct prompt *p, size_t n);

#endif
