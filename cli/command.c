/* Functions that several commands use: messages, reading and writing files, paths, token ids. */
#include "command.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"
#include "shown.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

int report(const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "%s: ", program.name);
    va_start(ap, fmt);
    shown_vprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return EXIT_FAILED;
}

int report_no_tokenizer(const char *path, const char *instead)
{
#ifdef PV_CORE
    return report("%s: this build (make CORE=1) has no tokenizer; %s", path, instead);
#else
    return report("%s: the model has no tokenizer; %s", path, instead);
#endif
}

static int write_errno; /* of the first write that failed */

bool write_text(const char *utf8, size_t len)
{
    errno = 0;
    if (fwrite(utf8, 1, len, stdout) == len && fflush(stdout) == 0)
        return true;
    if (!write_errno)
        write_errno = errno;
    return false;
}

/* Is stdout a pipe or socket that nobody reads any more? A write inside printf leaves no errno. */
static bool is_closed_pipe(void)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
    if (write_errno)
        return write_errno == EPIPE;
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

int finish_output(void)
{
    bool written = write_text("", 0);
    if (written && !ferror(stdout))
        return 0;
    if (is_closed_pipe())
        return EXIT_CLOSED_PIPE;
    return report("standard output could not be written%s%s", write_errno ? ": " : "",
                  write_errno ? strerror(write_errno) : "");
}

bool read_text(struct buf *out, const char *path)
{
    bool is_stdin = !strcmp(path, "-");
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    const char *name = is_stdin ? "standard input" : path;
    char chunk[16384];
    size_t n = 1;

    if (!f) {
        report("%s: could not be opened: %s", name, strerror(errno));
        return false;
    }
    while (n > 0 && !out->failed) {
        errno = 0;
        n = fread(chunk, 1, sizeof chunk, f);
        buf_add(out, chunk, n);
    }
    if (out->failed)
        report("%s: longer than the %zu bytes a text may have", name, out->limit);
    else if (ferror(f))
        report("%s: could not be read: %s", name, strerror(errno));
    n = ferror(f) != 0;
    if (!is_stdin)
        fclose(f);
    return !out->failed && n == 0;
}

bool is_text(const char *name, const char *text, size_t len)
{
    size_t good = utf8_prefix(text, len);
    if (good < len)
        report("%s: is not text in UTF-8: byte 0x%02x at offset %zu of %zu", name,
               (unsigned char)text[good], good, len);
    return good == len;
}

enum pv_status write_file(const char *path, const struct buf *text, struct pv_error *err)
{
    struct file_out file;
    enum pv_status s;
    if (text->failed)
        return fail(err, PV_E_LIMIT, "%s: too long to be written", path);
    s = file_out_open(&file, path, err);
    if (s)
        return s;
    s = file_out_write(&file, text->data, text->len, err);
    if (!s)
        return file_out_commit(&file, err);
    file_out_abandon(&file);
    return s;
}

bool can_write(const char *path)
{
    struct pv_error err = { 0 };
    struct file_out file;
    if (file_out_open(&file, path, &err)) {
        report("%s", err.text);
        return false;
    }
    file_out_abandon(&file);
    return true;
}

/* Would both names lead to one file, were there one? */
static bool is_same_place(const char *a, const char *b)
{
    char dir[2][4096];
    const char *const path[2] = { a, b };

    for (int i = 0; i < 2; i++) {
        size_t n = strlen(path[i]) - strlen(path_name(path[i]));
        snprintf(dir[i], sizeof dir[i], "%.*s.", n < sizeof dir[i] - 1 ? (int)n : 0, path[i]);
    }
    return !strcmp(path_name(a), path_name(b)) && file_is_same(dir[0], dir[1]);
}

bool is_apart(const char *path, const char *const *others, int n)
{
    for (int i = 0; i < n; i++)
        if (others[i] && (is_same_place(path, others[i]) || file_is_same(path, others[i]))) {
            report("%s: would be overwritten: the command also reads it, or writes something else "
                   "to it",
                   path);
            return false;
        }
    return true;
}

bool path_ends(const char *path, const char *extension)
{
    size_t n = strlen(path), m = strlen(extension);
    return n >= m && !strcasecmp(path + n - m, extension);
}

const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

bool add_ids_json(struct buf *out, const int32_t *ids, size_t n)
{
    buf_puts(out, "[");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%d", i ? "," : "", (int)ids[i]);
    return buf_puts(out, "]");
}

int32_t *tokenize_text(const pv_model *model, const char *text, size_t len, bool special, size_t *n,
                       struct pv_error *err)
{
    size_t count = 0, cap = 0, size;
    int32_t *ids = NULL;

    /* A token has at least one byte, but counting first is exact and costs one more pass. */
    if (pv_tokenize(model, text, len, special, NULL, 0, &count, err))
        return NULL;
    cap = count;
    size = (cap ? cap : 1) * sizeof *ids;
    ids = mem_alloc(size);
    if (!ids) {
        if (err)
            *err = (struct pv_error){ PV_E_NOMEM, "out of memory for the ids of the text" };
        return NULL;
    }
    if (pv_tokenize(model, text, len, special, ids, cap, &count, err) || count > cap) {
        mem_free(ids);
        return NULL;
    }
    *n = count;
    return ids;
}
