/* The tensors of an audio encoder by role: their names in safetensors and in GGUF files, and
 * their shapes. */
#ifndef PV_FORMAT_AUDIO_ROLES_H
#define PV_FORMAT_AUDIO_ROLES_H

#include "format/model_file.h"

enum audio_dim {
    ADIM_NONE,
    ADIM_ONE,
    ADIM_TAPS,
    ADIM_MEL,
    ADIM_POSITIONS,
    ADIM_HIDDEN,
    ADIM_FFN,
    ADIM_QUERY, /* hidden size of the Q-Former */
    ADIM_QUERY_FFN,
    ADIM_OUT /* hidden size of the decoder */
};

enum { AUDIO_DIMS = 3 };

struct audio_role {
    const char *hf;   /* after the prefix, or after that of the layer */
    const char *gguf; /* complete, or after "a.blk.N." or "a.qf.blk.N." */
    enum audio_dim dim[AUDIO_DIMS];
    size_t slot; /* offset in struct audio_tensors, vision_layer_tensors or query_layer_tensors */
};

/* Three lists of tensors: the first once, the others for each layer. */
enum audio_group { AUDIO_TOP, AUDIO_LAYERS, AUDIO_QUERY_LAYERS, AUDIO_GROUPS };

struct audio_roles {
    const struct audio_role *role;
    int n;
    const char *prefix; /* in safetensors; for layers: what precedes the layer's number */
};

/* The audio part of a model family's table. */
struct family_audio_encoder {
    struct audio_roles roles[AUDIO_GROUPS];
    /* Values of the published models, for files that lack the keys. */
    int n_heads, q_heads, window;
    float eps, q_eps;
};

#endif
