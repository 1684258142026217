/* The bounds and relations every audio encoder's configuration must satisfy. After
 * audio_config_check the products that later code forms (positions * AUDIO_STRIDE, AUDIO_TAPS *
 * hidden, ...) fit an int. */
#include "format/audio_config.h"

#include "format/config.h"
#include "tensor/device.h"

#include <math.h>

enum {
    MAX_MEL = 1 << 10,
    MAX_HIDDEN = 1 << 14,
    MAX_FFN = 1 << 17,
    MAX_HEADS = 1024,
    MAX_POSITIONS = 1 << 14,
    MAX_TOKENS = 512, /* of a chunk */
    MAX_TOKEN = 1 << 22
};

static const char whose[] = "the audio encoder's";

static enum pv_status check_heads(int hidden, int n_heads, const char *of, const char *where,
                                  struct pv_error *err)
{
    if (hidden % n_heads || hidden / n_heads % 2 || hidden / n_heads > DEVICE_MAX_HEAD_DIM)
        return fail(err, PV_E_FORMAT,
                    "%s: %d heads of the %s do not share its hidden size %d in even parts of at "
                    "most %d",
                    where, n_heads, of, hidden, (int)DEVICE_MAX_HEAD_DIM);
    return PV_OK;
}

static enum pv_status check_eps(float eps, const char *of, const char *where, struct pv_error *err)
{
    if (!isfinite(eps) || eps <= 0 || eps > 0.1f)
        return fail(err, PV_E_FORMAT, "%s: the norm epsilon of the %s is %g, outside 0 to 0.1",
                    where, of, (double)eps);
    return PV_OK;
}

enum pv_status audio_config_check(struct audio_config *c, const char *where, struct pv_error *err)
{
    const struct config_bound bounds[] = {
        { "number of mel filters", c->mel, 1, MAX_MEL },
        { "hidden size", c->hidden, 1, MAX_HIDDEN },
        { "number of positions", c->positions, 1, MAX_POSITIONS },
        { "number of layers", c->n_layers, 1, AUDIO_MAX_LAYERS },
        { "number of attention heads", c->n_heads, 1, MAX_HEADS },
        { "feed-forward size", c->ffn, 1, MAX_FFN },
        { "window", c->window, 1, MAX_POSITIONS },
        { "Q-Former's hidden size", c->q_hidden, 1, MAX_HIDDEN },
        { "Q-Former's number of layers", c->q_layers, 1, AUDIO_MAX_LAYERS },
        { "Q-Former's number of attention heads", c->q_heads, 1, MAX_HEADS },
        { "Q-Former's feed-forward size", c->q_ffn, 1, MAX_FFN },
        { "token", c->token, -1, MAX_TOKEN },
    };
    enum pv_status s =
        config_check_bounds(bounds, sizeof bounds / sizeof *bounds, whose, where, err);

    if (!s)
        s = check_heads(c->hidden, c->n_heads, "audio encoder", where, err);
    if (!s)
        s = check_heads(c->q_hidden, c->q_heads, "audio Q-Former", where, err);
    if (!s)
        s = check_eps(c->eps, "audio encoder", where, err);
    if (!s)
        s = check_eps(c->q_eps, "audio Q-Former", where, err);
    if (!s && c->positions % c->window)
        s = fail(err, PV_E_FORMAT,
                 "%s: the audio encoder's %d positions are not a multiple of its window of %d",
                 where, c->positions, c->window);
    if (!s && c->positions / c->window > MAX_TOKENS)
        s = fail(err, PV_E_UNSUPPORTED,
                 "%s: %d tokens of %d frames are made of a chunk of sound, at most %d are possible",
                 where, c->positions / c->window, c->window, (int)MAX_TOKENS);
    if (!s)
        c->head_dim = c->hidden / c->n_heads;
    return s;
}
