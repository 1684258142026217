/* One file for each entry, "KIND-KEY.pvc" with the key in hexadecimal:
 *
 *   0   8  "PVCACHE\n"
 *   8   4  version of the format
 *   12  4  kind
 *   16  8  bytes of the entry
 *   24  8  zero
 *   32  32 key
 *   64     the entry
 *       32 checksum (base/checksum.h) of all bytes before
 *
 * Numbers are little-endian. Files are written under another name and renamed, without waiting for
 * the disk: a file that a crash of the system left incomplete fails the checksum. A hit sets the
 * file's time to now, so the times show which entry was used least recently. */
#include "engine/disk_cache.h"

#include "base/checksum.h"
#include "base/escape.h"
#include "base/file.h"
#include "base/load.h"
#include "base/mem.h"

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

enum { AT_VERSION = 8, AT_KIND = 12, AT_SIZE = 16, AT_KEY = 32 };
enum { NAME_SIZE = 96, STALE_SECONDS = 3600 };
static const char magic[8] = "PVCACHE\n";
static const char suffix[] = ".pvc";
static const char *const kind_names[DISK_KINDS] = { "model", "media", "rows", "page" };
static const uint64_t usual_limit = (uint64_t)16 << 30;

struct disk_cache {
    char *dir;
    uint64_t limit;
    void (*warn)(void *user, const char *sentence);
    void *user;
    pthread_mutex_t lock; /* protects the members below */
    bool cannot_write, told_in_the_way;
    uint64_t unseen; /* bytes written since the directory was last scanned, */
    uint64_t room;   /* and how many may be written until the next scan */
    struct disk_cache_counts counts;
};

/* ---- opening ---- */

enum pv_status disk_cache_open(struct disk_cache **out, const struct disk_cache_params *p,
                               struct pv_error *err)
{
    struct disk_cache *c;
    if (mkdir(p->dir, 0700) && errno != EEXIST)
        return fail(err, PV_E_IO, "%s: the cache directory cannot be created: %s", p->dir,
                    strerror(errno));
    if (!file_is_dir(p->dir))
        return fail(err, PV_E_IO, "%s: exists and is not a directory for a cache", p->dir);
    if (access(p->dir, R_OK | W_OK | X_OK))
        return fail(err, PV_E_IO, "%s: the cache directory cannot be written: %s", p->dir,
                    strerror(errno));
    c = mem_zalloc(sizeof *c);
    if (!c)
        return fail_nomem(err, sizeof *c);
    c->dir = mem_strdup(p->dir);
    if (!c->dir) {
        mem_free(c);
        return fail_nomem(err, strlen(p->dir) + 1);
    }
    c->limit = p->limit ? p->limit : usual_limit;
    c->warn = p->warn;
    c->user = p->user;
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return PV_OK;
}

void disk_cache_close(struct disk_cache **c)
{
    if (!*c)
        return;
    pthread_mutex_destroy(&(*c)->lock);
    mem_free((*c)->dir);
    mem_free(*c);
    *c = NULL;
}

void disk_entry_clear(struct disk_entry *e)
{
    mem_free(e->file);
    *e = (struct disk_entry){ 0 };
}

struct disk_cache_counts disk_cache_counts(struct disk_cache *c)
{
    struct disk_cache_counts counts;
    pthread_mutex_lock(&c->lock);
    counts = c->counts;
    pthread_mutex_unlock(&c->lock);
    return counts;
}

static void count(struct disk_cache *c, int64_t *what)
{
    pthread_mutex_lock(&c->lock);
    ++*what;
    pthread_mutex_unlock(&c->lock);
}

/* ---- names ---- */

static void make_name(char name[NAME_SIZE], enum disk_kind kind, const uint8_t *key)
{
    int n = snprintf(name, NAME_SIZE, "%s-", kind_names[kind]);
    for (int i = 0; i < DIGEST_SIZE; i++)
        n += snprintf(name + n, NAME_SIZE - (size_t)n, "%02x", key[i]);
    snprintf(name + n, NAME_SIZE - (size_t)n, "%s", suffix);
}

/* What follows an entry's name in a file name: "" for a complete entry. NULL if it is not such a
 * name. */
static const char *after_name(const char *name)
{
    for (int k = 0; k < DISK_KINDS; k++) {
        size_t n = strlen(kind_names[k]);
        const char *hex = name + n + 1;
        if (strncmp(name, kind_names[k], n) != 0 || name[n] != '-')
            continue;
        if (strspn(hex, "0123456789abcdef") != (size_t)2 * DIGEST_SIZE ||
            strncmp(hex + (size_t)2 * DIGEST_SIZE, suffix, sizeof suffix - 1) != 0)
            return NULL;
        return hex + (size_t)2 * DIGEST_SIZE + sizeof suffix - 1;
    }
    return NULL;
}

static bool is_temporary(const char *rest)
{
    return !strncmp(rest, ".tmp", 4) && rest[4] && rest[4 + strspn(rest + 4, "0123456789")] == 0;
}

