/* What a head file is made of: shared by its readers and its writer, by nobody else. */
#ifndef PV_FORMAT_HEAD_FILE_PARTS_H
#define PV_FORMAT_HEAD_FILE_PARTS_H

#include "format/gguf.h"
#include "format/head_file.h"

#define HEAD_ARCH "prevue-head"

struct head_file {
    char *path; /* owned */
    struct head_config config;
    struct head_tensors tensors;
    struct gguf *gguf;               /* owned; NULL for a directory */
    struct safetensors *safetensors; /* owned; NULL for GGUF */
    const char *prefix;              /* of all names in a directory; static */
};

/* A tensor that is no part of a layer. */
struct head_role {
    const char *hf, *gguf;
    bool needed, wide; /* wide: a matrix [H, 2 H], else a vector [H] */
    size_t slot;       /* in struct head_tensors */
};

enum { HEAD_ROLE_COUNT = 5 };

extern const struct head_role head_role[HEAD_ROLE_COUNT];

/* The words of the two enums; NULL past the last. */
const char *head_positions_word(int i);
const char *head_visual_word(int i);
/* Their numbers; -1: no such word. */
int head_positions_find(const char *s, size_t len);
int head_visual_find(const char *s, size_t len);
/* A printable copy of the target's name. */
void head_set_target(struct head_config *h, const char *s, size_t len);

/* The name of a layer's tensor, after the prefix. */
const char *head_layer_name(const struct head_file *hf, int role, char *name, size_t cap);
const struct tensor *head_find_tensor(const struct head_file *hf, const char *name);

/* A directory: opens config.json and the safetensors of hf->path, and finds the prefix. Not in a
 * CORE build. */
enum pv_status head_open_dir(struct head_file *hf, uint64_t limit, struct pv_error *err);
/* The text of a config.json; q_rows: of the q matrix. For tests. */
enum pv_status head_config_parse(struct head_config *out, const char *json, size_t len,
                                 int64_t q_rows, const char *name, struct pv_error *err);

#endif
