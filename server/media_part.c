/* Names are resolved here, and every step is bounded. A file:// URL is opened component by
 * component below the allowed directory, without following links, so that neither "..", nor an
 * encoded slash, nor a link can leave it; what was opened is what is read, because the library is
 * given the descriptor's own path. */
#include "media_part.h"

#include "base/mem.h"
#include "data_url.h"
#include "upload_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_URL_PATH = 4096 };

void media_part_clear(struct media_part *m)
{
    if (m->fd >= 0)
        close(m->fd);
    mem_free(m->path);
    mem_free(m->data);
    mem_free(m->url);
    *m = (struct media_part){ .fd = -1 };
}

/* ---- bytes ---- */

static bool read_data_url(struct media_part *m, const char *url, const struct media_rules *r,
                          struct api_error *e)
{
    struct pv_error err = { 0 };
    struct data_url u;
    if (data_url_parse(&u, url, strlen(url), r->limit, &err))
        return api_fail_status(e, err.code, "url", err.text);
    m->data = u.data;
    m->size = u.size;
    snprintf(m->name, sizeof m->name, "the media in the request");
    return true;
}

bool media_part_base64(struct media_part *m, const char *text, size_t len,
                       const struct media_rules *r, struct api_error *e)
{
    struct pv_error err = { 0 };
    if (base64_parse(&m->data, &m->size, text, len, r->limit, &err))
        return api_fail_status(e, err.code, "data", err.text);
    snprintf(m->name, sizeof m->name, "the media in the request");
    return true;
}

/* ---- uploaded files ---- */

static bool read_stored(struct media_part *m, const char *id, const struct media_rules *r,
                        struct api_error *e)
{
    struct stored_file f;
    errno = ENOENT;
    if (!r->files || !stored_find(r->files, id, &f))
        return stored_fail(e, id);
    m->path = mem_strdup(f.path);
    snprintf(m->name, sizeof m->name, "%.60s", id);
    return m->path || api_fail(e, 503, NULL, "out of memory for a path");
}

/* ---- files ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* %41 and so on; false: malformed, too long, or with a zero byte. */
static bool unescape(char out[MAX_URL_PATH], const char *url)
{
    size_t n = 0;
    for (; *url && n + 1 < MAX_URL_PATH; url++) {
        int high = *url == '%' ? hex(url[1]) : 0, low = *url == '%' && high >= 0 ? hex(url[2]) : 0;
        if (high < 0 || low < 0 || (*url == '%' && !(high | low)))
            return false;
        out[n++] = *url == '%' ? (char)(16 * high + low) : *url;
        url += *url == '%' ? 2 : 0;
    }
    out[n] = 0;
    return !*url;
}

/* Opens dir/path, component by component; -1 with errno. */
static int open_beneath(const char *dir, const char *path)
{
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), next;
    while (at >= 0) {
        char part[256];
        size_t n;
        path += strspn(path, "/");
        n = strcspn(path, "/");
        if (n == 0 || n >= sizeof part) {
            close(at);
            errno = n ? ENAMETOOLONG : EISDIR;
            return -1;
        }
        memcpy(part, path, n);
        part[n] = 0;
        path += n;
        errno = ENOENT;
        next = strcmp(part, "..") == 0 ? -1
                                       : openat(at, part,
                                                O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
                                                    (path[strspn(path, "/")] ? O_DIRECTORY : 0));
        close(at);
        at = next;
        if (!path[strspn(path, "/")])
            break;
    }
    return at;
}

/* Clients may name the whole path, or the one below the allowed directory. */
static const char *below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    while (n > 0 && dir[n - 1] == '/')
        n--;
    return !strncmp(path, dir, n) && path[n] == '/' ? path + n : path;
}

static bool read_file_url(struct media_part *m, const char *url, const struct media_rules *r,
                          struct api_error *e)
{
    char path[MAX_URL_PATH], own[64];
    struct stat st;
    if (!r->media_path)
        return api_fail(e, 400, "url",
                        "file:// URLs are not allowed here: the server was started without "
                        "--media-path");
    if (!unescape(path, url))
        return api_fail(e, 400, "url", "this file:// URL is malformed or too long");
    m->fd = open_beneath(r->media_path, below(path, r->media_path));
    snprintf(m->name, sizeof m->name, "%.*s", MEDIA_NAME - 1, url);
    if (m->fd < 0)
        return api_fail(e, errno == EIO || status_of_errno(errno) == PV_E_NOMEM ? 503 : 400, "url",
                        "%s cannot be opened below the server's media path: %s", m->name,
                        errno == ELOOP ? "it is a link" : strerror(errno));
    if (fstat(m->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return api_fail(e, 400, "url", "%s is not a regular file", m->name);
    snprintf(own, sizeof own, "/proc/self/fd/%d", m->fd);
    m->path = mem_strdup(own);
    return m->path || api_fail(e, 503, NULL, "out of memory for a path");
}

/* ---- addresses ---- */

static bool read_remote(struct media_part *m, const char *url, const struct media_rules *r,
                        struct api_error *e)
{
    if (r->n_domains == 0)
        return api_fail(e, 400, "url",
                        "http(s) URLs are not allowed here: the server was started without "
                        "--allow-domain. Send the file as a data: URL, or upload it to "
                        "/v1/files");
    snprintf(m->name, sizeof m->name, "%.*s", MEDIA_NAME - 1, url);
    m->url = mem_strdup(url);
    return m->url || api_fail(e, 503, NULL, "out of memory for a URL");
}

static const struct {
    const char *begins;
    bool (*read)(struct media_part *m, const char *url, const struct media_rules *r,
                 struct api_error *e);
    bool whole; /* is given the URL with its beginning */
} schemes[] = {
    { "data:", read_data_url, true }, { "file://", read_file_url, false },
    { "http://", read_remote, true }, { "https://", read_remote, true },
    { "file-", read_stored, true },   { "sample-", read_stored, true },
};

bool media_part_read(struct media_part *m, const char *url, const struct media_rules *r,
                     struct api_error *e)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i].begins);
        if (!strncasecmp(url, schemes[i].begins, n))
            return schemes[i].read(m, schemes[i].whole ? url : url + n, r, e);
    }
    return api_fail(
        e, 400, "url",
        "\"%.40s\" is not a media source: expected a data: URL, the id of an uploaded file, "
        "or an allowed file:// or http(s):// URL",
        url);
}

void media_part_hide(const struct media_part *m, char *text, size_t size)
{
    size_t n = m->path ? strlen(m->path) : 0, name = strlen(m->name);
    for (char *at = n ? strstr(text, m->path) : NULL; at; at = strstr(at + name, m->path)) {
        size_t begin = (size_t)(at - text), rest = strlen(at + n);
        if (begin + name + 1 > size) { /* no room for the name: the path must not stay */
            *at = 0;
            return;
        }
        if (begin + name + rest + 1 > size)
            rest = size - begin - name - 1;
        memmove(at + name, at + n, rest);
        at[name + rest] = 0;
        memcpy(at, m->name, name);
    }
}
