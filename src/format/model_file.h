/* A model on disk: a GGUF file (or the first of a split), or a Hugging Face directory. Opening
 * checks everything the decoder relies on: every needed tensor is there with the right shape and
 * a supported type, inside the file, not overlapping. */
#ifndef PV_FORMAT_MODEL_FILE_H
#define PV_FORMAT_MODEL_FILE_H

#include "base/file.h"
#include "format/config.h"
#include "format/vision_config.h"
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
    const struct tensor *gate, *up, *down;         /* [I,H] [I,H] [H,I]; NULL in a sparse layer */
    const struct tensor *router;                   /* [experts,H]; NULL in a dense layer */
};

/* A matrix [out, in] of one expert, as stored in the file. */
struct expert_weight {
    const struct tensor *t; /* contains the matrix, alone or with others */
    const void *data;
    /* 0: stored as contiguous rows of `in` elements. Otherwise it is stored transposed, [in, out],
     * and this is the number of bytes from one input to the next. */
    size_t step;
};

struct expert_tensors {
    struct expert_weight gate, up, down; /* [I,H] [I,H] [H,I], I: expert_ffn */
};

/* Copy the matrix to `to` as [out, in] in its type, transposing it if necessary. */
void expert_weight_copy(void *to, const struct expert_weight *w, int out, int in);

/* Tensors of one layer of a vision tower: weights [out, in] and biases, NULL where the tower has
 * none. A fused qkv tensor is presented as three tensors that point into it. */
struct vision_layer_tensors {
    const struct tensor *norm1, *norm1_bias, *norm2, *norm2_bias;
    const struct tensor *q, *k, *v, *o;
    const struct tensor *q_bias, *k_bias, *v_bias, *o_bias;
    const struct tensor *gate, *up, *down; /* up, down: fc1, fc2 where there is no gate */
    const struct tensor *gate_bias, *up_bias, *down_bias;
};

/* An MLP (two matrices with GELU between) that turns the tower's rows into tokens: a projector, or,
 * with a norm before it, a merger of several rows into one token. */
struct vision_merger {
    const struct tensor *norm, *norm_bias; /* [hidden]; for deepstack [merged] */
    const struct tensor *mm0, *mm0_bias;
    const struct tensor *mm2, *mm2_bias;
};

struct vision_tensors {
    /* [hidden, 3 * temporal * patch * patch], row (channel, frame, y, x); or, from an mmproj file,
     * one [hidden, 3 * patch * patch] per frame. */
    const struct tensor *patch[2];
    const struct tensor *patch_bias;
    const struct tensor *position; /* [positions, hidden] */
    struct vision_merger merger;   /* or the projector */
    struct vision_merger deepstack[VISION_MAX_DEEPSTACK];
    const struct tensor *newline; /* [out] */
};

/* Tensors of an audio encoder outside its layers, which have the form of a vision tower's layers.
 * Widths: H of the encoder, Q of the Q-Former, D of the decoder. */
struct audio_tensors {
    const struct tensor *conv1, *conv1_bias;      /* [H, mel, 3] [H] */
    const struct tensor *conv2, *conv2_bias;      /* [H, H, 3] [H] */
    const struct tensor *position;                /* [positions, H] */
    const struct tensor *norm, *norm_bias;        /* [H]; after the last layer */
    const struct tensor *query;                   /* [1, 1, Q] */
    const struct tensor *query_norm, *query_bias; /* [Q] */
    const struct tensor *proj, *proj_bias;        /* [D, Q] [D] */
};

/* A layer of the Q-Former. There is one query, whose self-attention sees only itself, so the
 * self-attention needs only the value and output matrices. A norm follows each part. */
struct query_layer_tensors {
    const struct tensor *self_v, *self_v_bias, *self_o, *self_o_bias; /* [Q, Q] [Q] */
    const struct tensor *self_norm, *self_norm_bias;
    const struct tensor *q, *q_bias, *o, *o_bias; /* cross-attention to the frames: [Q, Q] [Q] */
    const struct tensor *k, *k_bias, *v, *v_bias; /* [Q, H] [Q] */
    const struct tensor *norm, *norm_bias;
    const struct tensor *up, *up_bias, *down, *down_bias;
    const struct tensor *ffn_norm, *ffn_norm_bias;
};

struct model_file;
struct write_watch; /* gguf_write.h */

