/* Each result is appended with one write and flushed to disk before its clip counts as done. A line
 * is
 *
 *   {"line":7,...,"input":"<hash>","settings":"<hash>","check":"<hash>"}
 *
 * where "check" is the hash of everything before it. */
#include "batch_output.h"

#include "base/append.h"
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_OUTPUT_BYTES = 1 << 30 };

static const char head[] = "{\"line\":";
static const char input_name[] = ",\"input\":\"", settings_name[] = "\",\"settings\":\"";
static const char check_name[] = "\",\"check\":\"", line_end[] = "\"}";
enum {
    INPUT_AT = sizeof input_name - 1,
    SETTINGS_AT = INPUT_AT + BATCH_HASH + sizeof settings_name - 1,
    CHECK_AT = SETTINGS_AT + BATCH_HASH + sizeof check_name - 1,
    TAIL = CHECK_AT + BATCH_HASH + sizeof line_end - 1
};

/* What stands in a line of results. */
struct result {
    long long number;             /* of the clip's line */
    const char *input, *settings; /* [BATCH_HASH], in the line */
    bool failed;
};

/* False: it is no whole line of a batch. */
static bool read_result(struct result *r, const char *line, size_t len)
{
    char check[BATCH_HASH + 1];
    const char *tail = line + len - TAIL;
    char *end;
    if (len < sizeof head + TAIL || memcmp(line, head, sizeof head - 1) != 0)
        return false;
    batch_hash(check, line, len - TAIL + CHECK_AT);
    if (memcmp(tail, input_name, INPUT_AT) != 0 || memcmp(tail + CHECK_AT, check, BATCH_HASH) != 0)
        return false;
    r->number = strtoll(line + sizeof head - 1, &end, 10);
    r->input = tail + INPUT_AT;
    r->settings = tail + SETTINGS_AT;
    r->failed = !strncmp(end, ",\"error\":", 9);
    return *end == ',';
}

/* ---- going on ---- */

/* What an earlier run has left: whole lines are counted, and copied to `kept`. */
struct earlier {
    const struct batch_list *list;
    const struct batch_output *o;
    bool retry, *done;
    int n_failed;
    struct buf kept;
};

/* False: the line is not this batch's, which has been reported. */
static bool take_line(struct earlier *e, int number, const char *line, size_t len)
{
    char input[BATCH_HASH + 1];
    struct result r;
    int i;
    if (!read_result(&r, line, len)) {
        report("%s: line %d is not a result of batch, or was edited; give another name with -o",
               e->o->path, number);
        return false;
    }
    i = batch_list_find(e->list, r.number);
    if (i >= 0)
        batch_hash(input, e->list->text.data + e->list->at[i], (size_t)e->list->len[i]);
    if (i < 0 || memcmp(r.input, input, BATCH_HASH) != 0) {
        report("%s: line %d answers another line %lld than that of %s; give another name with -o",
               e->o->path, number, r.number, e->list->path);
        return false;
    }
    if (memcmp(r.settings, e->o->settings, BATCH_HASH) != 0) {
        report("%s: line %d was made with another model or other options; give another name with "
               "-o",
               e->o->path, number);
        return false;
    }
    if (e->done[i]) {
        report("%s: line %d answers line %lld of %s, which has an answer already", e->o->path,
               number, r.number, e->list->path);
        return false;
    }
    if (r.failed && e->retry)
        return true;
    e->done[i] = true;
    e->n_failed += r.failed;
    buf_add(&e->kept, line, len);
    return buf_add(&e->kept, "\n", 1);
}

/* Whether the end of the file, which has no newline, is the beginning of a result: its writer was
 * killed. After a power failure the rest of it, or all of it, can be NUL bytes. */
static bool is_unfinished(const char *line, size_t len)
{
    while (len > 0 && line[len - 1] == 0)
        len--;
    return memcmp(line, head, len < sizeof head - 1 ? len : sizeof head - 1) == 0;
}

