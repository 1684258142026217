/* tokenizer.json from strangers: whatever is accepted must also tokenize and come back. */
#include "base/buf.h"
#include "format/vocab_hf.h"
#include "text/chat.h"
#include "text/detok.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 2048 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tokenizer *t, const char *text, size_t len, bool special)
{
    static int32_t ids[MAX_TEXT];
    struct detok d;
    struct buf out;
    size_t n = 0;

    if (tokenizer_encode(t, text, len, special, ids, MAX_TEXT, &n, NULL))
        return;
    buf_init(&out, 1 << 20);
    detok_init(&d, t);
    for (size_t i = 0; i < n && i < MAX_TEXT; i++)
        detok_push(&d, ids[i], &out);
    detok_flush(&d, &out);
    buf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "It's abab <e><t> 42\n\n caf\x65\xcc\x81 \xe4\xbd\xa0\xf0\x9f\x98\x80";
    struct vocab *v = NULL;
    struct tokenizer *t = NULL;
    struct chat c;
    struct pv_error err = { 0 };

    if (vocab_hf_parse(&v, (const char *)data, size, "fuzz", &err)) {
        if (err.code == PV_OK || !err.text[0] || v)
            abort(); /* a failure without its sentence */
        return 0;
    }
    if (tokenizer_open(&t, v, &err) == PV_OK) {
        use(t, text, sizeof text - 1, true);
        use(t, (const char *)data, size < MAX_TEXT ? size : MAX_TEXT, false);
        chat_init(&c, t, v, NULL);
    }
    tokenizer_close(&t);
    vocab_hf_close(&v);
    return 0;
}
