/* Any files as the tokenizer of a Hugging Face directory: vocab.json with merges.txt, or
 * tokenizer.json, and the side files tokenizer_config.json, chat_template.json and
 * chat_template.jinja. What is accepted must also tokenize, come back, and write a chat. */
#include "format/vocab_hf.h"
#include "fuzz/bundle.h"
#include "fuzz/touch.h"
#include "fuzz/use_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    "tokenizer.json",     "vocab.json",          "merges.txt", "tokenizer_config.json",
    "chat_template.json", "chat_template.jinja", NULL
};

static bool is_id(const struct vocab *v, int32_t id)
{
    return id >= -1 && id < v->n_tokens;
}

static void check_vocab(const struct vocab *v)
{
    if (v->n_tokens < 1 || !is_id(v, v->eos) || !is_id(v, v->bos) || !is_id(v, v->pad))
        abort();
    for (int i = 0; i < v->n_tokens; i++)
        if (v->kind[i] > TOKEN_UNUSED || (v->kind[i] == TOKEN_UNUSED && v->token[i].len > 0) ||
            (v->token[i].len == 0 && (v->kind[i] == TOKEN_ADDED || v->kind[i] == TOKEN_CONTROL)))
            abort(); /* an added token without a spelling would be found everywhere */
    if (strlen(v->chat_template) > BUNDLE_MOST_BYTES)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "It's abab <e><t> 42\n\n caf\x65\xcc\x81 \xe4\xbd\xa0";
    struct vocab *v = NULL;
    struct tokenizer *t = NULL;
    struct pv_error err = { 0 };
    struct chat c;

    if (size > BUNDLE_MOST_BYTES)
        return 0;
    if (vocab_hf_open(&v, bundle_open(names, data, size), &err)) {
        must_say_why(&err);
        if (v)
            abort();
        return 0;
    }
    if (!v) /* no vocabulary in the directory */
        return 0;
    check_vocab(v);
    if (tokenizer_open(&t, v, &err)) {
        must_say_why(&err);
    } else {
        use_text(t, text, sizeof text - 1, true);
        use_text(t, text, sizeof text - 1, false);
        if (chat_init(&c, t, v, &err))
            must_say_why(&err);
        else
            use_chat(&c, t, text, sizeof text - 1);
    }
    tokenizer_close(&t);
    vocab_hf_close(&v);
    return 0;
}
