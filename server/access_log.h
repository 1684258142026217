/* The access log: one JSON object per line and request. */
#ifndef PV_SERVER_ACCESS_LOG_H
#define PV_SERVER_ACCESS_LOG_H

#include "base/buf.h"
#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

struct access_log {
    FILE *to; /* NULL: nowhere */
    bool owned;
};

enum { LOG_TEXT_SIZE = 640 };

/* Facts about a request besides those of HTTP; -1 and NULL: unknown. */
struct log_line {
    const char *finish; /* "stop", "length", "cancelled", "error"; static */
    const char *method; /* of speculation; static */
    int64_t prompt_tokens, completion_tokens;
    double first_token_s, queue_s;
    char error[LOG_TEXT_SIZE];
    char *prompt; /* --log-prompts; owned */
};

struct exchange;

/* NULL: stderr; "none": nowhere. A file is appended to; a new one is for its owner alone. */
enum pv_status access_log_open(struct access_log *l, const char *path, struct pv_error *err);
void access_log_close(struct access_log *l);
void access_log_write(struct access_log *l, const struct exchange *x, const char *id,
                      const struct log_line *line, bool sent);

#endif
