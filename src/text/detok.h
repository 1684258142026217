/* Turns a stream of token ids into text, in whole UTF-8 characters. */
#ifndef PV_TEXT_DETOK_H
#define PV_TEXT_DETOK_H

#include "base/buf.h"
#include "text/tokenizer.h"

struct detok {
    const struct tokenizer *t; /* borrowed */
    char held[4];              /* an incomplete character */
    int n_held;
};

void detok_init(struct detok *d, const struct tokenizer *t);

/* Append the text that the token completes to `out`; false if `out` has failed. Control tokens and
 * unknown ids add nothing. Invalid bytes become U+FFFD, one per maximal prefix of a character, as
 * the Unicode standard recommends. */
bool detok_push(struct detok *d, int32_t id, struct buf *out);
/* End the text: an incomplete character becomes U+FFFD. The object can then be used again. */
bool detok_flush(struct detok *d, struct buf *out);

#endif
