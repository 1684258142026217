/* A model on disk: a GGUF file (or the first of a split), or a Hugging Face directory. Opening
 * checks everything the decoder relies on: every needed tensor is there with the right shape and
 * a supported type, inside the file, not overlapping. */
#ifndef PV_FORMAT_MODEL_FILE_H
#define PV_FORMAT_MODEL_FILE_H

#include "format/config.h"
#include "format/vocab.h"
#include "tensor/tensor.h"

/* Tensors of one decoder layer; pointers borrow from the model file; NULL where the
 * architecture has none. H hidden, Q = n_heads * head_dim, K = n_kv_heads * head_dim, I ffn. */
struct layer_tensors {
    const struct tensor *attn_norm;                /* [H] */
    const struct tensor *q, *k, *v;                /* [Q,H] [K,H] [K,H] */
    const struct tensor *q_bias, *k_bias, *v_bias; /* [Q] [K] [K] */
    const struct tensor *q_norm, *k_norm;          /* [head_dim] */
    const struct tensor *o;                        /* [H,Q] */
    const struct tensor *ffn_norm;                 /* [H] */
    const struct tensor *gate, *up, *down;         /* [I,H] [I,H] [H,I] */
};

struct model_file;

/* `path`: GGUF file or directory; `file_limit`: bytes of one file, 0 for the default (1 TiB).
 * Without jansson (CORE) a directory is PV_E_UNSUPPORTED. */
enum pv_status model_file_open(struct model_file **out, const char *path, uint64_t file_limit,
                               struct pv_error *err);
void model_file_close(struct model_file **mf);

const struct config *model_file_config(const struct model_file *mf);
const char *model_file_path(const struct model_file *mf);
const struct tensor *model_file_embed(const struct model_file *mf); /* [vocab, H] */
const struct tensor *model_file_norm(const struct model_file *mf);  /* [H] */
const struct tensor *model_file_head(const struct model_file *mf);  /* [vocab, H]; embed if tied */
const struct layer_tensors *model_file_layer(const struct model_file *mf, int i);
/* All tensors of the files, in file order (inspect). */
int model_file_n_tensors(const struct model_file *mf);
const struct tensor *model_file_tensor(const struct model_file *mf, int i);
/* The tokenizer's data, NULL when the file has none. */
const struct vocab *model_file_vocab(const struct model_file *mf);
/* Why model_file_vocab is NULL, as a clause ("the file has no tokenizer"); else NULL. */
const char *model_file_vocab_reason(const struct model_file *mf);

/* Write a model file (either kind) as GGUF; 2-D weights become `type`, except where the row is
 * not a multiple of the block (then F16); 1-D tensors and norms F32. */
enum pv_status model_file_write_gguf(const struct model_file *mf, const char *out_path,
                                     enum dtype type, struct pv_error *err);

#endif
