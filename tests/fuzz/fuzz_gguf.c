/* Any bytes as a GGUF file: parse, read the vocabulary and the configuration, ask for values of
 * every type, and touch both ends of every tensor; as the file of a vision tower, with or without a
 * decoder in it; and as a draft head. */
#include "base/mem.h"
#include "family/families.h"
#include "format/config_gguf.h"
#include "format/gguf.h"
#include "format/head_file.h"
#include "format/vision_config_gguf.h"
#include "format/vision_file.h"
#include "format/vocab_gguf.h"
#include "tensor/quant.h"

#include <stdlib.h>
#include <string.h>

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

static void touch_tensors(const struct gguf *g)
{
    volatile uint8_t sink = 0;
    float row[DTYPE_BLOCK_MAX];

    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor(g, i);
        const uint8_t *p = t->data;
        int block = dtype_block(t->dtype);
        if (gguf_tensor_find(g, t->name) != t || t->size == 0)
            abort();
        sink ^= p[0] ^ p[t->size - 1];
        row_to_f32(row, p, t->dtype, block);
        row_is_finite(p + t->size - dtype_row_size(t->dtype, block), t->dtype, block);
    }
    (void)sink;
}

/* Both ends of the tensors in a struct of pointers to them. */
static void touch_bound(const void *tensors, size_t size)
{
    volatile uint8_t sink = 0;

    for (size_t at = 0; at < size; at += sizeof(void *)) {
        const struct tensor *t;
        memcpy(&t, (const char *)tensors + at, sizeof t);
        if (t && dtype_row_size(t->dtype, tensor_cols(t)) * (size_t)tensor_rows(t) != t->size)
            abort(); /* a view must be as large as its shape says */
        if (t)
            sink ^= ((const uint8_t *)t->data)[0] ^ ((const uint8_t *)t->data)[t->size - 1];
    }
    (void)sink;
}

/* The tower bound to a decoder that suits it. */
static void bind_tower(struct gguf *g, struct vocab *v)
{
    struct vision_config c;
    struct pv_error err = { 0 };
    struct model_file mf = { .path = (char[]){ "input" }, .gguf = g, .vocab = v };

    if (vision_config_gguf_parse(&c, g, v, NULL, families, &err)) {
        if (!err.text[0])
            abort();
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
    } else if (!err.text[0]) {
        abort();
    }
    vision_file_close(&mf);
}

/* The tokens that a head drafts are ids, each once: what is accepted indexes tables with them. */
static void touch_draft_ids(const struct head_file *hf)
{
    const int32_t *ids = head_file_draft_ids(hf);
    int n = ids ? head_file_config(hf)->draft_vocab : 0;

    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= CONFIG_MAX_VOCAB || (i > 0 && ids[i] == ids[i - 1]))
            abort();
}

static void open_head(const uint8_t *data, size_t size)
{
    struct head_file *hf = NULL;
    struct pv_error err = { 0 };

    if (!head_file_open_memory(&hf, data, size, "input", &err)) {
        touch_bound(head_file_tensors(hf), sizeof *head_file_tensors(hf));
        touch_draft_ids(hf);
    } else if (!err.text[0]) {
        abort();
    }
    head_file_close(&hf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct pv_error err = { 0 };
    struct config c;
    const char *why;

    if (gguf_open_memory(&g, data, size, "input", &err)) {
        if (!err.text[0])
            abort(); /* a failure must say why */
        return 0;
    }
    read_values(g);
    touch_tensors(g);
    vocab_gguf_open(&v, g, &why, &err);
    config_gguf_parse(&c, g, v, families, &err);
    bind_tower(g, v);
    open_head(data, size);
    vocab_gguf_close(&v);
    gguf_close(&g);
    return 0;
}
