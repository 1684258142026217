/* Reading GGUF files, versions 2 and 3: metadata and tensors. Files are untrusted; gguf.c lists
 * what is checked. */
#ifndef PV_FORMAT_GGUF_H
#define PV_FORMAT_GGUF_H

#include "base/file.h"
#include "format/vocab.h"
#include "tensor/tensor.h"

/* Kinds of metadata, numbered as in the file. */
enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KIND_COUNT
};

/* One metadata entry; pointers borrow from the file. `data` is the value as it lies in the file:
 * for a string its bytes, for an array its elements (strings with their lengths). */
struct gguf_value {
    struct str key;
    enum gguf_kind kind, elem; /* elem: of arrays */
    uint64_t n;                /* elements of an array, bytes of a string, else 1 */
    const uint8_t *data;
    size_t size;
};

enum {
    GGUF_MAX_NAME = 63,   /* bytes of a tensor name */
    GGUF_MAX_KEY = 65535, /* bytes of a key */
    GGUF_MAX_DIMS = 4,
    GGUF_MAX_PARTS = 1024, /* files of a split model */
    GGUF_MAX_VALUES = 1 << 20,
    GGUF_MAX_TENSORS = 1 << 20,
    GGUF_ALIGNMENT = 32 /* of tensors, if the file does not say */
};

struct gguf;

/* Open a file; "name-00001-of-0000N.gguf" opens all N parts, which must be in the same directory.
 * `limit` is the largest permitted size of each file in bytes. */
enum pv_status gguf_open(struct gguf **out, const char *path, uint64_t limit, struct pv_error *err);
/* One file already in memory, which is borrowed; `name` is for messages. */
enum pv_status gguf_open_memory(struct gguf **out, const void *data, size_t size, const char *name,
                                struct pv_error *err);
void gguf_close(struct gguf **g);
const char *gguf_path(const struct gguf *g);
/* The files of the model: one, or all parts. */
int gguf_n_files(const struct gguf *g);
const struct file_stamp *gguf_stamp(const struct gguf *g, int i);
/* Mapping and name of file i; the mapping is empty if the data was borrowed. */
const struct file_map *gguf_map(const struct gguf *g, int i, const char **path);

int gguf_n_tensors(const struct gguf *g);
const struct tensor *gguf_tensor(const struct gguf *g, int i);                 /* in file order */
const struct tensor *gguf_tensor_find(const struct gguf *g, const char *name); /* or NULL */

int gguf_n_values(const struct gguf *g);
const struct gguf_value *gguf_value(const struct gguf *g, int i);          /* in file order */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* or NULL */

/* Values by key. A missing key, another kind and a number out of [min, max] are PV_E_FORMAT. An
 * integer may have any integer kind, a float may be f32 or f64. */
enum pv_status gguf_int(const struct gguf *g, const char *key, int64_t min, int64_t max,
                        int64_t *out, struct pv_error *err);
enum pv_status gguf_float(const struct gguf *g, const char *key, double *out, struct pv_error *err);
enum pv_status gguf_string(const struct gguf *g, const char *key, struct str *out,
                           struct pv_error *err);
/* Exactly n integers; fewer or more elements are an error. */
enum pv_status gguf_ints(const struct gguf *g, const char *key, int32_t *out, int n,
                         struct pv_error *err);
/* Exactly n finite floating-point numbers. */
enum pv_status gguf_floats(const struct gguf *g, const char *key, float *out, int n,
                           struct pv_error *err);
/* Elements of an array of strings, at most `max`; *out is owned by the caller (mem_free). */
enum pv_status gguf_strings(const struct gguf *g, const char *key, int max, struct str **out,
                            int *n, struct pv_error *err);

/* Names of the ggml types, for messages and the writer. */
const char *gguf_type_name(uint32_t type);
bool gguf_type_to_dtype(uint32_t type, enum dtype *out);
uint32_t gguf_type_of(enum dtype t);

#endif
