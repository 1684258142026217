/* config.json to struct config. Three layouts are in circulation: everything on the top level
 * (Qwen2, Qwen3, the hub's Qwen2.5-VL), the decoder in "text_config" (Qwen3-VL, llava-hf), and
 * the newer "rope_parameters" in place of "rope_theta" and "rope_scaling".
 *
 * A missing key is an error, because the defaults of the reference's classes are not the values
 * of the checkpoints. The exceptions: head_dim of the Qwen2 family is hidden / heads;
 * tie_word_embeddings where missing is false, and true where either level says so (releases
 * differ in which level counts); rms_norm_eps (1e-6) and max_position_embeddings (32768) in the
 * text_config of a family whose decoder is another family's (LLaVA-OneVision), whose published
 * files leave out of it what equals the class's own value; stop tokens may be missing, and those
 * beyond the vocabulary are dropped, since cut-down models keep the family's ids. Features that
 * would change the result and that the decoder does not have (scaled rope, sliding windows, packed
 * weights) are refused. */
#include "format/config_hf.h"

#include "base/file.h"
#include "base/mem.h"
#include "format/config_experts_hf.h"
#include "format/family.h"
#include "format/json_hf.h"

#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX_FILE = 16 << 20 };

/* One parse: the two levels of the file and its name for messages. */
struct source {
    const json_t *root, *text;
    const char *name;
    const struct family *const *families;
    bool lenient; /* members that equal the reference's own values may be missing */
};

/* A tower in front of a decoder of another family has that family's decoder. */
static enum pv_status read_family(struct config *c, const struct source *src, struct pv_error *err)
{
    const char *type = json_hf_text(src->root, "model_type");
    const struct family_reader r = { json_hf_has_sign, src->root };
    const struct family *f = family_of_type(src->families, type, &r);
    char shown[64];

    if (f && f->by_text) {
        type = json_hf_text(src->text, "model_type");
        f = family_of_type(src->families, type, &r);
    }
    if (f && f->refused)
        return fail(err, PV_E_UNSUPPORTED, "%s: this is %s, which prevue does not run", src->name,
                    f->title);
    if (f && !f->by_text) {
        c->family = f;
        c->mrope = f->decoder.mrope;
        c->qkv_bias = f->decoder.qkv_bias;
        c->qk_norm = f->decoder.qk_norm;
        snprintf(c->arch_name, sizeof c->arch_name, "%s", type);
        return PV_OK;
    }
    snprintf(shown, sizeof shown, "%s", type);
    for (char *p = shown; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    return fail(err, PV_E_UNSUPPORTED, "%s: the model_type \"%s\" is not supported", src->name,
                shown);
}

static enum pv_status read_counts(struct config *c, const struct source *src, struct pv_error *err)
{
    const struct {
        const char *key;
        int *out, max, own; /* own: the reference's; 0: it must be there */
    } counts[] = {
        { "hidden_size", &c->hidden, CONFIG_MAX_HIDDEN, 0 },
        { "num_hidden_layers", &c->n_layers, CONFIG_MAX_LAYERS, 0 },
        { "num_attention_heads", &c->n_heads, CONFIG_MAX_HEADS, 0 },
        { "num_key_value_heads", &c->n_kv_heads, CONFIG_MAX_HEADS, 0 },
        { "intermediate_size", &c->ffn, CONFIG_MAX_FFN, 0 },
        { "vocab_size", &c->vocab, CONFIG_MAX_VOCAB, 0 },
        { "max_position_embeddings", &c->max_context, CONFIG_MAX_CONTEXT, 32768 },
    };
    int64_t value = 0;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        bool missing = src->lenient && !json_hf_member(src->text, counts[i].key);
        enum pv_status s = PV_OK;
        if (missing && counts[i].own)
            value = counts[i].own;
        else
            s = json_hf_int(src->text, counts[i].key, 1, counts[i].max, &value, src->name, err);
        if (s)
            return s;
        *counts[i].out = (int)value;
    }
    if (json_hf_member(src->text, "head_dim") || c->qk_norm) {
        enum pv_status s =
            json_hf_int(src->text, "head_dim", 1, CONFIG_MAX_HEAD_DIM, &value, src->name, err);
        if (s)
            return s;
    } else if (c->hidden % c->n_heads) {
        return fail(err, PV_E_FORMAT,
                    "%s: num_attention_heads (%d) does not divide hidden_size (%d)", src->name,
                    c->n_heads, c->hidden);
    } else {
        value = c->hidden / c->n_heads;
    }
    c->head_dim = (int)value;
    return PV_OK;
}

