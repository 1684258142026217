/* The tokenizer's data in a GGUF file. */
#ifndef PV_FORMAT_VOCAB_GGUF_H
#define PV_FORMAT_VOCAB_GGUF_H

#include "format/gguf.h"

enum { VOCAB_GGUF_MAX_MERGES = 1 << 23 };

/* Strings borrow from `g`, which must outlive the vocabulary. Returns PV_OK with *out = NULL if the
 * file has no tokenizer or an unsupported one; *why then gives the reason as a clause (static
 * text). */
enum pv_status vocab_gguf_open(struct vocab **out, const struct gguf *g, const char **why,
                               struct pv_error *err);
void vocab_gguf_close(struct vocab **v);

#endif
