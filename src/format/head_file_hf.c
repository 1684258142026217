/* A head as a directory: config.json, in which others write the configuration of a whole small
 * model and we a few keys of our own, and the safetensors beside it.
 *
 * What a head's config.json may leave out: num_key_value_heads (as many as heads), head_dim (from
 * the q matrix), rope_theta (the target's), num_hidden_layers (1), and our own keys
 * rope_positions ("index") and visual_rows ("embedding").
 *
 * EAGLE-3: its layer's names begin with "midlayer." (EAGLE, SpecForge) or "layers.0." (vLLM), and
 * its q matrix is twice as wide as the stream. The layers of the target that it reads are
 *
 *   eagle_config.eagle_aux_hidden_state_layer_ids  numbers of layers from 0: their outputs (SGLang)
 *   eagle_aux_hidden_state_layer_ids               at the top: inputs of layers from 0 (vLLM)
 *   neither                                        outputs of the first 2, n / 2 and n - 3 layers
 *
 * d2t is what to add to a draft token to get the target's. Positions are the target's where
 * rope_scaling has mrope_section (SGLang). The library speculators writes the layer's numbers
 * into transformer_layer_config. */
#include "base/file.h"
#include "base/mem.h"
#include "format/head_file_parts.h"
#include "format/json_hf.h"
#include "format/safetensors_hf.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_CONFIG_MAX = 1 << 20 };

static const float default_theta = 10000;

static enum pv_status read_word(const json_t *root, const char *key,
                                int (*find)(const char *, size_t), int *out, const char *name,
                                struct pv_error *err)
{
    const json_t *v = json_hf_member(root, key);
    if (!v)
        return PV_OK;
    if (!json_is_string(v) || find(json_string_value(v), json_string_length(v)) < 0)
        return fail(err, PV_E_UNSUPPORTED, "%s: unknown value of %s", name, key);
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

/* A list of the target's layers; `offset` makes counts of layers of its numbers. */
static enum pv_status read_layers(struct head_config *h, const json_t *obj, int offset,
                                  const char *name, struct pv_error *err)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *list = json_hf_member(obj, key);
    size_t n = json_array_size(list);
    if (!list)
        return PV_OK;
    if (!json_is_array(list) || n < 1 || n > HEAD_MAX_FEATURES)
        return fail(err, PV_E_FORMAT, "%s: %s is not a list of 1 to %d layers", name, key,
                    HEAD_MAX_FEATURES);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= CONFIG_MAX_LAYERS)
            return fail(err, PV_E_FORMAT, "%s: element %zu of %s is not a layer", name, i, key);
        h->features.layer[i] = (int)id + offset;
    }
    h->features.n = (int)n;
    return PV_OK;
}

/* layer: the object that has the numbers of the layer. */
static enum pv_status read_eagle3(struct head_config *h, const json_t *root, const json_t *layer,
                                  const char *name, struct pv_error *err)
{
    static const char *const unknown[] = { "fc_norm", "norm_output" };
    const json_t *inside = json_hf_member(root, "eagle_config");
    const json_t *residual = json_hf_member(root, "norm_before_residual");
    int64_t draft = 0, vocab = 0;
    enum pv_status s = PV_OK;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (json_is_true(json_hf_member(root, unknown[i])))
            return fail(err, PV_E_UNSUPPORTED, "%s: heads with %s are not supported", name,
                        unknown[i]);
    if (json_hf_member(inside, "eagle_aux_hidden_state_layer_ids"))
        s = read_layers(h, inside, 1, name, err);
    else
        s = read_layers(h, root, 0, name, err);
    if (!s && json_hf_member(root, "draft_vocab_size"))
        s = json_hf_int(root, "draft_vocab_size", 1, CONFIG_MAX_VOCAB, &draft, name, err);
    if (!s && json_hf_member(layer, "vocab_size"))
        s = json_hf_int(layer, "vocab_size", draft, CONFIG_MAX_VOCAB, &vocab, name, err);
    if (!s && residual && !json_is_boolean(residual))
        s = fail(err, PV_E_FORMAT, "%s: norm_before_residual is not true or false", name);
    h->draft_vocab = draft == vocab ? 0 : (int)draft;
    if (h->c.rope_theta == 0)
        h->c.rope_theta = default_theta; /* what the configuration of a Llama means by that */
    h->norm_residual = json_is_true(residual);
    return s;
}

static bool has_mrope(const json_t *layer)
{
    const json_t *rope = json_hf_member(layer, "rope_parameters");
    return json_hf_member(rope ? rope : json_hf_member(layer, "rope_scaling"), "mrope_section");
}

