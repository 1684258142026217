/* A prompt under construction: token ids, and plain text that is not yet tokenized.
 *
 * All text up to the next special token must be tokenized together: "user\n" followed by a message
 * that begins with a newline gives other tokens than the two parts by themselves. */
#ifndef PV_TEXT_PROMPT_H
#define PV_TEXT_PROMPT_H

#include "base/buf.h"
#include "text/tokenizer.h"

struct prompt {
    const struct tokenizer *t; /* borrowed */
    int32_t *ids;              /* owned */
    size_t n, cap;
    size_t limit;    /* most ids */
    struct buf text; /* not yet tokenized */
};

void prompt_init(struct prompt *p, const struct tokenizer *t, size_t limit);
void prompt_clear(struct prompt *p); /* frees */

/* Add plain text: no control token is recognised in it. */
enum pv_status prompt_text(struct prompt *p, const char *utf8, size_t len, struct pv_error *err);
/* Add one token, after tokenizing the text so far. */
enum pv_status prompt_token(struct prompt *p, int32_t id, struct pv_error *err);
/* Tokenize the text so far. */
enum pv_status prompt_flush(struct prompt *p, struct pv_error *err);
/* Keep the first n ids only; text that is not yet tokenized is dropped. */
void prompt_rewind(struct prompt *p, size_t n);

#endif
