/* Pre-tokenization: splits a text into pieces with Qwen2's regular expression. Byte pairs are
 * merged inside a piece only. */
#ifndef PV_TEXT_SPLIT_H
#define PV_TEXT_SPLIT_H

#include "base/status.h"

struct splitter;    /* the compiled expression: immutable, shared by threads */
struct split_match; /* scratch of one thread */

enum pv_status splitter_open(struct splitter **out, struct pv_error *err);
void splitter_close(struct splitter **sp);

enum pv_status split_match_open(struct split_match **out, const struct splitter *sp,
                                struct pv_error *err);
void split_match_close(struct split_match **m);

/* Length of the piece at offset `pos` of valid, normalised UTF-8; at least one character. */
enum pv_status split_next(const struct splitter *sp, struct split_match *m, const char *utf8,
                          size_t len, size_t pos, size_t *piece_len, struct pv_error *err);

/* The version of PCRE2, as text. */
void split_version(char *out, size_t size);

#endif
