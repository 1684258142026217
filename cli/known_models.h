/* Published checkpoints that prevue runs: where to find them, their sizes and memory needs. Sizes
 * are computed from the shapes, not measured. */
#ifndef PV_CLI_KNOWN_MODELS_H
#define PV_CLI_KNOWN_MODELS_H

#include <stdbool.h>
#include <stdint.h>

enum known_family {
    KNOWN_LLAVA_OV,
    KNOWN_LLAVA_VIDEO,
    KNOWN_QWEN2_VL,
    KNOWN_QWEN2_5_VL,
    KNOWN_QWEN3_VL,
    KNOWN_SALMONN
};

struct known_model {
    const char *repo; /* on the Hugging Face hub, ORGANISATION/NAME */
    const char *base; /* if this repository is an adapter (LoRA): its base model; else NULL */
    enum known_family family;
    int hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
    bool tied;
    int experts, used_experts; /* 0: dense; ffn is that of an expert */
    struct known_tower {
        int layers, hidden, ffn;
    } tower;
    const char *drafters; /* draft models: repositories separated by spaces, best first; or NULL */
    const char *head;     /* repository of a published draft head; NULL: none is known */
};

/* The i-th; NULL past the last. */
const struct known_model *known_model_at(int i);
/* Find a model by its repository, or by the part of that after the slash, in any case; or NULL. */
const struct known_model *known_model_find(const char *name);
/* The part after the slash: the directory into which the commands that we print download it. */
const char *repo_name(const char *repo);

const char *known_family_name(enum known_family family);
uint64_t known_parameters(const struct known_model *m);
/* Parameters that one token uses: not all experts. */
uint64_t known_active_parameters(const struct known_model *m);

/* Weight types for which sizes are printed. */
enum known_type { KNOWN_16BIT, KNOWN_Q8_0, KNOWN_Q4_0, KNOWN_TYPES };
const char *known_type_name(enum known_type type);
/* Bytes of all weights. Vectors are F32 in a quantised file. */
uint64_t known_weights(const struct known_model *m, enum known_type type);

/* Tokens of `frames` frames of this size with the family's own settings. */
int known_video_tokens(const struct known_model *m, int frames, int height, int width);
/* Bytes of a KV cache of `tokens` tokens with 16-bit numbers. */
uint64_t known_kv(const struct known_model *m, int64_t tokens);

#endif
