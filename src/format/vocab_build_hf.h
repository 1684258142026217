/* Builds a vocabulary from files. It owns copies of all strings. */
#ifndef PV_FORMAT_VOCAB_BUILD_HF_H
#define PV_FORMAT_VOCAB_BUILD_HF_H

#include "format/vocab.h"

struct vocab_build {
    struct vocab v; /* first: the finished vocabulary is this struct */
    struct text_block *blocks;
    int token_cap, merge_cap;
    char *template; /* owned, v.chat_template points to it or to "" */
};

enum pv_status vocab_build_open(struct vocab_build **out, struct pv_error *err);
void vocab_build_close(struct vocab_build **b);

/* Memory for a string that lives as long as the vocabulary; NULL, with `err` set, if memory runs
 * out. */
char *vocab_build_room(struct vocab_build *b, size_t len, struct pv_error *err);

/* Give an id its spelling. An added token may repeat a known id with the same spelling, which
 * changes the kind. Any other repetition and an id out of range are errors; `where` names the
 * file. */
enum pv_status vocab_build_token(struct vocab_build *b, long long id, const char *s, size_t len,
                                 enum token_kind kind, const char *where, struct pv_error *err);
/* Append a merge, "left right"; the string is borrowed, not copied. */
enum pv_status vocab_build_merge(struct vocab_build *b, struct str s, const char *where,
                                 struct pv_error *err);
enum pv_status vocab_build_template(struct vocab_build *b, const char *s, size_t len,
                                    const char *where, struct pv_error *err);
/* The id of a spelling, or -1; added tokens are searched first. Slow: meant for the few special
 * tokens. */
int32_t vocab_build_find(const struct vocab_build *b, const char *s, size_t len);

#endif
