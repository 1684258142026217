/* The numbers and words of a head in a GGUF file; doc/heads.md has its keys. */
#include "base/mem.h"
#include "format/head_file_parts.h"

#include <string.h>

static enum pv_status read_word(const struct gguf *g, const char *key,
                                int (*find)(const char *, size_t), int *out, struct pv_error *err)
{
    struct str word;
    enum pv_status s;
    if (!gguf_find(g, key))
        return PV_OK;
    s = gguf_string(g, key, &word, err);
    if (s)
        return s;
    if (find(word.s, word.len) < 0)
        return fail(err, PV_E_UNSUPPORTED, "%s: unknown value of %s", gguf_path(g), key);
    *out = find(word.s, word.len);
    return PV_OK;
}

static enum pv_status read_counts(struct head_config *h, const struct gguf *g, struct pv_error *err)
{
    const struct {
        const char *key;
        int *out, max;
    } counts[] = {
        { HEAD_ARCH ".embedding_length", &h->c.hidden, CONFIG_MAX_HIDDEN },
        { HEAD_ARCH ".feed_forward_length", &h->c.ffn, CONFIG_MAX_FFN },
        { HEAD_ARCH ".attention.head_count", &h->c.n_heads, CONFIG_MAX_HEADS },
        { HEAD_ARCH ".attention.head_count_kv", &h->c.n_kv_heads, CONFIG_MAX_HEADS },
        { HEAD_ARCH ".attention.key_length", &h->c.head_dim, CONFIG_MAX_HEAD_DIM },
    };
    int64_t value = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        enum pv_status s = gguf_int(g, counts[i].key, 1, counts[i].max, &value, err);
        if (s)
            return s;
        *counts[i].out = (int)value;
    }
    return PV_OK;
}

/* A list of integers of any length up to `max`; *n is 0 where the key is not there. */
static enum pv_status read_list(const struct gguf *g, const char *key, int max, int32_t **out,
                                int *n, struct pv_error *err)
{
    const struct gguf_value *v = gguf_find(g, key);
    int32_t *list;
    enum pv_status s;
    *n = 0;
    if (!v)
        return PV_OK;
    if (v->kind != GGUF_ARRAY || v->n < 1 || v->n > (uint64_t)max)
        return fail(err, PV_E_FORMAT, "%s: %s is not a list of 1 to %d numbers", gguf_path(g), key,
                    max);
    list = mem_alloc((size_t)v->n * sizeof *list);
    if (!list)
        return fail_nomem(err, (size_t)v->n * sizeof *list);
    s = gguf_ints(g, key, list, (int)v->n, err);
    if (s) {
        mem_free(list);
        return s;
    }
    *out = list;
    *n = (int)v->n;
    return PV_OK;
}

static enum pv_status read_features(struct head_config *h, const struct gguf *g,
                                    struct pv_error *err)
{
    static const char key[] = HEAD_ARCH ".feature_layers";
    int32_t *list = NULL;
    int n = 0;
    enum pv_status s = read_list(g, key, HEAD_MAX_FEATURES, &list, &n, err);
    for (int i = 0; i < n && !s; i++) {
        if (list[i] < 0 || list[i] > CONFIG_MAX_LAYERS)
            s = fail(err, PV_E_FORMAT, "%s: %s names %d, outside 0 to %d", gguf_path(g), key,
                     (int)list[i], CONFIG_MAX_LAYERS);
        h->features.layer[i] = list[i];
    }
    h->features.n = n;
    mem_free(list);
    return s;
}

/* What EAGLE-3 has of its own. */
static enum pv_status read_eagle3(struct head_file *hf, struct pv_error *err)
{
    const struct gguf *g = hf->in.gguf;
    struct head_config *h = &hf->config;
    static const char residual_key[] = HEAD_ARCH ".norm_residual";
    const struct tensor *out = gguf_tensor_find(g, "output.weight");
    const struct gguf_value *residual = gguf_find(g, residual_key);
    enum pv_status s = read_features(h, g, err);
    if (!s && residual && residual->kind != GGUF_BOOL)
        s = fail(err, PV_E_FORMAT, "%s: %s is not a boolean", gguf_path(g), residual_key);
    if (!s)
        s = read_list(g, HEAD_ARCH ".draft_ids", CONFIG_MAX_VOCAB, &hf->draft_ids, &hf->n_draft_ids,
                      err);
    if (!s)
        s = head_set_draft_vocab(hf, out, err);
    h->norm_residual = !s && residual && residual->data[0];
    return s;
}

enum pv_status head_read_gguf(struct head_file *hf, struct pv_error *err)
{
    struct head_config *h = &hf->config;
    const struct gguf *g = hf->in.gguf;
    static const char theta_key[] = HEAD_ARCH ".rope.freq_base", target_key[] = HEAD_ARCH ".target";
    double eps = 0, theta = 0;
    int positions = HEAD_POS_INDEX, layout = HEAD_LAYOUT_EAGLE, visual;
    int64_t layer = 0;
    struct str arch, target = { "", 0 };
    enum pv_status s = gguf_string(g, "general.architecture", &arch, err);

    if (!s && (arch.len != strlen(HEAD_ARCH) || memcmp(arch.s, HEAD_ARCH, arch.len) != 0))
        s = fail(err, PV_E_ARG, "%s: not a draft head (its architecture is not \"%s\")",
                 gguf_path(g), HEAD_ARCH);
    if (!s)
        s = read_counts(h, g, err);
    if (!s)
        s = gguf_float(g, HEAD_ARCH ".attention.layer_norm_rms_epsilon", &eps, err);
    if (!s && gguf_find(g, theta_key))
        s = gguf_float(g, theta_key, &theta, err);
    if (!s)
        s = read_word(g, HEAD_ARCH ".layout", head_layout_find, &layout, err);
    visual = layout == HEAD_LAYOUT_EAGLE3 ? HEAD_VISUAL_FC : HEAD_VISUAL_EMBEDDING;
    if (!s)
        s = read_word(g, HEAD_ARCH ".rope_positions", head_positions_find, &positions, err);
    if (!s)
        s = read_word(g, HEAD_ARCH ".visual_rows", head_visual_find, &visual, err);
    if (!s && visual == HEAD_VISUAL_LAYER)
        s = gguf_int(g, HEAD_ARCH ".visual_layer", 1, CONFIG_MAX_LAYERS, &layer, err);
    if (!s && gguf_find(g, target_key))
        s = gguf_string(g, target_key, &target, err);
    if (s)
        return s;
    h->c.rms_eps = (float)eps;
    h->c.rope_theta = (float)theta;
    h->positions = (enum head_positions)positions;
    h->visual = (enum head_visual)visual;
    h->visual_layer = (int)layer;
    h->layout = (enum head_layout)layout;
    head_set_target(h, target.s, target.len);
    return layout == HEAD_LAYOUT_EAGLE3 ? read_eagle3(hf, err) : PV_OK;
}
