/* Four lines: a mark with the version, the purpose, the type, and the client's name for the file. A
 * description is written under another name and then renamed, so that nobody reads half of one. */
#include "upload_info.h"

#include "base/append.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS = 24, INFO_BYTES = 512, INFO_PATH = STORED_PATH + 8 };

static const char mark[] = "prevue-file 1", prefix[] = "file-", suffix[] = ".info";

bool upload_id_valid(const char *id, size_t size)
{
    return size == sizeof prefix - 1 + DIGITS && !memcmp(id, prefix, sizeof prefix - 1) &&
           strspn(id + sizeof prefix - 1, "0123456789abcdef") >= DIGITS;
}

/* One line, whatever the client sent. */
static void add_line(char *out, size_t size, const char *text)
{
    size_t n = strlen(out);
    for (; *text && n + 2 < size; text++)
        out[n++] = *text;
    for (size_t i = strlen(out); i < n; i++)
        out[i] = (unsigned char)out[i] < ' ' ? ' ' : out[i];
    out[n] = '\n';
    out[n + 1] = 0;
}

bool upload_info_write(const char *dir, const struct stored_file *f)
{
    const char *lines[] = { mark, f->purpose, f->type, f->name };
    char text[INFO_BYTES], part[INFO_PATH], path[INFO_PATH];
    int fd, kept;
    bool good;
    text[0] = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        size_t n = strlen(text);
        add_line(text + n, sizeof text - n, lines[i]);
    }
    snprintf(part, sizeof part, "%s/%s.part", dir, f->id);
    snprintf(path, sizeof path, "%s/%s%s", dir, f->id, suffix);
    fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    good = append_whole(fd, text, strlen(text));
    good = close(fd) == 0 && good;
    good = good && rename(part, path) == 0;
    kept = errno;
    if (!good)
        unlink(part);
    errno = kept;
    return good;
}

/* The next line of a text, which it cuts off; NULL: no complete one is left, or it is too long. */
static const char *next_line(char **text, size_t size)
{
    char *line = *text, *end = strchr(line, '\n');
    if (!end || (size_t)(end - line) >= size)
        return NULL;
    *end = 0;
    *text = end + 1;
    return line;
}

static bool parse(char *text, struct stored_file *f)
{
    const char *first = next_line(&text, sizeof mark);
    const char *purpose = first ? next_line(&text, sizeof f->purpose) : NULL;
    const char *type = purpose ? next_line(&text, sizeof f->type) : NULL;
    const char *name = type ? next_line(&text, sizeof f->name) : NULL;
    if (!name || strcmp(first, mark) != 0)
        return false;
    snprintf(f->purpose, sizeof f->purpose, "%s", purpose);
    snprintf(f->type, sizeof f->type, "%s", type);
    snprintf(f->name, sizeof f->name, "%s", name);
    return true;
}

bool upload_info_read(const char *dir, const char *id, struct stored_file *out)
{
    struct stored_file f = { 0 };
    char text[INFO_BYTES + 1], path[INFO_PATH];
    struct stat st;
    ssize_t n;
    int fd;
    if (!upload_id_valid(id, strlen(id)) ||
        snprintf(f.path, sizeof f.path, "%s/%s", dir, id) >= STORED_PATH)
        return false;
    snprintf(path, sizeof path, "%s%s", f.path, suffix);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    n = read(fd, text, INFO_BYTES);
    close(fd);
    if (n <= 0 || lstat(f.path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    text[n] = 0;
    if (!parse(text, &f))
        return false;
    snprintf(f.id, sizeof f.id, "%s", id);
    f.bytes = (uint64_t)st.st_size;
    f.created = (int64_t)st.st_mtime;
    *out = f;
    return true;
}

bool upload_info_gone(const struct stored_file *f)
{
    struct stat st;
    return lstat(f->path, &st) != 0 && errno == ENOENT;
}

void upload_info_remove(const struct stored_file *f)
{
    char path[INFO_PATH];
    snprintf(path, sizeof path, "%s%s", f->path, suffix);
    unlink(path);
    unlink(f->path);
}

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

char (*upload_info_list(const char *dir, int most, int *n))[STORED_ID]
{
    char(*ids)[STORED_ID] = mem_zalloc((size_t)most * sizeof *ids);
    DIR *d = ids ? opendir(dir) : NULL;
    *n = 0;
    for (const struct dirent *e = d ? readdir(d) : NULL; e && *n < most; e = readdir(d)) {
        size_t size = strlen(e->d_name), stem = size - (sizeof suffix - 1);
        if (size < sizeof suffix || strcmp(e->d_name + stem, suffix) != 0 ||
            !upload_id_valid(e->d_name, stem))
            continue;
        snprintf(ids[(*n)++], sizeof *ids, "%.*s", (int)stem, e->d_name);
    }
    if (d)
        closedir(d);
    if (ids)
        qsort(ids, (size_t)*n, sizeof *ids, by_id);
    return ids;
}
