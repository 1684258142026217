/* The members of audio_config in config.json. The reference leaves out of a file what equals its
 * own value, so each may be missing; the family's table has those values. What the encoder cannot
 * do otherwise must be as it does it. */
#include "format/audio_config_hf.h"

#include <math.h>
#include <string.h>

enum { MAX_COUNT = 1 << 20 };

static enum pv_status read_int(int *out, const json_t *obj, const char *key, const char *name,
                               struct pv_error *err)
{
    int64_t value = *out;
    enum pv_status s = PV_OK;

    if (json_hf_member(obj, key))
        s = json_hf_int(obj, key, 1, MAX_COUNT, &value, name, err);
    *out = (int)value;
    return s;
}

static enum pv_status read_float(double *out, const json_t *obj, const char *key, const char *name,
                                 struct pv_error *err)
{
    return json_hf_member(obj, key) ? json_hf_float(obj, key, out, name, err) : PV_OK;
}

/* A member that is there must have this value. */
static enum pv_status check_one(const json_t *obj, const char *key, const char *name,
                                struct pv_error *err)
{
    int value = 1;
    enum pv_status s = read_int(&value, obj, key, name, err);

    if (!s && value != 1)
        s = fail(err, PV_E_UNSUPPORTED, "%s: %s is %d, where 1 was expected", name, key, value);
    return s;
}

static enum pv_status check_gelu(const json_t *obj, const char *key, const char *name,
                                 struct pv_error *err)
{
    const char *text = json_hf_text(obj, key);

    if (*text && strcmp(text, "gelu") != 0)
        return fail(err, PV_E_UNSUPPORTED, "%s: %s is \"%.40s\", where \"gelu\" was expected", name,
                    key, text);
    return PV_OK;
}

/* Seconds of a token to frames; windows follow one another without overlap. */
static enum pv_status read_window(struct audio_config *c, const json_t *audio, const char *name,
                                  struct pv_error *err)
{
    double window = (double)c->window / AUDIO_FRAMES_PER_SECOND, stride = window;
    enum pv_status s = read_float(&window, audio, "second_per_window", name, err);

    if (!s)
        s = read_float(&stride, audio, "second_stride", name, err);
    if (s)
        return s;
    if (!(window > 0 && window <= 30) || window != stride)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: second_per_window is %g and second_stride %g, where equal ones of at most "
                    "30 were expected",
                    name, window, stride);
    c->window = (int)lrint(window * AUDIO_FRAMES_PER_SECOND);
    return PV_OK;
}

static enum pv_status read_qformer(struct audio_config *c, const json_t *q, const char *name,
                                   struct pv_error *err)
{
    double eps = (double)c->q_eps;
    enum pv_status s = read_int(&c->q_heads, q, "num_attention_heads", name, err);

    if (!s)
        s = read_int(&c->q_layers, q, "num_hidden_layers", name, err);

    if (!s)
        s = read_float(&eps, q, "layer_norm_eps", name, err);
    if (!s)
        s = check_one(q, "query_length", name, err);
    if (!s)
        s = check_one(q, "cross_attention_freq", name, err);
    if (!s)
        s = check_gelu(q, "hidden_act", name, err);
    c->q_eps = (float)eps;
    return s;
}

enum pv_status audio_config_hf_read(struct audio_config *c, const struct family_audio_encoder *h,
                                    const json_t *root, const char *name, struct pv_error *err)
{
    const json_t *audio = json_hf_member(root, "audio_config");
    struct audio_config r = { .n_heads = h->n_heads,
                              .q_heads = h->q_heads,
                              .window = h->window,
                              .eps = h->eps,
                              .q_eps = h->q_eps,
                              .token = -1 };
    int64_t token = -1;
    enum pv_status s = read_int(&r.n_heads, audio, "encoder_attention_heads", name, err);

    if (!s)
        s = read_int(&r.n_layers, audio, "encoder_layers", name, err);
    if (!s)
        s = check_gelu(audio, "activation_function", name, err);
    if (!s)
        s = read_window(&r, audio, name, err);
    if (!s)
        s = read_qformer(&r, json_hf_member(audio, "qformer_config"), name, err);
    if (!s && json_hf_member(root, "audio_token_id"))
        s = json_hf_int(root, "audio_token_id", 0, INT32_MAX, &token, name, err);
    r.token = (int32_t)token;
    if (!s)
        *c = r;
    return s;
}
