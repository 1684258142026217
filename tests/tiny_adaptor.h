/* Random vision adaptors as GGUF files in the scratch directory, whole or with one thing wrong. */
#ifndef PV_TESTS_TINY_ADAPTOR_H
#define PV_TESTS_TINY_ADAPTOR_H

#include "tiny_model.h"

struct tiny_adaptor {
    int in, middle, out;
    int type; /* enum dtype, of the matrices */
    uint64_t seed;
    bool layer_norm, no_biases;
    float eps; /* 0: 1e-6 */
    /* What to do differently. */
    const char *drop;    /* leave this tensor or key out */
    const char *reshape; /* give this tensor one row (or element) more */
    const char *extra;   /* one more tensor */
    const char *arch;    /* NULL: that of an adaptor */
};

static inline void tiny_list_adaptor(struct tiny_list *l, const struct tiny_adaptor *a)
{
    enum dtype t = (enum dtype)a->type;
    l->n = 0;
    tiny_add(l, "", "adaptor.norm.weight", DTYPE_F32, 0, a->in, 1, 0.2f);
    if (a->layer_norm)
        tiny_add(l, "", "adaptor.norm.bias", DTYPE_F32, 0, a->in, 0, 0.2f);
    tiny_add(l, "", "adaptor.up.weight", t, a->middle, a->in, 0, 1.5f / sqrtf((float)a->in));
    if (!a->no_biases)
        tiny_add(l, "", "adaptor.up.bias", DTYPE_F32, 0, a->middle, 0, 0.3f);
    tiny_add(l, "", "adaptor.down.weight", t, a->out, a->middle, 0, 1 / sqrtf((float)a->middle));
    if (!a->no_biases)
        tiny_add(l, "", "adaptor.down.bias", DTYPE_F32, 0, a->out, 0, 0.3f);
    if (a->extra)
        tiny_add(l, "", a->extra, DTYPE_F32, 0, 8, 0, 1);
    tiny_spoil(l, a->reshape, a->drop);
}

static inline void tiny_adaptor_keys(struct gguf_writer *w, const void *adaptor)
{
    const struct tiny_adaptor *a = adaptor;
    const struct {
        const char *key;
        int value;
    } sizes[] = { { "prevue-adaptor.input_length", a->in },
                  { "prevue-adaptor.feed_forward_length", a->middle },
                  { "prevue-adaptor.output_length", a->out } };
    const char *arch = a->arch ? a->arch : "prevue-adaptor";
    gguf_writer_string(w, "general.architecture", arch, strlen(arch));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!a->drop || strcmp(a->drop, sizes[i].key) != 0)
            gguf_writer_u32(w, sizes[i].key, (uint32_t)sizes[i].value);
    gguf_writer_f32(w, "prevue-adaptor.layer_norm_epsilon", a->eps != 0 ? a->eps : 1e-6f);
    gguf_writer_string(w, "prevue-adaptor.target", "tiny\n", 5);
}

/* Write the adaptor, as tiny_write does. */
static inline const char *tiny_adaptor_write(const struct tiny_adaptor *a, const char *name,
                                             char path[256])
{
    static struct tiny_list l;
    const struct tiny_file f = { a, a->seed, &l, tiny_adaptor_keys, NULL, NULL };
    tiny_list_adaptor(&l, a);
    return tiny_write(&f, name, path);
}

#endif
