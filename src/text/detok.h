/* Token ids to text, as they come: whole UTF-8 characters only. */
#ifndef PV_TEXT_DETOK_H
#define PV_TEXT_DETOK_H

#include "base/buf.h"
#include "text/tokenizer.h"

struct detok {
    const struct tokenizer *t; /* borrowed */
    char held[4];              /* the beginning of a character */
    int n_held;
};

void detok_init(struct detok *d, const struct tokenizer *t);

/* Append to `out` what the token completes; false when `out` has failed. Control tokens and ids
 * without a token add nothing. Bytes that cannot be UTF-8 become U+FFFD, one for each longest
 * beginning of a character. */
bool detok_push(struct detok *d, int32_t id, struct buf *out);
/* The end: a character still incomplete becomes U+FFFD. Ready for another text afterwards. */
bool detok_flush(struct detok *d, struct buf *out);

#endif