static bool take_lines(struct earlier *e, const struct buf *text)
{
    int number = 1;
    for (size_t at = 0; at < text->len; number++) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->len - at);
        size_t len = end ? (size_t)(end - line) : text->len - at;
        bool blank = batch_line_is_blank(line, len);
        if (!blank && !end && !is_unfinished(line, len)) {
            report("%s: line %d is not a result of batch; give another name with -o", e->o->path,
                   number);
            return false;
        }
        if (!blank && end && !take_line(e, number, line, len))
            return false;
        at += len + 1;
    }
    if (e->kept.failed)
        report("%s: out of memory for its %zu bytes", e->o->path, text->len);
    return !e->kept.failed;
}

static bool open_file(struct batch_output *o)
{
    struct stat st;
    o->fd = open(o->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (o->fd < 0) {
        report("%s: cannot be opened: %s", o->path, strerror(errno));
        return false;
    }
    if (fstat(o->fd, &st) || !S_ISREG(st.st_mode)) { /* a run reads what the run before it wrote */
        report("%s: exists and is not a regular file", o->path);
        return false;
    }
    if (flock(o->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        report("%s: another run is writing to it", o->path);
        return false;
    }
    return true;
}

/* The file with the lines that are kept: cut off at its end, or, where lines before that go too,
 * another file in its place. */
static bool keep_lines(struct batch_output *o, const struct earlier *e, const struct buf *text)
{
    struct pv_error err = { 0 };
    size_t len = e->kept.len;
    if (len == text->len)
        return true;
    if (len == 0 || memcmp(e->kept.data, text->data, len) == 0) {
        if (ftruncate(o->fd, (off_t)len) == 0)
            return true;
        report("%s: could not be truncated: %s", o->path, strerror(errno));
        return false;
    }
    if (write_file(o->path, &e->kept, &err)) {
        report("%s", err.text);
        return false;
    }
    close(o->fd);
    return open_file(o);
}

bool batch_output_open(struct batch_output *o, const char *path, const struct batch_list *list,
                       const char *settings, bool retry, bool *done, int *n_failed)
{
    struct earlier e = { .list = list, .o = o, .retry = retry, .done = done };
    struct buf text;
    bool ok;
    *o = (struct batch_output){ .path = path, .fd = -1 };
    memcpy(o->settings, settings, sizeof o->settings);
    pthread_mutex_init(&o->lock, NULL);
    buf_init(&text, MAX_OUTPUT_BYTES);
    buf_init(&e.kept, MAX_OUTPUT_BYTES);
    ok =
        open_file(o) && read_text(&text, path) && take_lines(&e, &text) && keep_lines(o, &e, &text);
    *n_failed = e.n_failed;
    buf_clear(&text);
    buf_clear(&e.kept);
    if (!ok)
        batch_output_close(o);
    return ok;
}

/* ---- adding ---- */

bool batch_output_add(struct batch_output *o, const struct batch_list *list, int i,
                      const struct buf *members)
{
    char hash[BATCH_HASH + 1];
    struct buf line;
    bool ok;
    buf_init(&line, MAX_OUTPUT_BYTES);
    buf_printf(&line, "%s%d", head, list->number[i]);
    buf_add(&line, members->data, members->len);
    batch_hash(hash, list->text.data + list->at[i], (size_t)list->len[i]);
    buf_printf(&line, "%s%s%s%s%s", input_name, hash, settings_name, o->settings, check_name);
    if (!line.failed)
        batch_hash(hash, line.data, line.len);
    buf_printf(&line, "%s%s\n", hash, line_end);
    pthread_mutex_lock(&o->lock);
    ok = !o->failed && !line.failed && !members->failed &&
         append_whole(o->fd, line.data, line.len) && fdatasync(o->fd) == 0;
    if (!ok && !o->failed) {
        report("%s: the result of line %d could not be written: %s", o->path, list->number[i],
               line.failed || members->failed ? "out of memory" : strerror(errno));
        o->failed = true;
    }
    pthread_mutex_unlock(&o->lock);
    buf_clear(&line);
    return ok;
}

void batch_output_close(struct batch_output *o)
{
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
    pthread_mutex_destroy(&o->lock);
}
