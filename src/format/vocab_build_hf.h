/* A vocabulary being put together from files: it owns the copies of all strings. */
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

/* Memory for a string that lives as long as the vocabulary, NULL (and err) when there is none. */
char *vocab_build_room(struct vocab_build *b, size_t len, struct pv_error *err);

/* Give id a spelling. An added token may repeat a known id with the same spelling: the kind is then
 * changed. Anything else twice, or an id no table may have, is an error; `where` names the file. */
enum pv_status vocab_build_token(struct vocab_build *b, long long id, const char *s, size_t len,
                                 enum token_kind kind, const char *where, struct pv_error *err);
/* The next merge, "left right"; the string is kept, not copied. */
enum pv_status vocab_build_merge(struct vocab_build *b, struct str s, const char *where,
                                 struct pv_error *err);
enum pv_status vocab_build_template(struct vocab_build *b, const char *s, size_t len,
                                    const char *where, struct pv_error *err);
/* The id of a spelling, added tokens first, -1: none. Slow: for the few named tokens. */
int32_t vocab_build_find(const struct vocab_build *b, const char *s, size_t len);

#endif
