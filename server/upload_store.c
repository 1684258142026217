/* Files are written under their ids as the body arrives, and removed again when it does not arrive
 * whole. Names that clients give are kept as text and never become part of a path.
 *
 * A directory that the operator names may be shared by several servers, and outlives them. So the
 * list is what this server knows of it: an unknown id is looked for on disk (upload_info.h), a
 * known file may have been removed by another server, and listing or uploading reads the directory.
 *
 * The list and the counters belong to the lock. An upload reserves room for what it writes, and its
 * file takes this over when it enters the list. */
#include "upload_store.h"

#include "base/file.h"
#include "base/mem.h"
#include "multipart.h"
#include "temporary_dir.h"
#include "unique_id.h"
#include "upload_info.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FILES = 10000 };

struct upload_store {
    char *dir;
    bool temporary;
    int dir_lock;                   /* of a temporary one; -1: none */
    uint64_t file_bytes, all_bytes; /* most */
    uint64_t bytes;                 /* there are, with those on their way */
    int n;
    struct stored_file *first, *last;
    pthread_mutex_t lock; /* guards bytes, n and the list */
};

struct upload {
    struct upload_store *store;
    struct multipart form;
    struct stored_file *file; /* NULL: not begun */
    int fd;
    bool in_file, in_purpose, complete;
    char purpose[sizeof((struct stored_file *)0)->purpose]; /* what the client says it is for */
    size_t n_purpose;
    struct api_error error;
};

static const char usual_purpose[] = "vision";

/* ---- the store ---- */

enum pv_status upload_store_open(struct upload_store **out, const char *dir, uint64_t file_bytes,
                                 uint64_t all_bytes, struct pv_error *err)
{
    struct upload_store *s = mem_zalloc(sizeof *s);
    if (!s)
        return fail_nomem(err, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->temporary = !dir;
    s->dir_lock = -1;
    s->file_bytes = file_bytes;
    s->all_bytes = all_bytes;
    if (dir && mkdir(dir, 0700) != 0 && errno != EEXIST) {
        mem_free(s);
        return fail(err, PV_E_IO, "%s: cannot be created: %s", dir, strerror(errno));
    }
    s->dir = dir ? mem_strdup(dir) : temporary_dir_open(&s->dir_lock);
    if (!s->dir || access(s->dir, W_OK) != 0) {
        enum pv_status st = fail(err, PV_E_IO, "%s: cannot be written: %s",
                                 dir ? dir : temporary_dir_base(), strerror(errno));
        s->temporary = false;
        upload_store_close(&s);
        return st;
    }
    *out = s;
    return PV_OK;
}

static void free_file(struct stored_file *f, bool remove_it)
{
    if (remove_it && !f->sample && f->path[0])
        upload_info_remove(f);
    mem_free(f);
}

void upload_store_close(struct upload_store **store)
{
    struct upload_store *s = *store;
    if (!s)
        return;
    while (s->first) {
        struct stored_file *f = s->first;
        s->first = f->next;
        free_file(f, s->temporary);
    }
    if (s->temporary)
        rmdir(s->dir);
    if (s->dir_lock >= 0)
        close(s->dir_lock);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->dir);
    mem_free(s);
    *store = NULL;
}

/* The caller holds the lock. */
static void append(struct upload_store *s, struct stored_file *f)
{
    *(s->last ? &s->last->next : &s->first) = f;
    s->last = f;
    s->n++;
}

/* The caller holds the lock. */
static void unlink_file(struct upload_store *s, struct stored_file *f, struct stored_file *before)
{
    *(before ? &before->next : &s->first) = f->next;
    s->last = s->last == f ? before : s->last;
    s->bytes -= f->bytes;
    s->n--;
}

/* The entry of an id, with the one before it; NULL: not known. The caller holds the lock. */
static struct stored_file *known(struct upload_store *s, const char *id, struct stored_file **prev)
{
    struct stored_file *f;
    *prev = NULL;
    for (f = s->first; f && strcmp(f->id, id) != 0; f = f->next)
        *prev = f;
    return f;
}

