/* The configuration of a decoder, from config.json or GGUF metadata.
 *
 * Every number is read from the file and checked against bounds. The only defaults for missing
 * keys are those listed in format/config_hf.c. */
#ifndef PV_FORMAT_CONFIG_H
#define PV_FORMAT_CONFIG_H

#include "base/status.h"
#include "format/vocab.h"

enum mrope_kind {
    MROPE_NONE,       /* one position number per token */
    MROPE_SECTIONS,   /* three, frequencies in sections (Qwen2.5-VL) */
    MROPE_INTERLEAVED /* three, frequencies interleaved (Qwen3-VL) */
};

/* Whether a family has a mixture of experts, and whether the weights of the chosen experts are
 * normalised to sum to 1. */
enum expert_rule {
    EXPERTS_NONE,  /* a dense decoder */
    EXPERTS_SAID,  /* normalised if the key norm_topk_prob is true */
    EXPERTS_NORMED /* always normalised, whatever the key says */
};

enum {
    CONFIG_MAX_LAYERS = 1024,
    CONFIG_MAX_STOP = 16,
    CONFIG_MAX_HIDDEN = 1 << 17,
    CONFIG_MAX_FFN = 1 << 20,
    CONFIG_MAX_HEADS = 1024,
    CONFIG_MAX_HEAD_DIM = 256, /* even, a multiple of 8 */
    CONFIG_MAX_VOCAB = 1 << 22,
    CONFIG_MAX_CONTEXT = 1 << 24,
    CONFIG_MAX_DEEPSTACK = 8,
    CONFIG_MAX_EXPERTS = 1024,
    CONFIG_MAX_USED = 64, /* experts that one token uses */
};

struct family;

struct config {
    const struct family *family; /* NULL: the layer of a draft head */
    char arch_name[32];          /* as the file spells it: "qwen2", "qwen2vl", "qwen3", ... */
    int hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn, vocab, max_context;
    float rope_theta, rms_eps;
    bool tied; /* the LM head is the embedding table */
    bool qkv_bias, qk_norm;
    enum mrope_kind mrope;
    int mrope_section[3]; /* sums to head_dim / 2 */
    /* Vectors that a row of a media item has beside its embedding: vector k is added to the
     * residual stream after layer k (Qwen3-VL's "deepstack"). Fewer than n_layers; 0 in other
     * families. */
    int n_deepstack;
    int n_stop;
    int32_t stop[CONFIG_MAX_STOP];
    /* Mixture of experts (doc/experts.md); n_experts 0: every layer is dense. A sparse layer has a
     * router and n_experts feed-forward networks of expert_ffn, of which a token uses n_used. */
    int n_experts, n_used, expert_ffn;
    bool norm_used;                 /* the weights of the used experts are made to sum to 1 */
    bool sparse[CONFIG_MAX_LAYERS]; /* the layer has experts */
    bool spread; /* the device distributes weights, keys and values over ranks (doc/ranks.md) */
};

/* A number of a configuration and its permitted range. */
struct config_bound {
    const char *name;
    int value, min, max;
};

/* PV_E_FORMAT names the first number that is out of range; `whose` precedes its name ("the"). */
enum pv_status config_check_bounds(const struct config_bound *bounds, size_t n, const char *whose,
                                   const char *where, struct pv_error *err);
/* Check the bounds and relations that hold for every file format; `where` names the file. */
enum pv_status config_check(const struct config *c, const char *where, struct pv_error *err);

/* Floats per row of a picture or video as the decoder takes it: the embedding, then n_deepstack
 * vectors. */
static inline int config_media_width(const struct config *c)
{
    return (1 + c->n_deepstack) * c->hidden;
}

/* Number of layers that have experts. */
int config_n_sparse(const struct config *c);

/* Add a stop token unless the list has it. Does nothing if the id is negative or the list full. */
void config_add_stop(struct config *c, int64_t id);
/* Add the control tokens spelled "<|im_end|>" and "<|endoftext|>", so that a model stops at the
 * same tokens whichever kind of file it is read from. `v` may be NULL. */
void config_add_spelled_stops(struct config *c, const struct vocab *v);

#endif
