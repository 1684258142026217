/* A head as a directory: config.json, in which others write the configuration of a whole small
 * model and we a few keys of our own, and the safetensors beside it.
 *
 * What a head's config.json may leave out: num_key_value_heads (as many as heads), head_dim (from
 * the q matrix), rope_theta (the target's), num_hidden_layers (1), and our own keys
 * rope_positions ("index") and visual_rows ("embedding"). */
#include "base/file.h"
#include "base/mem.h"
#include "format/head_file_parts.h"
#include "format/json_hf.h"
#include "format/safetensors_hf.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_CONFIG_MAX = 1 << 20 };

static enum pv_status read_word(const json_t *root, const char *key,
                                int (*find)(const char *, size_t), int *out, const char *name,
                                struct pv_error *err)
{
    const json_t *v = json_hf_member(root, key);
    if (!v)
        return PV_OK;
    if (!json_is_string(v) || find(json_string_value(v), json_string_length(v)) < 0)
        return fail(err, PV_E_UNSUPPORTED, "%s: %s is a word that is not known", name, key);
    *out = find(json_string_value(v), json_string_length(v));
    return PV_OK;
}

static enum pv_status read_counts(struct head_config *h, const json_t *root, int64_t q_rows,
                                  const char *name, struct pv_error *err)
{
    struct config *c = &h->c;
    const struct {
        const char *key;
        int *out, max;
        bool optional;
    } counts[] = {
        { "hidden_size", &c->hidden, CONFIG_MAX_HIDDEN, false },
        { "intermediate_size", &c->ffn, CONFIG_MAX_FFN, false },
        { "num_attention_heads", &c->n_heads, CONFIG_MAX_HEADS, false },
        { "num_key_value_heads", &c->n_kv_heads, CONFIG_MAX_HEADS, true },
        { "head_dim", &c->head_dim, CONFIG_MAX_HEAD_DIM, true },
        { "num_hidden_layers", &c->n_layers, 1, true },
    };
    int64_t value = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        enum pv_status s = PV_OK;
        if (counts[i].optional && !json_hf_member(root, counts[i].key))
            continue;
        s = json_hf_int(root, counts[i].key, 1, counts[i].max, &value, name, err);
        if (s)
            return s;
        *counts[i].out = (int)value;
    }
    if (c->n_kv_heads == 0)
        c->n_kv_heads = c->n_heads;
    if (c->head_dim == 0 && (q_rows % c->n_heads || q_rows / c->n_heads > CONFIG_MAX_HEAD_DIM))
        return fail(err, PV_E_FORMAT, "%s: %d heads cannot share a q matrix of %lld rows", name,
                    c->n_heads, (long long)q_rows);
    if (c->head_dim == 0)
        c->head_dim = (int)(q_rows / c->n_heads);
    return PV_OK;
}

/* The rotation's base: at the top, in rope_parameters, or not there. Scaled rope is refused; the
 * "mrope" of a whole model's configuration says nothing of the head's one number a row. */
static enum pv_status read_rope(struct head_config *h, const json_t *root, const char *name,
                                struct pv_error *err)
{
    const json_t *rope = json_hf_member(root, "rope_parameters");
    const char *type;
    double theta = 0, eps = 0;
    enum pv_status s;

    if (!rope)
        rope = json_hf_member(root, "rope_scaling");
    type = json_hf_text(rope, json_hf_member(rope, "rope_type") ? "rope_type" : "type");
    if (*type && strcmp(type, "default") != 0 && strcmp(type, "mrope") != 0)
        return fail(err, PV_E_UNSUPPORTED, "%s: scaled rope is not supported", name);
    if (json_hf_member(rope, "rope_theta"))
        s = json_hf_float(rope, "rope_theta", &theta, name, err);
    else if (json_hf_member(root, "rope_theta"))
        s = json_hf_float(root, "rope_theta", &theta, name, err);
    else
        s = PV_OK;
    if (!s)
        s = json_hf_float(root, "rms_norm_eps", &eps, name, err);
    h->c.rope_theta = (float)theta;
    h->c.rms_eps = (float)eps;
    return s;
}

static enum pv_status parse(struct head_config *out, const json_t *root, int64_t q_rows,
                            const char *name, struct pv_error *err)
{
    struct head_config h = { .c = { .n_layers = 1 } };
    const char *act = json_hf_text(root, "hidden_act"), *target = json_hf_text(root, "target");
    int positions = HEAD_POS_INDEX, visual = HEAD_VISUAL_EMBEDDING;
    int64_t layer = 0;
    enum pv_status s = PV_OK;

    if (*act && strcmp(act, "silu") != 0)
        s = fail(err, PV_E_UNSUPPORTED, "%s: hidden_act is not \"silu\"", name);
    if (!s)
        s = read_counts(&h, root, q_rows, name, err);
    if (!s)
        s = read_rope(&h, root, name, err);
    if (!s)
        s = read_word(root, "rope_positions", head_positions_find, &positions, name, err);
    if (!s)
        s = read_word(root, "visual_rows", head_visual_find, &visual, name, err);
    if (!s && visual == HEAD_VISUAL_LAYER)
        s = json_hf_int(root, "visual_layer", 1, CONFIG_MAX_LAYERS, &layer, name, err);
    if (s)
        return s;
    h.positions = (enum head_positions)positions;
    h.visual = (enum head_visual)visual;
    h.visual_layer = (int)layer;
    head_set_target(&h, target, strlen(target));
    *out = h;
    return PV_OK;
}

enum pv_status head_config_parse(struct head_config *out, const char *json, size_t len,
                                 int64_t q_rows, const char *name, struct pv_error *err)
{
    json_t *root = NULL;
    enum pv_status s = json_hf_parse(&root, json, len, name, err);
    if (!s)
        s = parse(out, root, q_rows, name, err);
    json_decref(root);
    return s;
}

/* The matrix that no model has tells the head's prefix, and q the size of its heads. */
static enum pv_status find_prefix(struct head_file *hf, int64_t *q_rows, struct pv_error *err)
{
    static const char *const prefixes[] = { "", "model." };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const struct tensor *q;
        hf->prefix = prefixes[i];
        if (!head_find_tensor(hf, "fc.weight"))
            continue;
        q = head_find_tensor(hf, "layers.0.self_attn.q_proj.weight");
        if (!q || q->n_dims != 2 || q->dim[0] < 1)
            return fail(err, PV_E_FORMAT,
                        "%s: the tensor layers.0.self_attn.q_proj.weight is missing", hf->path);
        *q_rows = q->dim[0];
        return PV_OK;
    }
    return fail(err, PV_E_ARG, "%s: not a draft head (it has no tensor fc.weight)", hf->path);
}

enum pv_status head_open_dir(struct head_file *hf, uint64_t limit, struct pv_error *err)
{
    char *path = path_join(hf->path, "config.json");
    json_t *root = NULL;
    int64_t q_rows = 0;
    enum pv_status s = path ? PV_OK : fail_nomem(err, strlen(hf->path) + sizeof "/config.json");

    if (!s)
        s = json_hf_open(&root, path, HEAD_CONFIG_MAX, err);
    if (!s)
        s = safetensors_open(&hf->safetensors, hf->path, limit, err);
    if (!s)
        s = find_prefix(hf, &q_rows, err);
    if (!s)
        s = parse(&hf->config, root, q_rows, path, err);
    json_decref(root);
    mem_free(path);
    return s;
}
