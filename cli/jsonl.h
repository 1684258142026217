/* One line of a list of clips: {"video": "a.mp4", "prompt": "What happens?", ...}. */
#ifndef PV_CLI_JSONL_H
#define PV_CLI_JSONL_H

#include "base/buf.h"

enum { JSONL_MAX_STRING = 1 << 20, JSONL_MAX_QUESTIONS = 1024 };

struct jsonl_line {
    struct buf video, prompt;
    struct buf id;        /* a string, or a number as written; empty: none */
    struct buf questions; /* [n_questions] strings, each with a final NUL */
    int n_questions;
    struct buf options; /* [n_options] strings of a multiple-choice question, likewise */
    int n_options;
    struct buf key; /* of the right option, as written; empty: none */
    bool has_prompt;
};

void jsonl_init(struct jsonl_line *l);
void jsonl_clear(struct jsonl_line *l);
/* Read the members "video", "prompt", "id", "questions" and "options" (arrays of strings) and "key"
 * of the object line[0..len) into *out, which was just initialised. Other members are ignored.
 * Returns NULL, or what is wrong with the line, as the end of a sentence. */
const char *jsonl_read(const char *line, size_t len, struct jsonl_line *out);

#endif