static enum pv_status read_sections(struct config *c, const json_t *rope, const struct source *src,
                                    struct pv_error *err)
{
    const json_t *list = json_hf_member(rope, "mrope_section");

    if (!list)
        return fail(err, PV_E_FORMAT, "%s: the key mrope_section is missing", src->name);
    if (!json_is_array(list) || json_array_size(list) != 3)
        return fail(err, PV_E_FORMAT, "%s: mrope_section is not a list of 3 numbers", src->name);
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t n = json_integer_value(v);
        if (!json_is_integer(v) || n < 0 || n > CONFIG_MAX_HEAD_DIM)
            return fail(err, PV_E_FORMAT, "%s: element %zu of mrope_section is not a count",
                        src->name, i);
        c->mrope_section[i] = (int)n;
    }
    return PV_OK;
}

/* Interleaving is implied by the family; a file that says otherwise is another model. */
static enum pv_status check_interleaved(const struct config *c, const json_t *rope,
                                        const struct source *src, struct pv_error *err)
{
    const json_t *flag = json_hf_member(rope, "mrope_interleaved");

    if (flag && json_is_true(flag) != (c->mrope == MROPE_INTERLEAVED))
        return fail(err, PV_E_UNSUPPORTED, "%s: mrope_interleaved does not agree with %s",
                    src->name, c->arch_name);
    return PV_OK;
}

static enum pv_status read_rope(struct config *c, const struct source *src, struct pv_error *err)
{
    const json_t *rope = json_hf_member(src->text, "rope_parameters");
    const char *type;
    double theta = 0, eps = 1e-6;
    enum pv_status s;

    if (!rope)
        rope = json_hf_member(src->text, "rope_scaling");
    if (rope && !json_is_object(rope))
        return fail(err, PV_E_FORMAT, "%s: the rope parameters are not an object", src->name);
    type = json_hf_text(rope, "rope_type");
    if (!*type)
        type = json_hf_text(rope, "type");
    if (*type && strcmp(type, "default") && strcmp(type, "mrope"))
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: rope of a type other than \"default\" and "
                    "\"mrope\" is not supported",
                    src->name);
    s = json_hf_float(json_hf_member(rope, "rope_theta") ? rope : src->text, "rope_theta", &theta,
                      src->name, err);
    if (!s && (!src->lenient || json_hf_member(src->text, "rms_norm_eps")))
        s = json_hf_float(src->text, "rms_norm_eps", &eps, src->name, err);
    if (!s && c->mrope != MROPE_NONE)
        s = read_sections(c, rope, src, err);
    if (!s && c->mrope != MROPE_NONE)
        s = check_interleaved(c, rope, src, err);
    c->rope_theta = (float)theta;
    c->rms_eps = (float)eps;
    return s;
}

/* One vector for each layer of the vision tower that is named. */
static enum pv_status read_deepstack(struct config *c, const struct source *src,
                                     struct pv_error *err)
{
    const json_t *vision = json_hf_member(src->root, "vision_config");
    const json_t *list = json_hf_member(vision, "deepstack_visual_indexes");

    if (c->mrope != MROPE_INTERLEAVED || !list)
        return PV_OK;
    if (!json_is_array(list) || json_array_size(list) > CONFIG_MAX_DEEPSTACK)
        return fail(err, PV_E_FORMAT,
                    "%s: deepstack_visual_indexes is not a list of at most %d layers", src->name,
                    CONFIG_MAX_DEEPSTACK);
    c->n_deepstack = (int)json_array_size(list);
    return PV_OK;
}

/* What the decoder cannot do must not be there. */
static enum pv_status check_features(const struct source *src, struct pv_error *err)
{
    const char *act = json_hf_text(src->text, "hidden_act");

