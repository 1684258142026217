/* Lines are written whole, by one call, so that those of several writers do not mix. */
#include "access_log.h"

#include "base/clock.h"
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

enum { LINE_LIMIT = 1 << 20 };

enum pv_status access_log_open(struct access_log *l, const char *path, struct pv_error *err)
{
    int fd;
    l->owned = false;
    l->to = path && !strcmp(path, "none") ? NULL : stderr;
    if (!path || !l->to)
        return PV_OK;
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    l->to = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (!l->to)
        return fail(err, PV_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    l->owned = true;
    return PV_OK;
}

void access_log_close(struct access_log *l)
{
    if (l->owned)
        fclose(l->to);
    l->to = NULL;
}

static void add_time(struct buf *b)
{
    struct timespec t;
    struct tm utc;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    buf_printf(b, "{\"time\":\"%s.%03ldZ\"", text, t.tv_nsec / 1000000);
}

static void add_text(struct buf *b, const char *name, const char *text)
{
    if (!text || !*text)
        return;
    buf_printf(b, ",\"%s\":", name);
    buf_json_visible(b, text, strlen(text));
}

void access_log_write(struct access_log *l, const struct exchange *x, const char *id,
                      const struct log_line *line, bool sent)
{
    struct buf b;
    if (!l->to)
        return;
    buf_init(&b, LINE_LIMIT);
    add_time(&b);
    add_text(&b, "id", id);
    add_text(&b, "remote", x->remote);
    add_text(&b, "method", x->method);
    add_text(&b, "path", x->path);
    buf_printf(&b,
               ",\"status\":%d,\"sent\":%s,\"bytes_in\":%llu,\"bytes_out\":%llu,\"seconds\":%.6f",
               x->status, sent ? "true" : "false", (unsigned long long)x->bytes_in,
               (unsigned long long)x->bytes_out, clock_now() - x->begun);
    if (line->prompt_tokens >= 0)
        buf_printf(&b, ",\"prompt_tokens\":%lld,\"completion_tokens\":%lld",
                   (long long)line->prompt_tokens, (long long)line->completion_tokens);
    if (line->queue_s >= 0)
        buf_printf(&b, ",\"queue_s\":%.6f", line->queue_s);
    if (line->first_token_s >= 0)
        buf_printf(&b, ",\"first_token_s\":%.6f", line->first_token_s);
    add_text(&b, "finish", line->finish);
    add_text(&b, "speculation", line->method);
    add_text(&b, "error", line->error);
    add_text(&b, "prompt", line->prompt);
    buf_puts(&b, "}\n");
    if (!b.failed) {
        fwrite(b.data, 1, b.len, l->to);
        fflush(l->to);
    }
    buf_clear(&b);
}
