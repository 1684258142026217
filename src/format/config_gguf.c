/* GGUF metadata to struct config. The architecture's name prefixes the keys and implies what no
 * key says: biases, q/k norms and how M-RoPE shares out the frequencies. Every number must be
 * there; the exceptions are attention.key_length (hidden / heads) and the stop tokens. */
#include "format/config_gguf.h"

#include "format/family.h"

#include <stdio.h>
#include <string.h>

/* GGUF files that are a part of a model, or belong to one. */
static const struct {
    const char *arch, *what, *model;
} parts[] = {
    { "clip", "vision tower (mmproj)", "with its decoder" },
    { "prevue-head", "draft head", "that it was made for" },
    { "prevue-adaptor", "vision adaptor", "that it was made for" },
};

static enum pv_status read_arch(struct config *c, const struct gguf *g,
                                const struct family *const *families, struct pv_error *err)
{
    struct str name;
    const struct family *f;
    enum pv_status s = gguf_string(g, "general.architecture", &name, err);

    if (s)
        return s;
    f = family_of_arch(families, &name);
    if (f) {
        c->family = f;
        c->mrope = f->decoder.mrope;
        c->qkv_bias = f->decoder.qkv_bias;
        c->qk_norm = f->decoder.qk_norm;
        snprintf(c->arch_name, sizeof c->arch_name, "%s", f->arch);
        return PV_OK;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (name.len == strlen(parts[i].arch) && !memcmp(name.s, parts[i].arch, name.len))
            return fail(err, PV_E_ARG, "%s: only a %s; the model is the file %s", gguf_path(g),
                        parts[i].what, parts[i].model);
    for (uint32_t i = 0; i < name.len; i++) /* it goes into a message */
        if (name.s[i] < ' ' || name.s[i] > '~')
            name.len = 0;
    return fail(err, PV_E_UNSUPPORTED, "%s: the architecture \"%.*s\" is not supported",
                gguf_path(g), name.len < 64 ? (int)name.len : 64, name.s);
}

struct key {
    char text[96];
};

static struct key arch_key(const struct config *c, const char *name)
{
    struct key k;
    snprintf(k.text, sizeof k.text, "%s.%s", c->arch_name, name);
    return k;
}

static enum pv_status read_counts(struct config *c, const struct gguf *g, struct pv_error *err)
{
    const struct {
        const char *key;
        int *out, max;
    } counts[] = {
        { "block_count", &c->n_layers, CONFIG_MAX_LAYERS },
        { "context_length", &c->max_context, CONFIG_MAX_CONTEXT },
        { "embedding_length", &c->hidden, CONFIG_MAX_HIDDEN },
        { "feed_forward_length", &c->ffn, CONFIG_MAX_FFN },
        { "attention.head_count", &c->n_heads, CONFIG_MAX_HEADS },
        { "attention.head_count_kv", &c->n_kv_heads, CONFIG_MAX_HEADS },
    };
    int64_t value = 0;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        enum pv_status s =
            gguf_int(g, arch_key(c, counts[i].key).text, 1, counts[i].max, &value, err);
        if (s)
            return s;
        *counts[i].out = (int)value;
    }
    return PV_OK;
}

/* Whether the used experts' weights are normalised: llama.cpp's files of these architectures do not
 * say it, and its decoder always does. */
static enum pv_status read_norm_used(struct config *c, const struct gguf *g, struct pv_error *err)
{
    struct key k = arch_key(c, "expert_weights_norm");
    const struct gguf_value *v = gguf_find(g, k.text);

    if (v && v->kind != GGUF_BOOL)
        return fail(err, PV_E_FORMAT, "%s: %s is not true or false", gguf_path(g), k.text);
    c->norm_used = !v || v->data[0];
    return PV_OK;
}

/* A layer is dense where the file has a dense layer's tensor for it. */
static enum pv_status read_experts(struct config *c, const struct gguf *g, struct pv_error *err)
{
    const struct {
        const char *key;
        int *out, max;
    } counts[] = {
        { "expert_count", &c->n_experts, CONFIG_MAX_EXPERTS },
        { "expert_used_count", &c->n_used, CONFIG_MAX_USED },
        { "expert_feed_forward_length", &c->expert_ffn, CONFIG_MAX_FFN },
    };
    char name[GGUF_MAX_NAME + 1];
    int64_t value = 0;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        enum pv_status s =
            gguf_int(g, arch_key(c, counts[i].key).text, 1, counts[i].max, &value, err);
        if (s)
            return s;
        *counts[i].out = (int)value;
    }
    for (int i = 0; i < c->n_layers; i++) {
        snprintf(name, sizeof name, "blk.%d.ffn_gate.weight", i);
        c->sparse[i] = !gguf_tensor_find(g, name);
    }
    return read_norm_used(c, g, err);
}

/* A key that may be missing but, where it is there, must equal head_dim. */
static enum pv_status check_dim(const struct config *c, const struct gguf *g, const char *name,
                                struct pv_error *err)
{
    struct key k = arch_key(c, name);
    int64_t value = 0;
    enum pv_status s;

