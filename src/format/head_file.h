/* A draft head on disk: one decoder layer that continues a target's hidden states (EAGLE and its
 * kin: MSD, ViSpec, Sparrow). A GGUF file of the architecture "prevue-head", or a directory with
 * config.json and safetensors in EAGLE's names. Embedding table and output matrix are the target's,
 * so a head means nothing without one: head_file_fit says what it is beside a given target.
 *
 * The row of token t, from the second of a text on, is z = FC(e_t, h): the embedding of the token
 * and the target's state, after its last norm, of the token before. The layer's output stands for
 * the state of token t: the target's output matrix makes the logits of the next token of it. */
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

enum { HEAD_MAX_TARGET = 127 };

struct head_config {
    /* vocab, max_context and stop tokens mean nothing; rope_theta 0: the target's. */
    struct config c;
    enum head_positions positions;
    enum head_visual visual;
    int visual_layer;                 /* with HEAD_VISUAL_LAYER: from 1 */
    char target[HEAD_MAX_TARGET + 1]; /* the target's name, for people; "": not said */
};

/* NULL where the head has none; a missing norm is no norm. H hidden. */
struct head_tensors {
    const struct tensor *fc, *fc_bias;             /* [H, 2 H], embedding first; [H] */
    const struct tensor *embed_norm, *hidden_norm; /* [H]: before the FC */
    const struct tensor *norm;                     /* [H]: of the output */
    struct layer_tensors layer;                    /* attn_norm may be NULL */
};

struct head_file;

/* `file_limit` as in model_file_open. */
enum pv_status head_file_open(struct head_file **out, const char *path, uint64_t file_limit,
                              struct pv_error *err);
/* A head already in memory as GGUF, which is borrowed; `name` is for messages. */
enum pv_status head_file_open_memory(struct head_file **out, const void *data, size_t size,
                                     const char *name, struct pv_error *err);
void head_file_close(struct head_file **hf);
const char *head_file_path(const struct head_file *hf);
const struct head_config *head_file_config(const struct head_file *hf);
const struct head_tensors *head_file_tensors(const struct head_file *hf);

/* Whether a path looks like a head: it is then opened as one, with its errors. */
bool head_file_is(const char *path);

/* The configuration of the head's layer beside a target: *out is complete. PV_E_ARG, naming both
 * files, when they do not belong together; `target_path` is for that. */
enum pv_status head_file_fit(const struct head_file *hf, const struct config *target,
                             const char *target_path, struct config *out, struct pv_error *err);

/* As model_file_write_gguf. */
enum pv_status head_file_write_gguf(const struct head_file *hf, const char *out_path,
                                    enum dtype type, struct pv_error *err);

#endif
