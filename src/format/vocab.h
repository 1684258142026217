/* The data of a byte-level BPE tokenizer, whatever file it came from. */
#ifndef PV_FORMAT_VOCAB_H
#define PV_FORMAT_VOCAB_H

#include "base/status.h"

enum token_kind {
    TOKEN_NORMAL,  /* spelled in GPT-2 byte characters */
    TOKEN_ADDED,   /* matched literally in text, spelled in plain UTF-8, shown in output */
    TOKEN_CONTROL, /* the same, but not shown in output */
    TOKEN_UNUSED   /* no spelling: padding of the table */
};

struct str {
    const char *s; /* not NUL-terminated */
    uint32_t len;
};

struct vocab {
    int n_tokens;      /* ids 0..n_tokens-1; may be less than the model's vocab rows */
    struct str *token; /* [n_tokens] */
    uint8_t *kind;     /* [n_tokens], enum token_kind */
    int n_merges;
    struct str *merge;         /* [n_merges] "left right", rank = index */
    int32_t eos, bos, pad;     /* -1: none named */
    const char *pre;           /* split rule, "qwen2" */
    const char *chat_template; /* source of the stored template, "" when there is none */
};

#endif
