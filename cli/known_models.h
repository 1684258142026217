/* Published checkpoints that prevue runs: where they are, how large they are, and what they need.
 * Sizes come from the shapes, not from what somebody measured. */
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
    const char *base; /* the repository that this one is an adapter (LoRA) of; NULL: it is whole */
    enum known_family family;
    int hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
    bool tied;
    int experts, used_experts; /* 0: dense; ffn is that of an expert */
    struct known_tower {
        int layers, hidden, ffn;
    } tower;
    const char
        *drafters; /* repositories of draft models, best first, separated by spaces; NULL: none */
    const char *head; /* repository of a published draft head; NULL: none is known */
};

/* The i-th; NULL past the last. */
const struct known_model *known_model_at(int i);
/* By its repository, or by what comes after the slash of that, whatever the case; NULL: unknown. */
const struct known_model *known_model_find(const char *name);
/* What comes after the slash: where the commands that we print put a repository. */
const char *repo_name(const char *repo);

const char *known_family_name(enum known_family family);
uint64_t known_parameters(const struct known_model *m);
/* Of these, those that a token uses: not all experts. */
uint64_t known_active_parameters(const struct known_model *m);

/* Types of weights that the table is printed for. */
enum known_type { KNOWN_16BIT, KNOWN_Q8_0, KNOWN_Q4_0, KNOWN_TYPES };
const char *known_type_name(enum known_type type);
/* Bytes of all weights. Vectors are F32 in a quantised file. */
uint64_t known_weights(const struct known_model *m, enum known_type type);

/* Tokens that so many frames of this size become with the family's own settings. */
int known_video_tokens(const struct known_model *m, int frames, int height, int width);
/* Bytes of the KV cache of so many tokens, of 16 bits a number. */
uint64_t known_kv(const struct known_model *m, int64_t tokens);

#endif