/* `path`: GGUF file or directory; `file_limit`: bytes of one file, 0 for the default (1 TiB).
 * In builds without jansson (CORE=1) a directory is PV_E_UNSUPPORTED.
 * `mmproj`: GGUF file with the vision tower. NULL: the tower is in `path` itself, or in a file of
 * the same directory whose name is "mmproj-" followed by that of `path`, or the model has none.
 * PV_E_ARG if `mmproj` is given for a model that contains a tower.
 * `families`: the known families, ended by NULL. */
enum pv_status model_file_open(struct model_file **out, const char *path, const char *mmproj,
                               uint64_t file_limit, const struct family *const *families,
                               struct pv_error *err);
/* The same with the changes of a PEFT adapter's directory (adapter_hf.h). The result can only be
 * written with model_file_write_gguf, which computes the changed matrices. */
enum pv_status model_file_open_adapted(struct model_file **out, const char *path,
                                       const char *adapter, uint64_t file_limit,
                                       const struct family *const *families, struct pv_error *err);
void model_file_close(struct model_file **mf);

/* How the vision tower of an open model gets another type. */
struct tower_cast {
    enum dtype type; /* one that row_can_encode */
    int threads;
    bool (*go_on)(void *user); /* asked after a matrix, on the calling thread; false:
                                  PV_E_CANCELLED; NULL: not asked */
    void *user;
};
/* Replace the matrices of F32, F16 and BF16 in the tower's layers and projector (or mergers) by
 * copies of another type, in memory; those whose rows are no whole blocks of it stay, but the MLPs
 * become vision_whole_ffn wide. Called at most once. */
enum pv_status model_file_cast_tower(struct model_file *mf, const struct tower_cast *how,
                                     struct pv_error *err);

const struct config *model_file_config(const struct model_file *mf);
const char *model_file_path(const struct model_file *mf);
const struct tensor *model_file_embed(const struct model_file *mf); /* [vocab, H] */
const struct tensor *model_file_norm(const struct model_file *mf);  /* [H] */
const struct tensor *model_file_lm_head(
    const struct model_file *mf); /* [vocab, H]; embed if tied */
const struct layer_tensors *model_file_layer(const struct model_file *mf, int i);
/* [n_experts] for a sparse layer, NULL for a dense one. */
const struct expert_tensors *model_file_experts(const struct model_file *mf, int layer);
/* Bytes of all experts of a layer; 0 for a dense one. */
uint64_t model_file_experts_size(const struct model_file *mf, int layer);
/* family NULL: no tower, and the tensors are all NULL. */
const struct vision_config *model_file_vision(const struct model_file *mf);
const struct vision_tensors *model_file_vision_tensors(const struct model_file *mf);
const struct vision_layer_tensors *model_file_vision_layer(const struct model_file *mf, int i);
/* Only for models with an audio encoder (vision_config.audio.hidden is not 0). */
const struct audio_tensors *model_file_audio_tensors(const struct model_file *mf);
const struct vision_layer_tensors *model_file_audio_layer(const struct model_file *mf, int i);
const struct query_layer_tensors *model_file_query_layer(const struct model_file *mf, int i);
/* All tensors of the files, in file order, for `prevue inspect`. */
int model_file_n_tensors(const struct model_file *mf);
const struct tensor *model_file_tensor(const struct model_file *mf, int i);
/* The files that contain them: identity when mapped, mapping and name. */
int model_file_n_files(const struct model_file *mf);
const struct file_stamp *model_file_stamp(const struct model_file *mf, int i);
const struct file_map *model_file_map(const struct model_file *mf, int i, const char **path);
/* The tokenizer's data, NULL when the file has none. */
const struct vocab *model_file_vocab(const struct model_file *mf);
/* Why model_file_vocab is NULL, as a clause ("the file has no tokenizer"); else NULL. */
const char *model_file_vocab_reason(const struct model_file *mf);

/* Write a model of either kind as GGUF. The tower goes into a second file in the same directory,
 * whose name is "mmproj-" followed by that of out_path; if one_file or family_tower.in_one_file is
 * true, it goes into the same file. 2-D weights become `type`, or F16 if their rows are not a
 * multiple of its block; norms and other 1-D tensors become F32. The MLPs of a vision tower become
 * vision_whole_ffn wide, by zeros. `watch` may be NULL. */
enum pv_status model_file_write_gguf(const struct model_file *mf, const char *out_path,
                                     enum dtype type, bool one_file,
                                     const struct write_watch *watch, struct pv_error *err);

#endif
