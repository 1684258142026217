/* The vocabulary of a Hugging Face directory. */
#ifndef PV_FORMAT_VOCAB_HF_H
#define PV_FORMAT_VOCAB_HF_H

#include "format/vocab.h"

enum { VOCAB_HF_MAX_FILE = 256 << 20 };

/* Read DIR/tokenizer.json, or vocab.json and merges.txt if it does not exist; then special tokens
 * and template from tokenizer_config.json and the chat template files. Returns PV_OK with *out =
 * NULL if the directory has no vocabulary, and PV_E_UNSUPPORTED for a tokenizer that is not Qwen2's
 * byte-level BPE. tokenizer_open checks that the merges agree with the tokens. */
enum pv_status vocab_hf_open(struct vocab **out, const char *dir, struct pv_error *err);
/* The same from a tokenizer.json in memory; `where` names it in errors. */
enum pv_status vocab_hf_parse(struct vocab **out, const char *json, size_t len, const char *where,
                              struct pv_error *err);
void vocab_hf_close(struct vocab **v); /* for both; NULL is fine */

#endif
