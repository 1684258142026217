/* Stop strings: an answer ends before the first one that appears in its text. Text that may be the
 * beginning of a stop string is held back until that is decided. */
#ifndef PV_ENGINE_STOP_TEXT_H
#define PV_ENGINE_STOP_TEXT_H

#include "base/buf.h"
#include "base/status.h"

enum { STOP_MAX_STRINGS = 16, STOP_MAX_LEN = 1024 };

struct stop_text {
    char *string[STOP_MAX_STRINGS]; /* owned */
    size_t len[STOP_MAX_STRINGS];
    int n;
    struct buf held; /* text that is not emitted yet */
    int found;       /* which string has ended the text; -1: none */
};

/* PV_E_ARG for an empty or too long string, or too many. */
enum pv_status stop_text_open(struct stop_text *s, const char *const *strings, size_t n,
                              struct pv_error *err);
void stop_text_close(struct stop_text *s);
/* Append to `out` the text that can be emitted now; `last`: the text ends here. After a string was
 * found (s->found), nothing is emitted. False: out of memory. */
bool stop_text_push(struct stop_text *s, const char *utf8, size_t len, bool last, struct buf *out);

#endif
