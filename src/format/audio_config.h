/* What an audio encoder needs to know: the Whisper-shaped encoder that turns log-mel features into
 * frames, and the Q-Former that turns each window of frames into one token. Sizes come from the
 * shapes of tensors; the rest from config.json or GGUF metadata. */
#ifndef PV_FORMAT_AUDIO_CONFIG_H
#define PV_FORMAT_AUDIO_CONFIG_H

#include "base/status.h"

enum {
    AUDIO_MAX_LAYERS = 256,
    AUDIO_TAPS = 3,   /* frames under a convolution */
    AUDIO_STRIDE = 2, /* feature frames for one frame of the encoder: the second convolution's */
    AUDIO_FRAMES_PER_SECOND = 50 /* of the encoder */
};

struct audio_config {
    int hidden;                           /* 0: the model does not hear, and the rest is 0 too */
    int mel;                              /* filters of the features */
    int positions;                        /* frames of a chunk, of which each sees all others */
    int n_layers, n_heads, head_dim, ffn; /* n_layers, q_layers: 0 until they are counted */
    int window;                           /* frames of a token; divides positions */
    int q_hidden, q_layers, q_heads, q_ffn;
    float eps, q_eps;
    int32_t token; /* in the decoder's vocabulary; -1: none */
};

/* Feature frames and tokens of a chunk. */
static inline int audio_chunk_frames(const struct audio_config *c)
{
    return c->positions * AUDIO_STRIDE;
}

static inline int audio_chunk_tokens(const struct audio_config *c)
{
    return c->positions / c->window;
}

/* Bounds and relations that must hold whatever the file; `where` names it. Sets head_dim. */
enum pv_status audio_config_check(struct audio_config *c, const char *where, struct pv_error *err);

#endif
