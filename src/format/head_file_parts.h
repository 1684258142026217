/* The fields of struct head_file: private to its readers and its writer. */
#ifndef PV_FORMAT_HEAD_FILE_PARTS_H
#define PV_FORMAT_HEAD_FILE_PARTS_H

#include "format/companion_file.h"
#include "format/head_file.h"

#define HEAD_ARCH "prevue-head"

struct head_file {
    struct companion_file in;
    struct head_config config;
    struct head_tensors tensors;
    const char *prefix;       /* of all tensor names in a directory; static */
    const char *layer_prefix; /* follows `prefix` in names of the layer; static */
    int32_t *draft_ids;       /* owned; NULL: the target's ids */
    int n_draft_ids;
};

enum head_shape { HEAD_VECTOR, HEAD_FC, HEAD_LM_HEAD }; /* [H], [H, k H], [draft vocab, H] */

/* Whether a layout has a tensor. */
enum head_have { HEAD_NOT, HEAD_MAY, HEAD_MUST };

/* A tensor of a draft head that an ordinary decoder layer does not have. */
struct head_role {
    const char *hf, *gguf;
    enum head_have in_eagle, in_eagle3;
    bool in_layer; /* in a directory, EAGLE-3 names it like a tensor of its layer */
    enum head_shape shape;
    size_t slot; /* in struct head_tensors */
};

enum { HEAD_ROLE_COUNT = 6 };

extern const struct head_role head_role[HEAD_ROLE_COUNT];

/* The spelling of enumerator i in files; NULL past the last. */
const char *head_layout_word(int i);
const char *head_positions_word(int i);
const char *head_visual_word(int i);
/* The enumerator of a spelling, or -1. */
int head_layout_find(const char *s, size_t len);
int head_positions_find(const char *s, size_t len);
int head_visual_find(const char *s, size_t len);
/* Set h->target to a printable copy of a name. */
void head_set_target(struct head_config *h, const char *s, size_t len);

/* Set the size of the draft vocabulary, and check that the rows of the LM head (NULL: the head has
 * none), hf->draft_ids and config.draft_vocab agree about it. */
enum pv_status head_set_draft_vocab(struct head_file *hf, const struct tensor *lm_head,
                                    struct pv_error *err);

/* Set n_features and check an EAGLE-3 head as far as that is possible without its target. */
enum pv_status head_check_eagle3(struct head_file *hf, struct pv_error *err);
/* The part of head_file_fit for EAGLE-3. */
enum pv_status head_fit_eagle3(const struct head_file *hf, const struct config *target,
                               const char *target_path, struct pv_error *err);

/* Read the metadata of hf->gguf into hf->config. */
enum pv_status head_read_gguf(struct head_file *hf, struct pv_error *err);

/* The name of a tensor of this role, without hf->prefix. */
const char *head_role_name(const struct head_file *hf, const struct head_role *r, char *name,
                           size_t cap);
/* The same for a tensor of the layer (`role`: index into the roles of a decoder layer). */
const char *head_layer_name(const struct head_file *hf, int role, char *name, size_t cap);
const struct tensor *head_find_tensor(const struct head_file *hf, const char *name);

/* A directory: opens config.json and the safetensors of hf->in.path, finds the prefixes, and reads
 * the numbers and the draft vocabulary. Not in a CORE build. */
enum pv_status head_open_dir(struct head_file *hf, struct pv_error *err);
/* Parse the text of a config.json. q_rows: rows of the q matrix. Declared for tests. */
enum pv_status head_config_parse(struct head_config *out, const char *json, size_t len,
                                 enum head_layout layout, int64_t q_rows, const char *name,
                                 struct pv_error *err);

#endif
