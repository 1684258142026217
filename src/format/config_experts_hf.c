/* The keys of config.json about a mixture of experts. Layer i (from 0) is sparse unless
 * mlp_only_layers names it or i + 1 is no multiple of decoder_sparse_step. A missing
 * mlp_only_layers names no layer; every other key must be there. Newer releases of transformers
 * know num_experts as num_local_experts too. */
#include "format/config_experts_hf.h"

#include "format/json_hf.h"

static enum pv_status read_counts(struct config *c, int *step, const json_t *text, const char *name,
                                  struct pv_error *err)
{
    const char *number = "num_experts";
    if (!json_hf_member(text, number) && json_hf_member(text, "num_local_experts"))
        number = "num_local_experts";
    const struct {
        const char *key;
        int *out, max;
    } counts[] = {
        { number, &c->n_experts, CONFIG_MAX_EXPERTS },
        { "num_experts_per_tok", &c->n_used, CONFIG_MAX_USED },
        { "moe_intermediate_size", &c->expert_ffn, CONFIG_MAX_FFN },
        { "decoder_sparse_step", step, CONFIG_MAX_LAYERS },
    };

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t value = 0;
        enum pv_status s = json_hf_int(text, counts[i].key, 1, counts[i].max, &value, name, err);
        if (s)
            return s;
        *counts[i].out = (int)value;
    }
    return PV_OK;
}

static enum pv_status read_dense(struct config *c, const json_t *text, const char *name,
                                 struct pv_error *err)
{
    const json_t *list = json_hf_member(text, "mlp_only_layers");

    if (list && !json_is_array(list))
        return fail(err, PV_E_FORMAT, "%s: mlp_only_layers is not a list", name);
    for (size_t i = 0; list && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t layer = json_integer_value(v);
        if (!json_is_integer(v) || layer < 0 || layer >= c->n_layers)
            return fail(err, PV_E_FORMAT,
                        "%s: element %zu of mlp_only_layers is not one of the %d layers", name, i,
                        c->n_layers);
        c->sparse[layer] = false;
    }
    return PV_OK;
}

static enum pv_status read_norm(struct config *c, const json_t *text, enum expert_rule rule,
                                const char *name, struct pv_error *err)
{
    const json_t *v = json_hf_member(text, "norm_topk_prob");

    if (!v && rule == EXPERTS_SAID)
        return fail(err, PV_E_FORMAT, "%s: the key norm_topk_prob is missing", name);
    if (v && !json_is_boolean(v))
        return fail(err, PV_E_FORMAT, "%s: norm_topk_prob is not true or false", name);
    if (v && rule == EXPERTS_NORMED && !json_is_true(v))
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: norm_topk_prob is false, but %s always normalises the experts' weights",
                    name, c->arch_name);
    c->norm_used = rule == EXPERTS_NORMED || json_is_true(v);
    return PV_OK;
}

enum pv_status config_experts_hf(struct config *c, const json_t *text, enum expert_rule rule,
                                 const char *name, struct pv_error *err)
{
    int step = 1;
    enum pv_status s;

    if (rule == EXPERTS_NONE)
        return PV_OK;
    s = read_counts(c, &step, text, name, err);
    if (s)
        return s;
    for (int i = 0; i < c->n_layers; i++)
        c->sparse[i] = (i + 1) % step == 0;
    s = read_dense(c, text, name, err);
    return s ? s : read_norm(c, text, rule, name, err);
}
