/* A vision adaptor on disk: a small network that makes a draft model's rows of pictures and sound
 * from the target's rows, so that the draft model needs no tower of its own (doc/speculation.md). A
 * GGUF file of the architecture "prevue-adaptor", or a directory with config.json and
 * model.safetensors; doc/formats.md has keys and names. Of a row x:
 *
 *   y = W_down gelu(W_up norm(x) + b_up) + b_down
 *
 * norm is RMSNorm, or LayerNorm where it has a bias; gelu is the exact one (erf). */
#ifndef PV_FORMAT_VISION_ADAPTOR_FILE_H
#define PV_FORMAT_VISION_ADAPTOR_FILE_H

#include "format/config.h"
#include "tensor/tensor.h"

enum { ADAPTOR_MAX_TARGET = 127 };

struct vision_adaptor_config {
    int in, middle, out;                 /* lengths of x, of what gelu takes, and of y */
    float eps;                           /* of the norm */
    char target[ADAPTOR_MAX_TARGET + 1]; /* the target's name, for people; "": not said */
};

/* NULL where there is none: only biases may be missing. */
struct vision_adaptor_tensors {
    const struct tensor *norm, *norm_bias; /* [in] */
    const struct tensor *up, *up_bias;     /* [middle, in] [middle] */
    const struct tensor *down, *down_bias; /* [out, middle] [out] */
};

struct vision_adaptor_file;
struct write_watch; /* gguf_write.h */

/* `file_limit` as in model_file_open. */
enum pv_status vision_adaptor_file_open(struct vision_adaptor_file **out, const char *path,
                                        uint64_t file_limit, struct pv_error *err);
/* A file already in memory as GGUF, which is borrowed; `name` is for messages. */
enum pv_status vision_adaptor_file_open_memory(struct vision_adaptor_file **out, const void *data,
                                               size_t size, const char *name, struct pv_error *err);
void vision_adaptor_file_close(struct vision_adaptor_file **af);
const struct vision_adaptor_config *vision_adaptor_file_config(
    const struct vision_adaptor_file *af);
const struct vision_adaptor_tensors *vision_adaptor_file_tensors(
    const struct vision_adaptor_file *af);

/* Whether a path looks like an adaptor: it is then opened as one, with its errors. */
bool vision_adaptor_file_is(const char *path);

/* Whether it maps rows of `target` to rows of `draft`: either may be the embedding alone, or with
 * the further vectors of a family that has them (config_media_width). PV_E_ARG, naming the files,
 * when it does not. */
enum pv_status vision_adaptor_file_fit(const struct vision_adaptor_file *af,
                                       const struct config *target, const char *target_path,
                                       const struct config *draft, const char *draft_path,
                                       struct pv_error *err);

/* As model_file_write_gguf. */
enum pv_status vision_adaptor_file_write_gguf(const struct vision_adaptor_file *af,
                                              const char *out_path, enum dtype type,
                                              const struct write_watch *watch,
                                              struct pv_error *err);

#endif
