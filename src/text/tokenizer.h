/* Text to token ids and back: the byte-level BPE of Qwen2, 2.5 and 3.
 *
 * A tokenizer is immutable after opening; any number of threads may use it at once. */
#ifndef PV_TEXT_TOKENIZER_H
#define PV_TEXT_TOKENIZER_H

#include "format/vocab.h"

struct tokenizer;

/* Borrows the vocabulary. Refuses one whose merges name tokens it does not have. */
enum pv_status tokenizer_open(struct tokenizer **out, const struct vocab *v, struct pv_error *err);
void tokenizer_close(struct tokenizer **t);

/* Ids of a text. Added tokens spelled in it become their ids: the control ones (role marks, end of
 * text) only when `parse_special`, so that text from outside cannot forge them. At most `cap` ids
 * are stored, *n is how many there are. Text that is not UTF-8 is PV_E_ARG; on failure *n is
 * untouched and what ids[] holds is undefined. */
enum pv_status tokenizer_encode(const struct tokenizer *t, const char *utf8, size_t len,
                                bool parse_special, int32_t *ids, size_t cap, size_t *n,
                                struct pv_error *err);

/* The bytes of one token, owned by the tokenizer, not NUL-terminated, possibly a part of a UTF-8
 * character; NULL when there is no such id. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len);

/* TOKEN_UNUSED for ids that do not exist. */
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);

/* The id of a token spelled as the vocabulary spells it, -1: none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *spelling, size_t len);

#endif
