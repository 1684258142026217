/* The tensors of a decoder by role: their names in safetensors and in GGUF files, their shapes and
 * which architectures have them. */
#ifndef PV_FORMAT_ROLES_H
#define PV_FORMAT_ROLES_H

#include "format/config.h"
#include "format/model_file.h"

enum role_dim {
    DIM_NONE,
    DIM_HIDDEN,
    DIM_Q,    /* n_heads * head_dim */
    DIM_KV,   /* n_kv_heads * head_dim */
    DIM_HEAD, /* head_dim */
    DIM_FFN,
    DIM_VOCAB,
    DIM_EXPERTS /* number of experts */
};

enum role_need {
    NEED_ALWAYS,
    NEED_QKV_BIAS,
    NEED_QK_NORM,
    NEED_DENSE,  /* in layers without experts */
    NEED_SPARSE, /* in layers with experts */
    NEED_NEVER
};

struct role {
    const char *hf;   /* after "PREFIX.layers.N." */
    const char *gguf; /* after "blk.N." */
    enum role_dim dim[2];
    enum role_need need; /* NEVER: an error if present, because our decoder has no such term */
    size_t slot;         /* offset in struct layer_tensors */
};

enum { ROLE_LAYER_COUNT = 16 };

extern const struct role role_layer[ROLE_LAYER_COUNT];
extern const struct role role_embed, role_norm, role_lm_head; /* slot unused, names complete */

/* Whether this layer must have the tensor. */
bool role_needed(const struct role *r, const struct config *c, int layer);
/* The size of a dimension; 0 for DIM_NONE. */
int64_t role_dim_size(enum role_dim d, const struct config *c);

#endif