/* The path of an entry, in memory that the caller frees; NULL if there is none. */
static char *entry_path(const struct disk_cache *c, enum disk_kind kind, const uint8_t *key)
{
    char name[NAME_SIZE];
    make_name(name, kind, key);
    return path_join(c->dir, name);
}

/* ---- reading ---- */

/* Checksum of header and entry, which need not be contiguous. */
static void sum_entry(const uint8_t *head, const void *data, size_t size, uint8_t sum[DIGEST_SIZE])
{
    struct checksum c;
    checksum_init(&c);
    checksum_add(&c, head, DISK_HEADER);
    checksum_add(&c, data, size);
    checksum_finish(&c, sum);
}

enum pv_status disk_file_check(const uint8_t *file, size_t file_size, enum disk_kind kind,
                               const uint8_t key[DIGEST_SIZE], size_t *size, struct pv_error *err)
{
    uint8_t sum[DIGEST_SIZE];
    uint32_t version;
    if (file_size < DISK_HEADER + DIGEST_SIZE)
        return fail(err, PV_E_FORMAT, "%zu bytes are too few for a header and a checksum",
                    file_size);
    if (memcmp(file, magic, sizeof magic) != 0)
        return fail(err, PV_E_FORMAT, "it does not begin as a cache file does");
    version = load_le32(file + AT_VERSION);
    if (version != DISK_VERSION)
        return fail(err, PV_E_FORMAT, "its format has version %u, expected %d", (unsigned)version,
                    DISK_VERSION);
    if (load_le64(file + AT_SIZE) != file_size - DISK_HEADER - DIGEST_SIZE)
        return fail(err, PV_E_FORMAT, "its header says %llu bytes, but there are %zu",
                    (unsigned long long)load_le64(file + AT_SIZE),
                    file_size - DISK_HEADER - DIGEST_SIZE);
    if (load_le32(file + AT_KIND) != (uint32_t)kind || memcmp(file + AT_KEY, key, DIGEST_SIZE) != 0)
        return fail(err, PV_E_FORMAT, "its header has another key than its name");
    sum_entry(file, file + DISK_HEADER, file_size - DISK_HEADER - DIGEST_SIZE, sum);
    if (memcmp(sum, file + file_size - DIGEST_SIZE, DIGEST_SIZE) != 0)
        return fail(err, PV_E_FORMAT, "its checksum does not match");
    *size = file_size - DISK_HEADER - DIGEST_SIZE;
    return PV_OK;
}

/* Read up to `cap` bytes; fewer if the file is shorter or cannot be read. */
static size_t read_all(int fd, uint8_t *to, size_t cap)
{
    size_t done = 0;
    while (done < cap) {
        ssize_t n = read(fd, to + done, cap - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

/* Make room for a file of this size. */
static bool reserve(struct disk_entry *e, size_t size)
{
    if (size <= e->cap)
        return true;
    disk_entry_clear(e);
    e->file = mem_alloc(size);
    e->cap = e->file ? size : 0;
    return e->file != NULL;
}

/* Read an entry of `size` bytes into *e. Returns false if it is missing or there is no memory for
 * it; *damage: it is there, and why it cannot be used. */
static bool read_entry(const char *path, enum disk_kind kind, const uint8_t *key, size_t size,
                       struct disk_entry *e, struct pv_error *damage)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    size_t whole = size + DISK_HEADER + DIGEST_SIZE, entry;
    enum pv_status s = PV_OK;
    struct stat st;
    bool exists;
    if (fd < 0)
        return false;
    exists = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (exists && (uint64_t)st.st_size != whole)
        s = fail(damage, PV_E_FORMAT, "it has %lld bytes, %zu were expected", (long long)st.st_size,
                 whole);
    else
        exists = exists && reserve(e, whole);
    if (exists && !s) {
        s = disk_file_check(e->file, read_all(fd, e->file, whole), kind, key, &entry, damage);
        (void)futimens(fd, NULL); /* mark as just used */
    }
    close(fd);
    return exists && !s;
}

static void warn_about(const struct disk_cache *c, const char *path, const char *what,
                       const char *why)
{
    char text[1024], sentence[1024];
    snprintf(text, sizeof text, "%s: %s: %s", path, what, why);
    escape_text(sentence, sizeof sentence, text);
    if (c->warn)
        c->warn(c->user, sentence);
}

bool disk_cache_find(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE],
                     size_t size, struct disk_entry *out)
{
    char *path = entry_path(c, kind, key);
    struct pv_error err = { 0 };
    bool found = path && read_entry(path, kind, key, size, out, &err);
    if (found)
        out->data = out->file + DISK_HEADER;
    if (err.code) {
        warn_about(c, path, "this file of the cache is not used", err.text);
        (void)unlink(path);
        count(c, &c->counts.damaged);
    }
    count(c, found ? &c->counts.found[kind] : &c->counts.missed[kind]);
    mem_free(path);
    return found;
}

bool disk_cache_has(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE])
{
    char *path = entry_path(c, kind, key);
    struct stat st;
    bool has = path && lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
               utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW) == 0;
    mem_free(path);
    return has;
}

/* ---- the limit ---- */

struct listed {
    struct timespec used;
    uint64_t size;
    char name[NAME_SIZE];
};

