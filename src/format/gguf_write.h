/* Writing GGUF version 3, in one pass: first all metadata and the list of tensors, then the
 * tensors' bytes in the order of the list. The file gets its name when it is committed; until then
 * it has a temporary one. */
#ifndef PV_FORMAT_GGUF_WRITE_H
#define PV_FORMAT_GGUF_WRITE_H

#include "format/gguf.h"

struct gguf_writer;

/* A callback that gets the number of tensor bytes written so far, every few MiB. If it returns
 * false, writing stops. */
struct write_watch {
    pv_progress_fn fn; /* may be NULL */
    void *user;
};

/* `watch` may be NULL; it is copied. */
enum pv_status gguf_writer_open(struct gguf_writer **out, const char *path,
                                const struct write_watch *watch, struct pv_error *err);

/* Metadata. Keys must be unique. If memory runs out, gguf_writer_begin reports it. */
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_string(struct gguf_writer *w, const char *key, const char *s, size_t len);
void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t n);
/* Each value is 0 or 1. */
void gguf_writer_bools(struct gguf_writer *w, const char *key, const uint8_t *values, size_t n);
void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *values, size_t n);
void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct str *values,
                         size_t n);
/* Copies an entry of another file. */
void gguf_writer_value(struct gguf_writer *w, const struct gguf_value *v);

/* Enters a tensor in the list. `dim`: outermost first, n_dims 1..4; the last dimension is a
 * multiple of the type's block. */
void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype t, int n_dims,
                        const int64_t *dim);

/* Ends metadata and tensor list and writes them. */
enum pv_status gguf_writer_begin(struct gguf_writer *w, struct pv_error *err);
/* Writes the next bytes of the tensors' data, at most to the end of the current tensor, and the
 * padding between tensors. PV_E_CANCELLED if the callback returned false. */
enum pv_status gguf_writer_data(struct gguf_writer *w, const void *data, size_t len,
                                struct pv_error *err);
/* Both close and set *w NULL. Commit fails (and leaves nothing) when tensors lack bytes. */
enum pv_status gguf_writer_commit(struct gguf_writer **w, struct pv_error *err);
void gguf_writer_abandon(struct gguf_writer **w); /* NULL is fine */

#endif
