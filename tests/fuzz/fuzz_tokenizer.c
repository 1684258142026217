/* tokenizer.json from strangers: whatever is accepted must also tokenize and come back. */
#include "format/vocab_hf.h"
#include "fuzz/use_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
        use_text(t, text, sizeof text - 1, true);
        use_text(t, (const char *)data, size < USE_MAX_TEXT ? size : USE_MAX_TEXT, false);
        chat_init(&c, t, v, NULL);
    }
    tokenizer_close(&t);
    vocab_hf_close(&v);
    return 0;
}
