/* Text to token ids and back: the byte-level BPE of Qwen2, 2.5 and 3.
 *
 * A tokenizer is immutable after opening; any number of threads may use it at once. */
#ifndef PV_TEXT_TOKENIZER_H
#define PV_TEXT_TOKENIZER_H

#include "format/vocab.h"

struct tokenizer;

/* Borrows the vocabulary. Refuses one whose merges name tokens that do not exist. */
enum pv_status tokenizer_open(struct tokenizer **out, const struct vocab *v, struct pv_error *err);
void tokenizer_close(struct tokenizer **t);

/* Tokenize a text. Added tokens that are spelled in it become their ids, but control tokens (roles,
 * end of text) only if `parse_special`, so that untrusted text cannot forge them. At most `cap` ids
 * are stored; *n is the total number. Text that is not UTF-8 is PV_E_ARG; on failure *n is
 * unchanged and ids[] undefined. */
enum pv_status tokenizer_encode(const struct tokenizer *t, const char *utf8, size_t len,
                                bool parse_special, int32_t *ids, size_t cap, size_t *n,
                                struct pv_error *err);

/* The bytes of one token, owned by the tokenizer, not NUL-terminated, possibly a part of a UTF-8
 * character; NULL if there is no such id. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len);

/* TOKEN_UNUSED for ids that do not exist. */
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);

/* The id of the token with this spelling in the vocabulary, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *spelling, size_t len);

#endif
