/* The configuration of an audio encoder: an encoder like Whisper's, which turns log-mel features
 * into frames, and a Q-Former, which turns each window of frames into one token. Sizes come from
 * the shapes of tensors; the rest from config.json or GGUF metadata. */
#ifndef PV_FORMAT_AUDIO_CONFIG_H
#define PV_FORMAT_AUDIO_CONFIG_H

#include "base/status.h"

enum {
    AUDIO_MAX_LAYERS = 256,
    AUDIO_TAPS = 3,   /* width of the convolutions, in frames */
    AUDIO_STRIDE = 2, /* feature frames per frame of the encoder (stride of the 2nd convolution) */
    AUDIO_FRAMES_PER_SECOND = 50 /* of the encoder */
};

struct audio_config {
    int hidden;    /* 0: the model has no audio encoder, and all other fields are 0 */
    int mel;       /* mel filters, values per feature frame */
    int positions; /* frames of a chunk; attention spans the whole chunk */
    int n_layers, n_heads, head_dim, ffn; /* n_layers, q_layers: 0 until the tensors are counted */
    int window;                           /* frames per token; divides positions */
    int q_hidden, q_layers, q_heads, q_ffn;
    float eps, q_eps;
    int32_t token; /* id of the audio placeholder in the decoder's vocabulary; -1: none */
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

/* Check the bounds and relations that hold for every file format, and set head_dim. `where` names
 * the file in messages. */
enum pv_status audio_config_check(struct audio_config *c, const char *where, struct pv_error *err);

#endif
