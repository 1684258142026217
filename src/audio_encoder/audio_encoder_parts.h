/* Shared by the files of the audio encoder: weights and scratch memory. */
#ifndef PV_AUDIO_ENCODER_AUDIO_ENCODER_PARTS_H
#define PV_AUDIO_ENCODER_AUDIO_ENCODER_PARTS_H

#include "audio_encoder/audio_encoder.h"
#include "base/mem.h"
#include "vision/tower_layer.h"

/* A layer of the Q-Former. */
struct query_layer {
    struct matrix self_v, self_o;
    struct matrix q, k, v, o;
    struct matrix up, down;
    const float *self_norm, *self_norm_bias, *norm, *norm_bias, *ffn_norm, *ffn_norm_bias;
};

struct audio_encoder {
    struct audio_config c;
    int out; /* hidden size of the decoder */
    struct device *dev;
    enum dtype attn; /* of keys and values */
    struct matrix conv[2], proj;
    const float *position; /* [positions, hidden] */
    const float *norm, *norm_bias, *query, *query_norm, *query_bias;
    struct tower_layer *layer;
    struct query_layer *query_layer;
    float *small;       /* norms, biases and tables as f32, on the device */
    uint8_t *turned[2]; /* convolution weights with channels last, on the host */
};

struct audio_encoder_state {
    struct device *dev;
    struct device_work *work;
    struct vision_watch watch;
    float *block;    /* on the device; contains the following */
    float *features; /* [1 + frames, mel]: a row of zeros, then one for each feature frame */
    float *first;    /* [1 + frames, hidden]: the same after the first convolution */
    float *wide;     /* [TOWER_CHUNK, taps * widest]: the input rows of a convolution, joined */
    float *x, *q, *k, *v; /* these and the next three: see struct layer_room */
    float *xn, *tmp, *up;
    float *keys, *values;               /* [positions, q_hidden] */
    float *query, *part, *sum, *middle; /* [tokens, q_hidden], and middle [tokens, q_ffn] */
    float *tokens;                      /* [tokens, out] */
    int32_t *rows;                      /* [taps * TOWER_CHUNK] or [tokens] */
    struct arena arena;                 /* on the host; contains the following */
    int32_t *host_rows;                 /* host copy of rows */
    float *turned;                      /* [frames, mel] */
    int *segments;                      /* [TOWER_CHUNK + 1] */
};

/* One call of audio_encoder_encode. */
struct audio_encoder_pass {
    const struct audio_encoder *h;
    struct audio_encoder_state *st;
    const struct device_ops *ops;
};

/* qformer.c: frames [positions, hidden] -> st->tokens. */
void qformer_run(const struct audio_encoder_pass *p, const float *frames);
/* y [n, w->out] = x . w^T, TOWER_CHUNK rows at a time. */
void audio_encoder_multiply(const struct audio_encoder_pass *p, const struct matrix *w, float *y,
                            const float *x, int n);

#endif
