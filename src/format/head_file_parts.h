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
    const char *layer_prefix;        /* after that, of its layer; static */
    int32_t *draft_ids;              /* owned; NULL: the target's ids */
    int n_draft_ids;
};

enum head_shape { HEAD_VECTOR, HEAD_FC, HEAD_LM_HEAD }; /* [H], [H, k H], [draft vocab, H] */

/* Which layouts have a tensor. */
enum head_have { HEAD_NOT, HEAD_MAY, HEAD_MUST };

/* A tensor that is no part of a layer as decoders have it. */
struct head_role {
    const char *hf, *gguf;
    enum head_have in_eagle, in_eagle3;
    bool in_layer; /* EAGLE-3 has it among its layer's, in a directory */
    enum head_shape shape;
    size_t slot; /* in struct head_tensors */
};

enum { HEAD_ROLE_COUNT = 6 };

extern const struct head_role head_role[HEAD_ROLE_COUNT];

/* The words of the enums; NULL past the last. */
const char *head_layout_word(int i);
const char *head_positions_word(int i);
const char *head_visual_word(int i);
/* Their numbers; -1: no such word. */
int head_layout_find(const char *s, size_t len);
int head_positions_find(const char *s, size_t len);
int head_visual_find(const char *s, size_t len);
/* A printable copy of the target's name. */
void head_set_target(struct head_config *h, const char *s, size_t len);

/* The draft vocabulary is as large as the LM head (NULL: the head has none), as hf->draft_ids and
 * what a configuration said (config.draft_vocab), which are all checked. */
enum pv_status head_set_draft_vocab(struct head_file *hf, const struct tensor *lm_head,
                                    struct pv_error *err);

/* How many states the FC takes, and everything else that can be wrong with such a head alone, */
enum pv_status head_check_eagle3(struct head_file *hf, struct pv_error *err);
/* and beside a target: as head_file_fit. */
enum pv_status head_fit_eagle3(const struct head_file *hf, const struct config *target,
                               const char *target_path, struct pv_error *err);

/* The metadata of hf->gguf. */
enum pv_status head_read_gguf(struct head_file *hf, struct pv_error *err);

/* The name of a tensor, after the prefix. */
const char *head_role_name(const struct head_file *hf, const struct head_role *r, char *name,
                           size_t cap);
/* Of one of a layer's. */
const char *head_layer_name(const struct head_file *hf, int role, char *name, size_t cap);
const struct tensor *head_find_tensor(const struct head_file *hf, const char *name);

/* A directory: opens config.json and the safetensors of hf->path, finds the prefixes, and reads the
 * numbers and the draft vocabulary. Not in a CORE build. */
enum pv_status head_open_dir(struct head_file *hf, uint64_t limit, struct pv_error *err);
/* The text of a config.json; q_rows: of the q matrix. For tests. */
enum pv_status head_config_parse(struct head_config *out, const char *json, size_t len,
                                 enum head_layout layout, int64_t q_rows, const char *name,
                                 struct pv_error *err);

#endif
