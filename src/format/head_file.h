/* A draft head on disk: one decoder layer that continues a target's hidden states (EAGLE and its
 * kin: MSD, ViSpec, Sparrow; EAGLE-3). A GGUF file of the architecture "prevue-head", or a
 * directory with config.json and safetensors in EAGLE's names. The embedding table is the target's,
 * and mostly the output matrix too, so a head means nothing without a target: head_file_fit says
 * what it is beside a given one. There are two layouts.
 *
 * EAGLE: the row of token t, from the second of a text on, is z = FC(e_t, h): the embedding of the
 * token and the target's state, after its last norm, of the token before. The layer's output stands
 * for the state of token t: the target's output matrix makes the logits of the next token of it.
 *
 * EAGLE-3: the feature of a row is g = FC(h_1, .., h_k), of the target's residual stream of the
 * token before after k of its layers. The layer's queries, keys and values are made of (norm(e_t),
 * norm(g)), twice as wide as the stream, and g is the residual. Its output, before the last norm,
 * is the next row's g where the target has not run yet. After the norm a matrix of the head's own
 * makes logits of them, often of a part of the target's tokens only: the draft vocabulary. */
#ifndef PV_FORMAT_HEAD_FILE_H
#define PV_FORMAT_HEAD_FILE_H

#include "format/model_file.h"

/* Which number turns the rotation of a row. */
enum head_positions {
    HEAD_POS_INDEX, /* the row's index in the target's prompt and answer */
    HEAD_POS_TARGET /* the position that the target gives the row */
};

/* What a row of a picture or video is, where the head sees it. */
enum head_visual {
    HEAD_VISUAL_EMBEDDING, /* the row as the target's first layer gets it (MSD) */
    HEAD_VISUAL_LAYER, /* the target's residual stream of that row after `visual_layer` layers */
    HEAD_VISUAL_FC     /* made as a row of text is (EAGLE) */
};

enum head_layout { HEAD_LAYOUT_EAGLE, HEAD_LAYOUT_EAGLE3 };

enum { HEAD_MAX_TARGET = 127, HEAD_MAX_FEATURES = 8 };

/* What a head reads of each of the target's rows. */
struct head_features {
    int n;                        /* 0: the state after the last norm; else that many of: */
    int layer[HEAD_MAX_FEATURES]; /* the residual stream after so many layers, 0: before the first
                                   */
};

struct head_config {
    /* vocab, max_context and stop tokens mean nothing; rope_theta 0: the target's. */
    struct config c;
    enum head_layout layout;
    /* Of EAGLE-3. n 0: the file does not say which layers, see head_features_of. */
    struct head_features features;
    int n_features;     /* what the FC is made for, in states of the target */
    bool norm_residual; /* the residual is norm(g) instead of g */
    int draft_vocab;    /* tokens that it has logits of; 0: the target's vocabulary */
    enum head_positions positions;
    enum head_visual visual;
    int visual_layer;                 /* with HEAD_VISUAL_LAYER: from 1 */
    char target[HEAD_MAX_TARGET + 1]; /* the target's name, for people; "": not said */
};

/* NULL where the head has none; a missing norm is no norm. H hidden. Of EAGLE-3, layer.attn_norm is
 * of the embedding, hidden_norm of the feature; all of these norms are there. */
struct head_tensors {
    const struct tensor *fc, *fc_bias; /* EAGLE [H, 2 H], embedding first; EAGLE-3 [H, k H]; [H] */
    const struct tensor *embed_norm, *hidden_norm; /* [H]: EAGLE: before the FC */
    const struct tensor *norm;                     /* [H]: of the output */
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

/* The target's ids of the draft vocabulary, [draft_vocab] and all different; NULL: they are the
 * same.
 */
const int32_t *head_file_draft_ids(const struct head_file *hf);
/* What the head reads of a target of so many layers, which it fits. */
struct head_features head_features_of(const struct head_config *h, int n_layers);

/* Whether a path looks like a head: it is then opened as one, with its errors. */
bool head_file_is(const char *path);

/* The configuration of the head's layer beside a target: *out is complete. PV_E_ARG, naming both
 * files, when they do not belong together; `target_path` is for that. */
enum pv_status head_file_fit(const struct head_file *hf, const struct config *target,
                             const char *target_path, struct config *out, struct pv_error *err);

/* As model_file_write_gguf. */
enum pv_status head_file_write_gguf(const struct head_file *hf, const char *out_path,
                                    enum dtype type, const struct write_watch *watch,
                                    struct pv_error *err);

#endif
