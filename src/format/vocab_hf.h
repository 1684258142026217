/* The vocabulary of a Hugging Face directory. */
#ifndef PV_FORMAT_VOCAB_HF_H
#define PV_FORMAT_VOCAB_HF_H

#include "format/vocab.h"

enum { VOCAB_HF_MAX_FILE = 256 << 20 };

/* Read DIR/tokenizer.json, else vocab.json with merges.txt; then what tokenizer_config.json and
 * the chat template files add. *out is NULL, with PV_OK, when the directory has no vocabulary.
 * A tokenizer that is not Qwen2's byte-level BPE is PV_E_UNSUPPORTED. Whether the merges agree
 * with the tokens is found out by tokenizer_open. */
enum pv_status vocab_hf_open(struct vocab **out, const char *dir, struct pv_error *err);
/* The same from a tokenizer.json in memory; `where` names it in errors. */
enum pv_status vocab_hf_parse(struct vocab **out, const char *json, size_t len, const char *where,
                              struct pv_error *err);
void vocab_hf_close(struct vocab **v); /* for both; NULL is fine */

#endif
