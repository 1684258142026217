/* A draft head on disk: one decoder layer that continues a target's hidden states (EAGLE, MSD,
 * ViSpec, Sparrow, EAGLE-3). It is a GGUF file of the architecture "prevue-head", or a directory
 * with config.json and safetensors in EAGLE's names. The embedding table is the target's, and
 * usually the LM head too, so a draft head is usable only with its target: head_file_fit checks a
 * pair and completes the configuration. There are two layouts.
 *
 * EAGLE: the layer's input for token t (from the second token on) is z = FC(e_t, h), where e_t is
 * the token's embedding and h the target's state of the token before, after the last norm. The
 * layer's output estimates the target's state of token t; the target's LM head computes the logits
 * of the next token from it.
 *
 * EAGLE-3: the feature of token t is g = FC(h_1, .., h_k), where h_i is the target's residual
 * stream of the token before, after one of k layers. Queries, keys and values are computed from
 * (norm(e_t), norm(g)), which is twice as wide as the stream; g is the residual. For tokens that
 * the target has not processed yet, g is the layer's output of the token before, ahead of the last
 * norm. The head's own LM head computes logits after that norm, often for a subset of the target's
 * tokens only: the draft vocabulary. */
#ifndef PV_FORMAT_HEAD_FILE_H
#define PV_FORMAT_HEAD_FILE_H

#include "format/model_file.h"

/* Which number is the position of a row in rotary embedding. */
enum head_positions {
    HEAD_POS_INDEX, /* the row's index in the target's prompt and answer */
    HEAD_POS_TARGET /* the position that the target gives the row */
};

/* What the head's input is for a row of a picture or video. */
enum head_visual {
    HEAD_VISUAL_EMBEDDING, /* the row as the target's first layer gets it (MSD) */
    HEAD_VISUAL_LAYER, /* the target's residual stream of that row after `visual_layer` layers */
    HEAD_VISUAL_FC     /* FC(e, h), as for a row of text (EAGLE) */
};

enum head_layout { HEAD_LAYOUT_EAGLE, HEAD_LAYOUT_EAGLE3 };

enum { HEAD_MAX_TARGET = 127, HEAD_MAX_FEATURES = 8 };

/* Which states of each of the target's rows a head reads. */
struct head_features {
    int n; /* 0: the state after the last norm; else the residual stream at n places: */
    int layer[HEAD_MAX_FEATURES]; /* after this many layers; 0: before the first */
};

struct head_config {
    /* vocab, max_context and stop tokens are unused; rope_theta 0: the target's. */
    struct config c;
    enum head_layout layout;
    /* EAGLE-3. n = 0: the file does not say which layers; see head_features_of. */
    struct head_features features;
    int n_features;     /* number of the target's states that the FC takes */
    bool norm_residual; /* the residual is norm(g) instead of g */
    int draft_vocab;    /* number of tokens that it has logits for; 0: the target's vocabulary */
    enum head_positions positions;
    enum head_visual visual;
    int visual_layer;                 /* with HEAD_VISUAL_LAYER: from 1 */
    char target[HEAD_MAX_TARGET + 1]; /* the target's name, for people; "": unknown */
};

/* NULL if the head lacks the tensor; a missing norm is not applied. H hidden. In EAGLE-3,
 * layer.attn_norm normalises the embedding and hidden_norm the feature; both must exist. */
struct head_tensors {
    const struct tensor *fc, *fc_bias; /* EAGLE [H, 2 H], embedding first; EAGLE-3 [H, k H]; [H] */
    const struct tensor *embed_norm, *hidden_norm; /* [H]; in EAGLE applied before the FC */
    const struct tensor *norm;                     /* [H]; applied to the output */
    const struct tensor *lm_head; /* EAGLE-3: [draft vocab, H]; NULL: the target's */
    struct layer_tensors layer;   /* attn_norm may be NULL */
};

struct head_file;
struct write_watch; /* gguf_write.h */

/* `file_limit` as in model_file_open. */
enum pv_status head_file_open(struct head_file **out, const char *path, uint64_t file_limit,
                              struct pv_error *err);
/* A head already in memory as GGUF, which is borrowed; `name` is for messages. */
enum pv_status head_file_open_memory(struct head_file **out, const void *data, size_t size,
                                     const char *name, struct pv_error *err);
void head_file_close(struct head_file **hf);
const struct head_config *head_file_config(const struct head_file *hf);
const struct head_tensors *head_file_tensors(const struct head_file *hf);

/* [draft_vocab] the target's id of each token of the draft vocabulary, all different; NULL: both
 * vocabularies are the same. */
const int32_t *head_file_draft_ids(const struct head_file *hf);
/* Which states the head reads from a target with n_layers layers that head_file_fit accepted. */
struct head_features head_features_of(const struct head_config *h, int n_layers);

/* Whether a path looks like a draft head and should be opened as one. */
bool head_file_is(const char *path);

/* The complete configuration of the head's layer when used with this target. PV_E_ARG, naming both
 * files, if they do not belong together; `target_path` is for that message. */
enum pv_status head_file_fit(const struct head_file *hf, const struct config *target,
                             const char *target_path, struct config *out, struct pv_error *err);

/* Number of tensors of ViSpec's adaptor in the file. They are not used: the head drafts as if it
 * had been trained without one. */
int head_file_adaptor(const struct head_file *hf);
/* Like model_file_write_gguf. */
enum pv_status head_file_write_gguf(const struct head_file *hf, const char *out_path,
                                    enum dtype type, const struct write_watch *watch,
                                    struct pv_error *err);

#endif
