/* A tokenizer and a chat template put to use. */
#ifndef PV_TESTS_FUZZ_USE_TEXT_H
#define PV_TESTS_FUZZ_USE_TEXT_H

#include "base/buf.h"
#include "text/chat.h"
#include "text/detok.h"

#include <stdlib.h>
#include <string.h>

enum { USE_MAX_TEXT = 2048 };

/* To ids and back to text. */
static inline void use_text(const struct tokenizer *t, const char *text, size_t len, bool special)
{
    static int32_t ids[USE_MAX_TEXT];
    struct detok d;
    struct buf out;
    size_t n = 0;

    if (tokenizer_encode(t, text, len, special, ids, USE_MAX_TEXT, &n, NULL))
        return;
    buf_init(&out, 1 << 20);
    detok_init(&d, t);
    for (size_t i = 0; i < n && i < USE_MAX_TEXT; i++)
        detok_push(&d, ids[i], &out);
    detok_flush(&d, &out);
    buf_clear(&out);
}

/* One question, and what comes before and after its answer. */
static inline void use_chat(const struct chat *c, const struct tokenizer *t, const char *text,
                            size_t len)
{
    struct prompt p;
    struct pv_error err = { 0 };

    prompt_init(&p, t, USE_MAX_TEXT);
    if (chat_add_media(c, &p, true, "user", NULL, 0, text, len, &err) ||
        chat_ask(c, &p, true, &err) || chat_end(c, &p, &err)) {
        if (!err.text[0])
            abort();
    } else if (c->kind != CHAT_NONE && p.n == 0) {
        abort();
    }
    prompt_clear(&p);
}

#endif
