/* One GGUF file, parsed: the private half of gguf.c, which joins the parts of a split model. */
#ifndef PV_FORMAT_GGUF_PART_H
#define PV_FORMAT_GGUF_PART_H

#include "base/file.h"
#include "format/gguf.h"
#include "format/names.h"

struct gguf_part {
    char *path;          /* owned; for messages */
    struct file_map map; /* owned; empty when `data` is borrowed */
    const uint8_t *data;
    size_t size;
    struct gguf_value *value; /* owned; [n_values] in file order */
    int n_values;
    struct names keys;     /* of `value` */
    struct tensor *tensor; /* owned; [n_tensors] in file order */
    char *tensor_name;     /* owned; [n_tensors, GGUF_MAX_NAME + 1] */
    int n_tensors;
};

/* Parse and check part->data[0..size). Call gguf_part_close after success and after failure. */
enum pv_status gguf_part_parse(struct gguf_part *part, struct pv_error *err);
void gguf_part_close(struct gguf_part *part);
const struct gguf_value *gguf_part_find(const struct gguf_part *part, const char *key);

/* Bytes of one element; 0 for strings and arrays, whose size varies. */
size_t gguf_kind_size(enum gguf_kind kind);
/* An integer of any integer kind; false for other kinds and for u64 beyond INT64_MAX. */
bool gguf_load_int(const uint8_t *p, enum gguf_kind kind, int64_t *out);

#endif
