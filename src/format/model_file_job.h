/* State of one conversion to GGUF, shared by the writers of decoder, tower and metadata. */
#ifndef PV_FORMAT_MODEL_FILE_JOB_H
#define PV_FORMAT_MODEL_FILE_JOB_H

#include "format/gguf_write.h"
#include "format/model_file_parts.h"

enum { JOB_CHUNK = 1 << 16 /* elements decoded at a time; a multiple of every block */ };

struct write_job {
    const struct model_file *mf;     /* NULL: a companion is written */
    const char *path;                /* of the input */
    struct gguf_writer *w;           /* the file being written now */
    enum dtype type;                 /* requested for matrices */
    const struct write_watch *watch; /* may be NULL */
    float *values;                   /* [2 * JOB_CHUNK]; only write_patch uses the second half */
    uint8_t *bytes;                  /* JOB_CHUNK elements in any type */
};

/* The type a matrix gets: rows that are not whole blocks cannot be quantised. */
static inline enum dtype write_matrix_type(int64_t cols, enum dtype type)
{
    return cols % dtype_block(type) ? DTYPE_F16 : type;
}

/* Allocate the buffers of a job whose other fields are set. Fails if its type cannot be written;
 * `out_path` is for the message. */
enum pv_status write_job_open(struct write_job *j, const char *out_path, struct pv_error *err);
void write_job_close(struct write_job *j);

/* Write the values of one tensor as type `to`. */
enum pv_status write_tensor(struct write_job *j, const struct tensor *t, enum dtype to,
                            struct pv_error *err);
/* Write n values, at most JOB_CHUNK, as type `to`; `name` is for messages. */
enum pv_status write_values(struct write_job *j, const float *values, int64_t n, enum dtype to,
                            const char *name, struct pv_error *err);

/* expert_write.c: write the experts of a sparse layer of a directory: their entries in the tensor
 * list, or (data) their values. */
enum pv_status write_experts(struct write_job *j, int layer, bool data, struct pv_error *err);

/* Write the keys general.*. */
void write_general(struct write_job *j, const char *arch, const char *type);
/* Write all keys of the decoder, for a model that is read from a directory. */
enum pv_status write_meta_text(struct write_job *j, struct pv_error *err);
/* Copy the keys of a GGUF file, except those about the file itself and about a tower. */
void write_meta_copy(struct write_job *j, const struct gguf *g);

/* Write the tower's keys; its entries in the tensor list, or (data) its tensors' values. */
void write_meta_tower(struct write_job *j);
enum pv_status write_tower(struct write_job *j, bool data, struct pv_error *err);

#endif