    if (!gguf_find(g, k.text))
        return PV_OK;
    s = gguf_int(g, k.text, 1, INT32_MAX, &value, err);
    if (!s && value != c->head_dim)
        s = fail(err, PV_E_UNSUPPORTED, "%s: %s is %lld, but the head dimension is %d",
                 gguf_path(g), k.text, (long long)value, c->head_dim);
    return s;
}

static enum pv_status read_head_dim(struct config *c, const struct gguf *g, struct pv_error *err)
{
    struct key k = arch_key(c, "attention.key_length");
    int64_t value = 0;
    enum pv_status s = PV_OK;

    if (gguf_find(g, k.text))
        s = gguf_int(g, k.text, 1, CONFIG_MAX_HEAD_DIM, &value, err);
    else if (c->hidden % c->n_heads)
        s = fail(err, PV_E_FORMAT,
                 "%s: %s is missing, and %d heads do not divide the hidden size %d", gguf_path(g),
                 k.text, c->n_heads, c->hidden);
    else
        value = c->hidden / c->n_heads;
    c->head_dim = (int)value;
    if (!s)
        s = check_dim(c, g, "attention.value_length", err);
    if (!s)
        s = check_dim(c, g, "rope.dimension_count", err);
    return s;
}

static enum pv_status read_rope(struct config *c, const struct gguf *g, struct pv_error *err)
{
    struct key scaling = arch_key(c, "rope.scaling.type");
    struct str type = { "none", 4 };
    int32_t sections[4] = { 0 };
    double theta = 0, eps = 0;
    enum pv_status s = gguf_float(g, arch_key(c, "rope.freq_base").text, &theta, err);

    if (!s)
        s = gguf_float(g, arch_key(c, "attention.layer_norm_rms_epsilon").text, &eps, err);
    if (!s && gguf_find(g, scaling.text))
        s = gguf_string(g, scaling.text, &type, err);
    if (!s && (type.len != 4 || memcmp(type.s, "none", 4)))
        s = fail(err, PV_E_UNSUPPORTED, "%s: %s is not \"none\", and scaled rope is not supported",
                 gguf_path(g), scaling.text);
    if (!s && c->mrope != MROPE_NONE)
        s = gguf_ints(g, arch_key(c, "rope.dimension_sections").text, sections, 4, err);
    if (!s && sections[3] != 0)
        s = fail(err, PV_E_UNSUPPORTED, "%s: the fourth M-RoPE section is %d, not 0", gguf_path(g),
                 (int)sections[3]);
    if (s)
        return s;
    c->rope_theta = (float)theta;
    c->rms_eps = (float)eps;
    for (int i = 0; i < 3; i++)
        c->mrope_section[i] = sections[i];
    return PV_OK;
}

/* Only files of models that see have the key, and not all: without it nothing is added. */
static enum pv_status read_deepstack(struct config *c, const struct gguf *g, struct pv_error *err)
{
    struct key k = arch_key(c, "n_deepstack_layers");
    int64_t value = 0;
    enum pv_status s = PV_OK;

    if (c->mrope == MROPE_INTERLEAVED && gguf_find(g, k.text))
        s = gguf_int(g, k.text, 0, CONFIG_MAX_DEEPSTACK, &value, err);
    c->n_deepstack = (int)value;
    return s;
}

/* The end of a turn and of a text: named by the file, or spelled as Qwen spells them. */
static enum pv_status read_stops(struct config *c, const struct gguf *g, const struct vocab *v,
                                 struct pv_error *err)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id" };

    for (int i = 0; i < 2; i++) {
        int64_t id = -1;
        enum pv_status s = PV_OK;
        if (gguf_find(g, keys[i]))
            s = gguf_int(g, keys[i], 0, c->vocab - 1, &id, err);
        if (s)
            return s;
        config_add_stop(c, id);
    }
    config_add_spelled_stops(c, v);
    return PV_OK;
}

enum pv_status config_gguf_parse(struct config *out, const struct gguf *g, const struct vocab *v,
                                 const struct family *const *families, struct pv_error *err)
{
    struct config c = { 0 };
    const struct tensor *embed = gguf_tensor_find(g, "token_embd.weight");
    enum pv_status s = read_arch(&c, g, families, err);

    if (!s && (!embed || embed->n_dims != 2 || embed->dim[0] > CONFIG_MAX_VOCAB))
        s = fail(err, PV_E_FORMAT, "%s: the tensor token_embd.weight is missing or not a table",
                 gguf_path(g));
    if (s)
        return s;
    c.vocab = (int)embed->dim[0];
    c.tied = !gguf_tensor_find(g, "output.weight");
    s = read_counts(&c, g, err);
    if (!s && c.family->decoder.experts != EXPERTS_NONE)
        s = read_experts(&c, g, err);
    if (!s)
        s = read_head_dim(&c, g, err);
    if (!s)
        s = read_rope(&c, g, err);
    if (!s)
        s = read_deepstack(&c, g, err);
    if (!s)
        s = read_stops(&c, g, v, err);
    if (!s && v && v->n_tokens > c.vocab)
        s = fail(err, PV_E_FORMAT, "%s: %d tokens, but token_embd.weight has %d rows", gguf_path(g),
                 v->n_tokens, c.vocab);
    if (!s)
        s = config_check(&c, gguf_path(g), err);
    if (!s)
        *out = c;
    return s;
}
