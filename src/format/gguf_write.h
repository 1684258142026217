/* Writing GGUF version 3, in one pass: first all metadata and the list of tensors, then the
 * tensors' bytes in the order of the list. The file appears under its name when committed. */
#ifndef PV_FORMAT_GGUF_WRITE_H
#define PV_FORMAT_GGUF_WRITE_H

#include "format/gguf.h"

struct gguf_writer;

/* Told how many bytes of the tensors are written, every few MiB; false stops. */
struct write_watch {
    pv_progress_fn fn; /* may be NULL */
    void *user;
};

/* `watch` may be NULL; it is copied. */
enum pv_status gguf_writer_open(struct gguf_writer **out, const char *path,
                                const struct write_watch *watch, struct pv_error *err);

/* Metadata. Keys must be unique. A failure (memory) is kept and reported by gguf_writer_begin. */
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_string(struct gguf_writer *w, const char *key, const char *s, size_t len);
void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t n);
/* Each 0 or 1. */
void gguf_writer_bools(struct gguf_writer *w, const char *key, const uint8_t *values, size_t n);
void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *values, size_t n);
void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct str *values,
                         size_t n);
/* An entry of another file, of any kind. */
void gguf_writer_value(struct gguf_writer *w, const struct gguf_value *v);

/* A tensor of the given shape (outermost first, n_dims 1..4, rows of whole blocks). */
void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype t, int n_dims,
                        const int64_t *dim);

/* Ends metadata and tensor list and writes them. */
enum pv_status gguf_writer_begin(struct gguf_writer *w, struct pv_error *err);
/* The next bytes of the tensors' data, at most to the end of the current tensor. Padding between
 * tensors is added. PV_E_CANCELLED when the watch says so. */
enum pv_status gguf_writer_data(struct gguf_writer *w, const void *data, size_t len,
                                struct pv_error *err);
/* Both close and set *w NULL. Commit fails (and leaves nothing) when tensors lack bytes. */
enum pv_status gguf_writer_commit(struct gguf_writer **w, struct pv_error *err);
void gguf_writer_abandon(struct gguf_writer **w); /* NULL is fine */

#endif
