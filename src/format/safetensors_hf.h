/* The weights of a Hugging Face directory: model.safetensors, or the shards that
 * model.safetensors.index.json names. See safetensors_hf.c for what is checked. */
#ifndef PV_FORMAT_SAFETENSORS_HF_H
#define PV_FORMAT_SAFETENSORS_HF_H

#include "base/file.h"
#include "tensor/tensor.h"

enum {
    SAFETENSORS_MAX_HEADER = 100000000, /* bytes */
    SAFETENSORS_MAX_NAME = 512,         /* bytes of a tensor name */
    SAFETENSORS_MAX_SHARDS = 4096,
    SAFETENSORS_MAX_TENSORS = 1 << 20
};

struct safetensors;

/* `limit`: the largest permitted size of each file, in bytes. */
enum pv_status safetensors_open(struct safetensors **out, const char *dir, uint64_t limit,
                                struct pv_error *err);
/* One file of a directory, by its name. */
enum pv_status safetensors_open_named(struct safetensors **out, const char *dir, const char *file,
                                      uint64_t limit, struct pv_error *err);
/* One file already in memory, which is borrowed; `name` is for messages. */
enum pv_status safetensors_open_memory(struct safetensors **out, const void *data, size_t size,
                                       const char *name, struct pv_error *err);
void safetensors_close(struct safetensors **st);
/* The files that contain the tensors. */
int safetensors_n_files(const struct safetensors *st);
const struct file_stamp *safetensors_stamp(const struct safetensors *st, int i);
/* Mapping and name of file i; the mapping is empty if the data was borrowed. */
const struct file_map *safetensors_map(const struct safetensors *st, int i, const char **path);

/* The tensors whose type we support, in file order. Those of other types (I64, BOOL, ...) are
 * skipped: no decoder needs them. */
int safetensors_n_tensors(const struct safetensors *st);
const struct tensor *safetensors_tensor(const struct safetensors *st, int i);
const struct tensor *safetensors_find(const struct safetensors *st, const char *name); /* or NULL */
/* The numbers of a one-dimensional I32 or I64 tensor, which the functions above skip. The caller
 * owns *out (mem_free); it is NULL if there is no such tensor. */
enum pv_status safetensors_ints(const struct safetensors *st, const char *name, int64_t **out,
                                int *n, struct pv_error *err);

#endif