static enum pv_status parse(struct head_config *out, const json_t *root, enum head_layout layout,
                            int64_t q_rows, const char *name, struct pv_error *err)
{
    struct head_config h = { .c = { .n_layers = 1 }, .layout = layout };
    bool eagle3 = layout == HEAD_LAYOUT_EAGLE3;
    const json_t *inner = json_hf_member(root, "transformer_layer_config");
    const json_t *numbers = eagle3 && json_is_object(inner) ? inner : root;
    const char *act = json_hf_text(numbers, "hidden_act"), *target = json_hf_text(root, "target");
    int positions = eagle3 && has_mrope(numbers) ? HEAD_POS_TARGET : HEAD_POS_INDEX;
    int visual = eagle3 ? HEAD_VISUAL_FC : HEAD_VISUAL_EMBEDDING;
    int64_t layer = 0;
    enum pv_status s = PV_OK;

    if (*act && strcmp(act, "silu") != 0)
        s = fail(err, PV_E_UNSUPPORTED, "%s: hidden_act is not \"silu\"", name);
    if (!s)
        s = read_counts(&h, numbers, q_rows, name, err);
    if (!s)
        s = read_rope(&h, numbers, name, err);
    if (!s && eagle3)
        s = read_eagle3(&h, root, numbers, name, err);
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
                                 enum head_layout layout, int64_t q_rows, const char *name,
                                 struct pv_error *err)
{
    json_t *root = NULL;
    enum pv_status s = json_hf_parse(&root, json, len, name, err);
    if (!s)
        s = parse(out, root, layout, q_rows, name, err);
    json_decref(root);
    return s;
}

/* The q matrix, under either name of the layer, which is then known. */
static const struct tensor *find_q(struct head_file *hf)
{
    static const char *const layers[] = { "layers.0.", "midlayer." };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char name[64];
        const struct tensor *q;
        hf->layer_prefix = layers[i];
        snprintf(name, sizeof name, "%sself_attn.q_proj.weight", layers[i]);
        q = head_find_tensor(hf, name);
        if (q)
            return q;
    }
    hf->layer_prefix = layers[0];
    return NULL;
}

/* The matrix that no model has tells the head's prefix, and q the size of its heads and the layout.
 */
static enum pv_status find_prefix(struct head_file *hf, enum head_layout *layout, int64_t *q_rows,
                                  struct pv_error *err)
{
    static const char *const prefixes[] = { "", "model." };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const struct tensor *q, *fc;
        hf->prefix = prefixes[i];
        fc = head_find_tensor(hf, "fc.weight");
        if (!fc)
            continue;
        q = find_q(hf);
        if (!q || q->n_dims != 2 || q->dim[0] < 1)
            return fail(err, PV_E_FORMAT,
                        "%s: the tensor layers.0.self_attn.q_proj.weight is missing", hf->in.path);
        *q_rows = q->dim[0];
        *layout = q->dim[1] == 2 * fc->dim[0] ? HEAD_LAYOUT_EAGLE3 : HEAD_LAYOUT_EAGLE;
        return PV_OK;
    }
    return fail(err, PV_E_ARG, "%s: not a draft head (it has no tensor fc.weight)", hf->in.path);
}

/* d2t holds differences: draft token i is the target's i + d2t[i]. */
static enum pv_status read_draft_vocab(struct head_file *hf, struct pv_error *err)
{
    const struct tensor *lm_head = safetensors_find(hf->in.safetensors, "lm_head.weight");
    int64_t *diff = NULL;
    int n = 0;
    enum pv_status s;
    if (!lm_head)
        lm_head = head_find_tensor(hf, "lm_head.weight");
    s = safetensors_ints(hf->in.safetensors, "d2t", &diff, &n, err);
    if (!s && !diff)
        s = safetensors_ints(hf->in.safetensors, "model.d2t", &diff, &n, err);
    if (!s && diff) {
        hf->draft_ids = mem_alloc((size_t)n * sizeof *hf->draft_ids);
        hf->n_draft_ids = n;
        s = hf->draft_ids ? PV_OK : fail_nomem(err, (size_t)n * sizeof *hf->draft_ids);
    }
    for (int i = 0; i < n && !s; i++) {
        if (diff[i] < -i || diff[i] >= CONFIG_MAX_VOCAB - i)
            s = fail(err, PV_E_FORMAT, "%s: element %d of d2t is %lld, which is no valid token",
                     hf->in.path, i, (long long)diff[i]);
        hf->draft_ids[i] = (int32_t)(i + (s ? 0 : diff[i]));
    }
    mem_free(diff);
    return s ? s : head_set_draft_vocab(hf, lm_head, err);
}

enum pv_status head_open_dir(struct head_file *hf, struct pv_error *err)
{
    char *path = path_join(hf->in.path, "config.json");
    json_t *root = NULL;
    int64_t q_rows = 0;
    enum head_layout layout = HEAD_LAYOUT_EAGLE;
    enum pv_status s = path ? PV_OK : fail_nomem(err, strlen(hf->in.path) + sizeof "/config.json");

    if (!s)
        s = json_hf_open(&root, path, HEAD_CONFIG_MAX, err);
    if (!s)
        s = safetensors_open(&hf->in.safetensors, hf->in.path, hf->in.limit, err);
    if (!s)
        s = find_prefix(hf, &layout, &q_rows, err);
    if (!s)
        s = parse(&hf->config, root, layout, q_rows, path, err);
    if (!s && layout == HEAD_LAYOUT_EAGLE3)
        s = read_draft_vocab(hf, err);
    json_decref(root);
    mem_free(path);
    return s;
}