struct listing {
    struct listed *item;
    size_t n, cap;
    uint64_t bytes;
};

/* For qsort: the least recently used first. */
static int by_use(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool list_entry(struct listing *l, const char *name, const struct stat *st)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 256;
        struct listed *grown = mem_realloc(l->item, cap * sizeof *grown);
        if (!grown)
            return false;
        l->item = grown;
        l->cap = cap;
    }
    l->item[l->n] = (struct listed){ .used = st->st_mtim, .size = (uint64_t)st->st_size };
    memcpy(l->item[l->n++].name, name, strlen(name) + 1); /* names have the length of make_name's */
    l->bytes += (uint64_t)st->st_size;
    return true;
}

/* List all entries, and remove unfinished files of writers that were interrupted. */
static void list_entries(struct listing *l, DIR *dir)
{
    time_t now = time(NULL);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        const char *rest = after_name(e->d_name);
        struct stat st;
        if (!rest || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(st.st_mode))
            continue;
        if (*rest == 0 && !list_entry(l, e->d_name, &st))
            return;
        if (is_temporary(rest) && st.st_mtime < now - STALE_SECONDS)
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    }
}

/* Scan the directory. If its entries and `more` bytes exceed the limit, remove the least recently
 * used ones, and a little more than needed, so that this is not done for every entry. False: what
 * could not be removed leaves no room for `more`. The caller holds the lock. */
static bool make_room(struct disk_cache *c, uint64_t more)
{
    struct listing l = { 0 };
    uint64_t most = c->limit - more, left = most;
    DIR *dir = opendir(c->dir);
    if (!dir)
        return true; /* writing will fail, and say why */
    list_entries(&l, dir);
    if (l.n > 0)
        qsort(l.item, l.n, sizeof *l.item, by_use);
    if (l.bytes > left)
        left -= left / 16;
    for (size_t i = 0; i < l.n && l.bytes > left; i++) {
        bool removed = unlinkat(dirfd(dir), l.item[i].name, 0) == 0;
        c->counts.removed += removed;
        if (removed || errno == ENOENT) /* another process may have removed it */
            l.bytes -= l.item[i].size;
    }
    closedir(dir);
    mem_free(l.item);
    c->unseen = 0;
    /* Other processes write here too, so scan again before this process alone could fill it. */
    c->room = l.bytes > most ? 0 : (c->limit - l.bytes) / 2;
    if (l.bytes <= most && c->room < more)
        c->room = more;
    return l.bytes <= most;
}

/* Whether an entry of `size` bytes may be written now. */
static bool has_room(struct disk_cache *c, uint64_t size)
{
    bool yes;
    pthread_mutex_lock(&c->lock);
    yes = size <= c->limit && !c->cannot_write;
    if (yes && c->unseen + size > c->room)
        yes = make_room(c, size);
    if (yes)
        c->unseen += size;
    pthread_mutex_unlock(&c->lock);
    return yes;
}

/* ---- writing ---- */

static enum pv_status write_entry(const char *path, const uint8_t *head, const void *data,
                                  size_t size, struct pv_error *err)
{
    struct file_out out;
    uint8_t sum[DIGEST_SIZE];
    enum pv_status s = file_out_open_private(&out, path, err);
    if (s)
        return s;
    sum_entry(head, data, size, sum);
    s = file_out_write(&out, head, DISK_HEADER, err);
    if (!s)
        s = file_out_write(&out, data, size, err);
    if (!s)
        s = file_out_write(&out, sum, sizeof sum, err);
    if (!s)
        return file_out_commit_unsynced(&out, err);
    file_out_abandon(&out);
    return s;
}

/* Set one of the cache's flags. True: it was not set before. */
static bool set_first(struct disk_cache *c, bool *flag)
{
    bool first;
    pthread_mutex_lock(&c->lock);
    first = !*flag;
    *flag = true;
    pthread_mutex_unlock(&c->lock);
    return first;
}

/* Whether something that is not a file has the name of an entry. */
static bool in_the_way(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

void disk_cache_keep(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE],
                     const void *data, size_t size)
{
    uint8_t head[DISK_HEADER] = { 0 };
    struct pv_error err = { 0 };
    char *path;
    if (!has_room(c, (uint64_t)size + DISK_HEADER + DIGEST_SIZE))
        return;
    path = entry_path(c, kind, key);
    if (!path)
        return;
    memcpy(head, magic, sizeof magic);
    store_le32(head + AT_VERSION, DISK_VERSION);
    store_le32(head + AT_KIND, (uint32_t)kind);
    store_le64(head + AT_SIZE, size);
    memcpy(head + AT_KEY, key, DIGEST_SIZE);
    if (!in_the_way(path)) {
        if (!write_entry(path, head, data, size, &err))
            count(c, &c->counts.kept[kind]);
        else if (set_first(c, &c->cannot_write))
            warn_about(c, c->dir, "nothing more is written to the cache", err.text);
    } else if (set_first(c, &c->told_in_the_way)) {
        warn_about(c, path, "this entry of the cache is not written", "it is not a file");
    }
    mem_free(path);
}
