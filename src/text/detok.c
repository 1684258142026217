/* The streaming detokeniser. A token is bytes, and a character may be spread over tokens: what is
 * only the beginning of one is held back (at most three bytes) until the next token. */
#include "text/detok.h"

#include "base/utf8.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

void detok_init(struct detok *d, const struct tokenizer *t)
{
    *d = (struct detok){ .t = t };
}

static void put_byte(struct detok *d, char byte, struct buf *out)
{
    uint32_t cp;
    bool again;
    int size;

    d->held[d->n_held++] = byte;
    size = utf8_decode(d->held, (size_t)d->n_held, &cp);
    if (size < 0)
        return;
    if (size > 0) {
        buf_add(out, d->held, (size_t)d->n_held);
        d->n_held = 0;
        return;
    }
    /* What was held was a proper beginning, so it is this byte that does not fit; it may still
     * begin a character of its own. */
    buf_puts(out, replacement);
    again = d->n_held > 1;
    d->n_held = 0;
    if (again)
        put_byte(d, byte, out);
}

bool detok_push(struct detok *d, int32_t id, struct buf *out)
{
    enum token_kind kind = tokenizer_kind(d->t, id);
    const char *bytes;
    size_t len = 0;

    if (kind != TOKEN_NORMAL && kind != TOKEN_ADDED)
        return !out->failed;
    bytes = tokenizer_bytes(d->t, id, &len);
    for (size_t i = 0; i < len; i++)
        put_byte(d, bytes[i], out);
    return !out->failed;
}

bool detok_flush(struct detok *d, struct buf *out)
{
    if (d->n_held)
        buf_puts(out, replacement);
    d->n_held = 0;
    return !out->failed;
}
