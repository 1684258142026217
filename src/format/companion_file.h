/* What the files of a model's companions (a draft head, a vision adaptor) have in common: each is
 * one GGUF file with an architecture of its own, or a directory with config.json and safetensors.
 * This opens and closes the file, finds tensors and writes a GGUF file; numbers, names and shapes
 * are the business of head_file.c and vision_adaptor_file.c. */
#ifndef PV_FORMAT_COMPANION_FILE_H
#define PV_FORMAT_COMPANION_FILE_H

#include "format/gguf.h"
#include "tensor/tensor.h"

struct write_job;   /* model_file_job.h */
struct write_watch; /* gguf_write.h */

/* Bytes that a file may have where the caller sets no limit. */
#define COMPANION_FILE_LIMIT (UINT64_C(1) << 40)

/* Zero it before it is opened. */
struct companion_file {
    char *path;                      /* owned */
    uint64_t limit;                  /* bytes that a file may have */
    struct gguf *gguf;               /* owned; NULL for a directory */
    struct safetensors *safetensors; /* owned; NULL for GGUF */
};

/* Open a GGUF file, or note the path of a directory, whose files the caller then opens. A CORE
 * build refuses directories. `limit` as in model_file_open. Close it also after a failure. */
enum pv_status companion_open(struct companion_file *f, const char *path, uint64_t limit,
                              struct pv_error *err);
/* A file already in memory as GGUF, which is borrowed; `name` is for messages. */
enum pv_status companion_open_memory(struct companion_file *f, const void *data, size_t size,
                                     const char *name, struct pv_error *err);
void companion_close(struct companion_file *f);

/* Whether `path` is a GGUF file of this architecture. */
bool companion_is_gguf(const char *path, const char *arch);
/* Whether an open GGUF file is of this architecture; false if it does not say. */
bool companion_has_arch(const struct gguf *g, const char *arch);

const struct tensor *companion_find(const struct companion_file *f, const char *name); /* or NULL */
int companion_n_tensors(const struct companion_file *f);
const struct tensor *companion_tensor(const struct companion_file *f, int i);

/* Copy a name that a file gives, cut to `cap` - 1 bytes, '?' for what cannot be printed. */
void companion_copy_name(char *out, size_t cap, const char *s, size_t len);

/* What companion_write_gguf (companion_write.c) puts into a file. */
struct companion_contents {
    const void *file; /* the argument of both functions */
    int n_tensors;
    void (*keys)(struct write_job *j, const void *file);
    /* Tensor i, and its name in the GGUF file; NULL: the file has none. */
    const struct tensor *(*tensor)(const void *file, int i, char *name, size_t cap);
};

/* Write matrices as `type` where their rows are whole blocks of it, and vectors as F32. */
enum pv_status companion_write_gguf(const struct companion_file *f,
                                    const struct companion_contents *contents, const char *out_path,
                                    enum dtype type, const struct write_watch *watch,
                                    struct pv_error *err);

#endif
