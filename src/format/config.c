/* The bounds and relations every decoder configuration must satisfy, whichever file it came
 * from. After config_check the products the decoder forms (heads * head_dim, vocab * hidden, ...)
 * fit their types, and no loop bound can be negative or absurd. */
#include "format/config.h"

#include <math.h>
#include <string.h>

enum pv_status config_check_bounds(const struct config_bound *bounds, size_t n, const char *whose,
                                   const char *where, struct pv_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct config_bound *b = &bounds[i];
        if (b->value < b->min || b->value > b->max)
            return fail(err, PV_E_FORMAT, "%s: %s %s is %d, outside %d to %d", where, whose,
                        b->name, b->value, b->min, b->max);
    }
    return PV_OK;
}

static enum pv_status check_bounds(const struct config *c, const char *where, struct pv_error *err)
{
    int most_deep = c->n_layers <= CONFIG_MAX_DEEPSTACK ? c->n_layers - 1 : CONFIG_MAX_DEEPSTACK;
    const struct config_bound bounds[] = {
        { "hidden size", c->hidden, 1, CONFIG_MAX_HIDDEN },
        { "number of layers", c->n_layers, 1, CONFIG_MAX_LAYERS },
        { "number of attention heads", c->n_heads, 1, CONFIG_MAX_HEADS },
        { "number of key-value heads", c->n_kv_heads, 1, CONFIG_MAX_HEADS },
        { "head dimension", c->head_dim, 8, CONFIG_MAX_HEAD_DIM },
        { "feed-forward size", c->ffn, 1, CONFIG_MAX_FFN },
        { "vocabulary size", c->vocab, 1, CONFIG_MAX_VOCAB },
        { "context length", c->max_context, 1, CONFIG_MAX_CONTEXT },
        { "number of stop tokens", c->n_stop, 0, CONFIG_MAX_STOP },
        { "number of deepstack layers", c->n_deepstack, 0, most_deep },
    };

    return config_check_bounds(bounds, sizeof bounds / sizeof *bounds, "the", where, err);
}

int config_n_sparse(const struct config *c)
{
    int n = 0;

    for (int i = 0; i < c->n_layers; i++)
        n += c->sparse[i];
    return n;
}

static enum pv_status check_experts(const struct config *c, const char *where, struct pv_error *err)
{
    const struct config_bound bounds[] = {
        { "number of experts", c->n_experts, 1, CONFIG_MAX_EXPERTS },
        { "number of experts that a token uses", c->n_used, 1, CONFIG_MAX_USED },
        { "feed-forward size of an expert", c->expert_ffn, 1, CONFIG_MAX_FFN },
    };
    enum pv_status s =
        config_check_bounds(bounds, sizeof bounds / sizeof *bounds, "the", where, err);

    if (!s && c->n_used > c->n_experts)
        s = fail(err, PV_E_FORMAT, "%s: a token uses %d experts, but there are only %d", where,
                 c->n_used, c->n_experts);
    return s;
}

/* Three sections of frequencies that share out the head_dim / 2 pairs. */
static enum pv_status check_mrope(const struct config *c, const char *where, struct pv_error *err)
{
    const int *section = c->mrope_section;
    int half = c->head_dim / 2;

    for (int i = 0; i < 3; i++)
        if (section[i] < 0 || section[i] > half)
            return fail(err, PV_E_FORMAT, "%s: an M-RoPE section is %d, outside 0 to %d", where,
                        section[i], half);
    if (section[0] + section[1] + section[2] != half)
        return fail(err, PV_E_FORMAT,
                    "%s: the M-RoPE sections %d, %d and %d do not add up to half the head "
                    "dimension, %d",
                    where, section[0], section[1], section[2], half);
    /* Interleaved: every third frequency belongs to the height, every third to the width. */
    if (c->mrope == MROPE_INTERLEAVED && (3 * section[1] > half || 3 * section[2] > half))
        return fail(err, PV_E_FORMAT,
                    "%s: the M-RoPE sections %d and %d do not fit interleaved in %d frequencies",
                    where, section[1], section[2], half);
    return PV_OK;
}

enum pv_status config_check(const struct config *c, const char *where, struct pv_error *err)
{
    enum pv_status s = check_bounds(c, where, err);

    if (!s && c->n_experts != 0)
        s = check_experts(c, where, err);
    if (s)
        return s;
    if (c->head_dim % 8)
        return fail(err, PV_E_UNSUPPORTED, "%s: the head dimension %d is not a multiple of 8",
                    where, c->head_dim);
    if (c->n_heads % c->n_kv_heads)
        return fail(err, PV_E_FORMAT, "%s: %d attention heads cannot share %d key-value heads",
                    where, c->n_heads, c->n_kv_heads);
    if (!isfinite(c->rope_theta) || c->rope_theta < 1 || c->rope_theta > 1e12f)
        return fail(err, PV_E_FORMAT, "%s: the rope base is %g, outside 1 to 1e12", where,
                    (double)c->rope_theta);
    if (!isfinite(c->rms_eps) || c->rms_eps <= 0 || c->rms_eps > 0.1f)
        return fail(err, PV_E_FORMAT, "%s: the norm epsilon is %g, outside 0 to 0.1", where,
                    (double)c->rms_eps);
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop[i] < 0 || c->stop[i] >= c->vocab)
            return fail(err, PV_E_FORMAT, "%s: the stop token %d is not in the vocabulary of %d",
                        where, (int)c->stop[i], c->vocab);
    return c->mrope == MROPE_NONE ? PV_OK : check_mrope(c, where, err);
}

void config_add_stop(struct config *c, int64_t id)
{
    if (id < 0 || id > INT32_MAX || c->n_stop == CONFIG_MAX_STOP)
        return;
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop[i] == id)
            return;
    c->stop[c->n_stop++] = (int32_t)id;
}

void config_add_spelled_stops(struct config *c, const struct vocab *v)
{
    static const char *const spelled[] = { "<|im_end|>", "<|endoftext|>" };

    for (int i = 0; v && i < v->n_tokens; i++) {
        if (v->kind[i] != TOKEN_CONTROL)
            continue;
        for (int j = 0; j < 2; j++)
            if (v->token[i].len == strlen(spelled[j]) &&
                !memcmp(v->token[i].s, spelled[j], v->token[i].len))
                config_add_stop(c, i);
    }
}