/* A file of the directory that this server does not know yet. The caller holds the lock. */
static struct stored_file *adopt(struct upload_store *s, const char *id)
{
    struct stored_file found, *f;
    if (s->temporary || s->n >= MAX_FILES || !upload_info_read(s->dir, id, &found))
        return NULL;
    f = mem_alloc(sizeof *f);
    if (!f)
        return NULL;
    *f = found;
    append(s, f);
    s->bytes += f->bytes;
    return f;
}

/* What is known of an id, and true on disk. The caller holds the lock. */
static struct stored_file *current(struct upload_store *s, const char *id)
{
    struct stored_file *before, *f = known(s, id, &before);
    if (!f)
        return adopt(s, id);
    if (s->temporary || f->sample || !upload_info_gone(f))
        return f;
    unlink_file(s, f, before);
    free_file(f, false);
    return NULL;
}

bool stored_find(struct upload_store *s, const char *id, struct stored_file *out)
{
    struct stored_file *f;
    pthread_mutex_lock(&s->lock);
    errno = ENOENT;
    f = current(s, id);
    if (f)
        *out = *f;
    pthread_mutex_unlock(&s->lock);
    return f != NULL;
}

bool stored_fail(struct api_error *e, const char *id)
{
    int why = errno;
    if (why == EIO || status_of_errno(why) == PV_E_NOMEM)
        return api_fail(e, 503, "file_id", "the file \"%.60s\" cannot be looked for now: %s", id,
                        strerror(why));
    return api_fail(e, 404, "file_id", "there is no file \"%.60s\": upload it to /v1/files", id);
}

bool stored_remove(struct upload_store *s, const char *id)
{
    struct stored_file *before, *f;
    pthread_mutex_lock(&s->lock);
    f = known(s, id, &before);
    if (f && f->sample)
        f = NULL;
    if (f)
        unlink_file(s, f, before);
    pthread_mutex_unlock(&s->lock);
    if (f)
        free_file(f, true);
    return f != NULL;
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Updates the list from the directory: drops files that another process removed, adds those that it
 * added. */
static void rescan_dir(struct upload_store *s)
{
    struct stored_file *before = NULL, *next;
    char(*ids)[STORED_ID];
    int n = 0;
    if (s->temporary)
        return;
    ids = upload_info_list(s->dir, MAX_FILES, &n);
    pthread_mutex_lock(&s->lock);
    for (struct stored_file *f = s->first; f; f = next) {
        char *at =
            ids && !f->sample ? bsearch(f->id, ids, (size_t)n, sizeof *ids, compare_ids) : NULL;
        next = f->next;
        if (at)
            at[STORED_ID - 1] = 1; /* known: ids are shorter */
        if (f->sample || at || !upload_info_gone(f)) {
            before = f;
            continue;
        }
        unlink_file(s, f, before);
        free_file(f, false);
    }
    for (int i = 0; ids && i < n; i++)
        if (!ids[i][STORED_ID - 1])
            adopt(s, ids[i]);
    pthread_mutex_unlock(&s->lock);
    mem_free(ids);
}

void stored_json(struct buf *b, const struct stored_file *f)
{
    buf_printf(
        b, "{\"id\":\"%s\",\"object\":\"file\",\"bytes\":%llu,\"created_at\":%lld,\"filename\":",
        f->id, (unsigned long long)f->bytes, (long long)f->created);
    buf_json(b, f->name, strlen(f->name));
    buf_puts(b, ",\"purpose\":");
    buf_json(b, f->purpose, strlen(f->purpose));
    buf_puts(b, ",\"status\":\"processed\"}");
}

void stored_list_json(struct buf *b, struct upload_store *s)
{
    rescan_dir(s);
    buf_puts(b, "{\"object\":\"list\",\"data\":[");
    pthread_mutex_lock(&s->lock);
    for (const struct stored_file *f = s->first; f; f = f->next) {
        buf_puts(b, f == s->first ? "" : ",");
        stored_json(b, f);
    }
    pthread_mutex_unlock(&s->lock);
    buf_puts(b, "],\"has_more\":false}");
}

/* ---- samples ---- */

static void add_sample(struct upload_store *s, const char *dir, const char *name)
{
    struct stored_file *f = mem_zalloc(sizeof *f);
    size_t stem = strcspn(name, ".");
    struct stat st;
    if (!f)
        return;
    f->sample = true;
    snprintf(f->path, sizeof f->path, "%s/%s", dir, name);
    snprintf(f->id, sizeof f->id, "sample-%.*s", (int)stem, name);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->type, sizeof f->type, "video/mp4");
    snprintf(f->purpose, sizeof f->purpose, "sample");
    if (stat(f->path, &st) != 0 || !S_ISREG(st.st_mode)) {
        free_file(f, false);
        return;
    }
    f->bytes = (uint64_t)st.st_size;
    f->created = (int64_t)st.st_mtime;
    pthread_mutex_lock(&s->lock);
    append(s, f);
    pthread_mutex_unlock(&s->lock);
}