    if (*act && strcmp(act, "silu"))
        return fail(err, PV_E_UNSUPPORTED, "%s: hidden_act is not \"silu\"", src->name);
    if (json_is_true(json_object_get(src->text, "use_sliding_window")))
        return fail(err, PV_E_UNSUPPORTED, "%s: use_sliding_window is not supported", src->name);
    if (json_is_true(json_object_get(src->text, "attention_bias")))
        return fail(err, PV_E_UNSUPPORTED, "%s: attention_bias is not supported", src->name);
    if (json_hf_member(src->root, "quantization_config"))
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: quantization_config: weights packed by another tool are not supported",
                    src->name);
    return PV_OK;
}

static enum pv_status read_tied(struct config *c, const struct source *src, struct pv_error *err)
{
    const json_t *level[2] = { src->root, src->text };

    for (int i = 0; i < 2; i++) {
        const json_t *v = json_hf_member(level[i], "tie_word_embeddings");
        if (v && !json_is_boolean(v))
            return fail(err, PV_E_FORMAT, "%s: tie_word_embeddings is not true or false",
                        src->name);
        c->tied = c->tied || json_is_true(v);
    }
    return PV_OK;
}

/* eos_token_id of one object: missing, a number or a list. */
static enum pv_status read_stops(struct config *c, const json_t *obj, const char *name,
                                 struct pv_error *err)
{
    const json_t *v = json_hf_member(obj, "eos_token_id");
    size_t n = json_is_array(v) ? json_array_size(v) : v ? 1 : 0;

    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return fail(err, PV_E_FORMAT, "%s: eos_token_id is not a token id or a list of them",
                        name);
        if (json_integer_value(id) < c->vocab)
            config_add_stop(c, json_integer_value(id));
    }
    return PV_OK;
}

static enum pv_status parse(struct config *out, const json_t *root, const json_t *generation,
                            const char *name, const struct family *const *families,
                            struct pv_error *err)
{
    struct config c = { 0 };
    const struct family_reader r = { json_hf_has_sign, root };
    const struct family *f = family_of_type(families, json_hf_text(root, "model_type"), &r);
    struct source src = { .root = root,
                          .text = json_hf_member(root, "text_config"),
                          .name = name,
                          .families = families,
                          .lenient = f && f->by_text };
    enum pv_status s;

    if (!src.text)
        src.text = root;
    if (!json_is_object(src.text))
        return fail(err, PV_E_FORMAT, "%s: text_config is not an object", name);
    s = read_family(&c, &src, err);
    if (!s)
        s = check_features(&src, err);
    if (!s)
        s = read_counts(&c, &src, err);
    if (!s)
        s = config_experts_hf(&c, src.text, c.family->decoder.experts, name, err);
    if (!s)
        s = read_rope(&c, &src, err);
    if (!s)
        s = read_deepstack(&c, &src, err);
    if (!s)
        s = read_tied(&c, &src, err);
    if (!s)
        s = read_stops(&c, src.text, name, err);
    if (!s && src.text != root)
        s = read_stops(&c, root, name, err);
    if (!s)
        s = read_stops(&c, generation, name, err);
    if (!s)
        s = config_check(&c, name, err);
    if (!s)
        *out = c;
    return s;
}

enum pv_status config_hf_parse(struct config *out, const char *json, size_t len,
                               const char *generation, size_t generation_len, const char *name,
                               const struct family *const *families, struct pv_error *err)
{
    json_t *root = NULL, *gen = NULL;
    enum pv_status s = json_hf_parse(&root, json, len, name, err);

    if (!s && generation)
        s = json_hf_parse(&gen, generation, generation_len, name, err);
    if (!s)
        s = parse(out, root, gen, name, families, err);
    json_decref(root);
    json_decref(gen);
    return s;
}

enum pv_status config_hf_open(struct config *out, const char *dir,
                              const struct family *const *families, struct pv_error *err)
{
    char *path = path_join(dir, "config.json");
    char *gen_path = path_join(dir, "generation_config.json");
    json_t *root = NULL, *gen = NULL;
    enum pv_status s;

    if (!path || !gen_path)
        s = fail_nomem(err, strlen(dir) + sizeof "/generation_config.json");
    else
        s = json_hf_open(&root, path, CONFIG_MAX_FILE, err);
    if (!s && file_exists(gen_path))
        s = json_hf_open(&gen, gen_path, CONFIG_MAX_FILE, err);
    if (!s)
        s = parse(out, root, gen, path, families, err);
    json_decref(root);
    json_decref(gen);
    mem_free(path);
    mem_free(gen_path);
    return s;
}
