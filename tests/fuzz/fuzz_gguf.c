/* Any bytes as a GGUF file: parse, read the vocabulary and the configuration, ask for values of
 * every type, and touch both ends of every tensor; as the file of a vision tower, with or without a
 * decoder in it; as a draft head; and as a vision adaptor. */
#include "base/mem.h"
#include "family/families.h"
#include "format/config_gguf.h"
#include "format/vision_config_gguf.h"
#include "format/vision_file.h"
#include "format/vocab_gguf.h"
#include "fuzz/touch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every getter on every key: those of another kind must refuse. */
static void read_values(const struct gguf *g)
{
    for (int i = 0; i < gguf_n_values(g); i++) {
        const struct gguf_value *v = gguf_value(g, i);
        char *key = mem_strndup(v->key.s, v->key.len);
        int32_t ints[4];
        float floats[3];
        int64_t n;
        double d;
        struct str str, *list = NULL;
        int count;

        if (!key || gguf_find(g, key) != v)
            abort();
        gguf_int(g, key, 0, 1 << 20, &n, NULL);
        gguf_float(g, key, &d, NULL);
        gguf_string(g, key, &str, NULL);
        gguf_ints(g, key, ints, 4, NULL);
        gguf_floats(g, key, floats, 3, NULL);
        gguf_strings(g, key, 1 << 20, &list, &count, NULL);
        mem_free(list);
        mem_free(key);
    }
}

/* The tower bound to a decoder that suits it. */
static void bind_tower(struct gguf *g, struct vocab *v)
{
    struct vision_config c;
    struct pv_error err = { 0 };
    struct model_file mf = { .path = (char[]){ "input" }, .gguf = g, .vocab = v };

    if (vision_config_gguf_parse(&c, g, v, NULL, families, &err)) {
        must_say_why(&err);
        return;
    }
    if (c.family == NULL || vision_config_check(&c, "input", NULL))
        abort();
    mf.config = (struct config){ .family = c.family, .hidden = c.out, .vocab = CONFIG_MAX_VOCAB };
    mf.config.n_deepstack = c.n_deepstack;
    if (!vision_file_open(&mf, NULL, 1 << 20, families, &err)) {
        touch_bound(&mf.vision_tensors, sizeof mf.vision_tensors);
        for (int i = 0; i < mf.vision.n_layers; i++)
            touch_bound(&mf.vision_layer[i], sizeof mf.vision_layer[i]);
    } else {
        must_say_why(&err);
    }
    vision_file_close(&mf);
}

static void open_head(const uint8_t *data, size_t size)
{
    struct head_file *hf = NULL;
    struct pv_error err = { 0 };

    if (head_file_open_memory(&hf, data, size, "input", &err))
        must_say_why(&err);
    else
        touch_head(hf);
    head_file_close(&hf);
}

static void open_adaptor(const uint8_t *data, size_t size)
{
    struct vision_adaptor_file *af = NULL;
    struct pv_error err = { 0 };

    if (vision_adaptor_file_open_memory(&af, data, size, "input", &err))
        must_say_why(&err);
    else
        touch_adaptor(af);
    vision_adaptor_file_close(&af);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct pv_error err = { 0 };
    struct config c;
    const char *why;

    if (gguf_open_memory(&g, data, size, "input", &err)) {
        must_say_why(&err);
        return 0;
    }
    read_values(g);
    touch_gguf(g);
    vocab_gguf_open(&v, g, &why, &err);
    config_gguf_parse(&c, g, v, families, &err);
    bind_tower(g, v);
    open_head(data, size);
    open_adaptor(data, size);
    vocab_gguf_close(&v);
    gguf_close(&g);
    return 0;
}