static int is_clip(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && n < STORED_ID - 8 && !strcmp(e->d_name + n - 4, ".mp4");
}

void upload_store_samples(struct upload_store *s, const char *dir)
{
    struct dirent **list = NULL;
    int n = scandir(dir, &list, is_clip, alphasort);
    for (int i = 0; i < n; i++) {
        add_sample(s, dir, list[i]->d_name);
        free(list[i]);
    }
    free(list);
}

/* ---- an upload ---- */

/* Room for so many bytes more; false: there is none. */
static bool reserve(struct upload_store *s, uint64_t bytes)
{
    bool fits;
    pthread_mutex_lock(&s->lock);
    fits = bytes <= s->all_bytes && s->bytes <= s->all_bytes - bytes;
    s->bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&s->lock);
    return fits;
}

static void release(struct upload_store *s, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    s->bytes -= bytes;
    pthread_mutex_unlock(&s->lock);
}

static int count(struct upload_store *s)
{
    int n;
    pthread_mutex_lock(&s->lock);
    n = s->n;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static bool open_file(struct upload *u, const struct multipart_part *part)
{
    struct stored_file *f = mem_zalloc(sizeof *f);
    if (!f)
        return api_fail(&u->error, 503, NULL, "out of memory for a file");
    u->file = f;
    make_id(f->id, sizeof f->id, "file-");
    snprintf(f->name, sizeof f->name, "%.*s", STORED_NAME - 1, part->file);
    snprintf(f->type, sizeof f->type, "%s", part->type);
    f->created = (int64_t)time(NULL);
    if (snprintf(f->path, sizeof f->path, "%s/%s", u->store->dir, f->id) < STORED_PATH)
        u->fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (u->fd < 0)
        return api_fail(&u->error, 507, NULL, "the upload cannot be stored: %s", strerror(errno));
    return true;
}

static bool begin_part(void *user, const struct multipart_part *part)
{
    struct upload *u = user;
    u->in_file = !strcmp(part->name, "file");
    u->in_purpose = !strcmp(part->name, "purpose");
    if (!u->in_file)
        return true;
    if (u->file)
        return api_fail(&u->error, 400, "file", "an upload must have exactly one file");
    return open_file(u, part);
}

static bool write_file(struct upload *u, const char *data, size_t size)
{
    struct upload_store *s = u->store;
    if (u->file->bytes + size > s->file_bytes)
        return api_fail(&u->error, 413, "file", "the file is longer than %llu bytes",
                        (unsigned long long)s->file_bytes);
    if (!reserve(s, size))
        return api_fail(&u->error, 507, "file",
                        "the uploaded files would take more than %llu bytes: delete some",
                        (unsigned long long)s->all_bytes);
    u->file->bytes += size;
    while (size > 0) {
        ssize_t n = write(u->fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return api_fail(&u->error, 507, "file", "the upload cannot be stored: %s",
                            strerror(errno));
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* A word of small letters and underscores; it is told again with the file, and changes nothing. */
static bool add_purpose(struct upload *u, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bool fits = u->n_purpose + 1 < sizeof u->purpose;
        if (!fits || !((data[i] >= 'a' && data[i] <= 'z') || data[i] == '_'))
            return api_fail(&u->error, 400, "purpose", "the purpose is not a word such as %s",
                            usual_purpose);
        u->purpose[u->n_purpose++] = data[i];
    }
    return true;
}

static bool add_data(void *user, const char *data, size_t size)
{
    struct upload *u = user;
    if (u->in_file)
        return write_file(u, data, size);
    return !u->in_purpose || add_purpose(u, data, size); /* other parts are of no use here */
}

static bool end_part(void *user)
{
    struct upload *u = user;
    if (u->in_file) {
        u->complete = true;
        u->in_file = false;
    }
    return true;
}

struct upload *upload_begin(struct upload_store *s, const char *content_type, struct api_error *e)
{
    static const struct multipart_calls calls = { begin_part, add_data, end_part };
    struct upload *u = mem_zalloc(sizeof *u);
    struct pv_error err = { 0 };
    int n;
    if (!u) {
        api_fail(e, 503, NULL, "out of memory for an upload");
        return NULL;
    }
    u->store = s;
    u->fd = -1;
    rescan_dir(s);
    n = count(s);
    if (n >= MAX_FILES)
        api_fail(e, 507, "file", "there are %d uploaded files already: delete some", n);
    else if (multipart_init(&u->form, content_type, &calls, u, &err))
        api_fail_status(e, err.code, NULL, err.text);
    if (e->status)
        upload_abandon(&u);
    return u;
}

bool upload_add(struct upload *u, const char *data, size_t size, struct api_error *e)
{
    struct pv_error err = { 0 };
    enum pv_status s = multipart_add(&u->form, data, size, &err);
    if (u->error.status)
        *e = u->error;
    else if (s)
        api_fail_status(e, err.code, NULL, err.text);
    return !s;
}

/* The file is whole: it gets its description, and an entry. From its description on it can be found
 * in the directory, so it enters the list at the same time. */
static void keep_file(struct upload *u, struct stored_file *out, struct api_error *e)
{
    struct upload_store *s = u->store;
    struct stored_file *f = u->file;
    bool kept;
    snprintf(f->purpose, sizeof f->purpose, "%s", u->n_purpose ? u->purpose : usual_purpose);
    pthread_mutex_lock(&s->lock);
    kept = s->temporary || upload_info_write(s->dir, f);
    if (kept) {
        *out = *f;
        append(s, f);
        u->file = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (!kept)
        api_fail(e, 507, "file", "the upload cannot be stored: %s", strerror(errno));
}

bool upload_finish(struct upload **upload, struct stored_file *out, struct api_error *e)
{
    struct upload *u = *upload;
    struct pv_error err = { 0 };
    if (multipart_end(&u->form, &err))
        api_fail_status(e, err.code, NULL, err.text);
    else if (!u->complete)
        api_fail(e, 400, "file", "the form has no part named \"file\"");
    else if (u->file->bytes == 0)
        api_fail(e, 400, "file", "the file is empty");
    else if (close(u->fd) != 0)
        api_fail(e, 507, "file", "the upload cannot be stored: %s", strerror(errno));
    else
        u->fd = -1;
    if (!e->status)
        keep_file(u, out, e);
    upload_abandon(upload);
    return !e->status;
}

void upload_abandon(struct upload **upload)
{
    struct upload *u = *upload;
    if (!u)
        return;
    if (u->fd >= 0)
        close(u->fd);
    if (u->file) {
        release(u->store, u->file->bytes);
        free_file(u->file, true);
    }
    mem_free(u);
    *upload = NULL;
}
