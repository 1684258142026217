/* Files. Reading is by mapping: weights stay where the file has them and the kernel shares the
 * pages between processes. Writing goes to a temporary name in the same directory and is renamed
 * when complete, so that nobody ever sees half a file under the final name.
 *
 * A mapped file that another process shortens raises SIGBUS when the lost pages are touched; no
 * portable defence exists, and a reader of model files shares that with every other engine. */
#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TMP_ATTEMPTS = 1000, TMP_SUFFIX_MAX = 32, DIGEST_CHUNK = 1 << 20 };

static int64_t nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct file_stamp stamp_of(const struct stat *st)
{
    return (struct file_stamp){ .device = (uint64_t)st->st_dev,
                                .inode = (uint64_t)st->st_ino,
                                .size = (uint64_t)st->st_size,
                                .modified_ns = nanoseconds(st->st_mtim),
                                .changed_ns = nanoseconds(st->st_ctim) };
}

/* Map the open file `fd`; separate so that the caller closes it in one place. */
static enum pv_status map_fd(struct file_map *map, int fd, const char *path, uint64_t limit,
                             struct pv_error *err)
{
    struct stat st;
    void *data;

    if (fstat(fd, &st))
        return fail(err, PV_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, PV_E_IO, "%s: not a regular file", path);
    if ((uint64_t)st.st_size > limit || (uint64_t)st.st_size > SIZE_MAX)
        return fail(err, PV_E_LIMIT, "%s: %llu bytes are more than the limit of %llu", path,
                    (unsigned long long)st.st_size, (unsigned long long)limit);
    if (st.st_size == 0) { /* mmap refuses length 0 */
        *map = (struct file_map){ .stamp = stamp_of(&st) };
        return PV_OK;
    }
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return fail(err, PV_E_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    *map = (struct file_map){ .data = data, .size = (size_t)st.st_size, .stamp = stamp_of(&st) };
    return PV_OK;
}

/* A clone without git-LFS has a few lines of text in place of each large file. */
bool file_is_lfs_pointer(const void *data, size_t size)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    return size >= sizeof begin && size < 1024 && !memcmp(data, begin, sizeof begin - 1);
}

enum pv_status file_map_open(struct file_map *map, const char *path, uint64_t limit,
                             struct pv_error *err)
{
    enum pv_status s;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer before fstat can refuse it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return fail(err, status_of_errno(errno), "%s: %s", path, strerror(errno));
    s = map_fd(map, fd, path, limit, err);
    close(fd);
    if (!s && file_is_lfs_pointer(map->data, map->size)) {
        s = fail(err, PV_E_FORMAT,
                 "%s: a git-LFS pointer of %zu bytes, not the file itself: run 'git lfs pull', or "
                 "download with 'hf download'",
                 path, map->size);
        file_map_close(map);
    }
    return s;
}

void file_map_close(struct file_map *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct file_map){ 0 };
}

/* The rest of an open file. */
static bool digest_fd(struct digest *d, int fd, uint8_t *chunk)
{
    ssize_t n = 1;
    while (n > 0) {
        n = read(fd, chunk, DIGEST_CHUNK);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            digest_add(d, chunk, (size_t)n);
    }
    return n == 0;
}

enum pv_status file_digest(const char *path, uint64_t limit, uint8_t out[DIGEST_SIZE],
                           struct pv_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint8_t *chunk = mem_alloc(DIGEST_CHUNK);
    struct digest d;
    struct stat st;
    enum pv_status s = PV_OK;

    digest_init(&d);
    if (!chunk)
        s = fail_nomem(err, DIGEST_CHUNK);
    else if (fd < 0 || fstat(fd, &st))
        s = fail(err, status_of_errno(errno), "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        s = fail(err, PV_E_IO, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size > limit)
        s = fail(err, PV_E_LIMIT, "%s: has more than %llu bytes", path, (unsigned long long)limit);
    else if (!digest_fd(&d, fd, chunk))
        s = fail(err, PV_E_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (!s)
        digest_finish(&d, out);
    if (fd >= 0)
        close(fd);
    mem_free(chunk);
    return s;
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Create the temporary file, with the permissions that the umask leaves of `mode`. */
static int create_tmp(char *tmp_path, size_t cap, const char *path, mode_t mode)
{
    for (int i = 0; i < TMP_ATTEMPTS; i++) {
        int fd;
        snprintf(tmp_path, cap, "%s.tmp%06u", path, ((unsigned)getpid() + (unsigned)i) % 1000000);
        fd = open(tmp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

static enum pv_status open_out(struct file_out *o, const char *path, mode_t mode,
                               struct pv_error *err)
{
    struct file_out out = { 0 };
    size_t cap = strlen(path) + TMP_SUFFIX_MAX;
    struct stat st;
    int fd = -1;
    enum pv_status s;

    /* Renaming over a device node would replace the device. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return fail(err, PV_E_IO, "%s: exists and is not a regular file", path);
    out.path = mem_strdup(path);
    out.tmp_path = mem_alloc(cap);
    if (!out.path || !out.tmp_path) {
        s = fail_nomem(err, cap);
        goto undo;
    }
    fd = create_tmp(out.tmp_path, cap, path, mode);
    if (fd < 0) {
        s = fail(err, PV_E_IO, "%s: cannot be created: %s", path, strerror(errno));
        goto undo;
    }
    out.f = fdopen(fd, "wb");
    if (!out.f) {
        s = fail(err, PV_E_IO, "%s: cannot be created: %s", path, strerror(errno));
        unlink(out.tmp_path);
        close(fd);
        goto undo;
    }
    *o = out;
    return PV_OK;

undo:
    mem_free(out.path);
    mem_free(out.tmp_path);
    return s;
}

enum pv_status file_out_open(struct file_out *o, const char *path, struct pv_error *err)
{
    return open_out(o, path, 0666, err);
}

enum pv_status file_out_open_private(struct file_out *o, const char *path, struct pv_error *err)
{
    return open_out(o, path, 0600, err);
}

enum pv_status file_out_write(struct file_out *o, const void *data, size_t len,
                              struct pv_error *err)
{
    if (len && fwrite(data, 1, len, o->f) != len)
        return fail(err, PV_E_IO, "%s: cannot be written: %s", o->path, strerror(errno));
    return PV_OK;
}

static enum pv_status commit(struct file_out *o, bool sync, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    if (fflush(o->f) || (sync && fsync(fileno(o->f))))
        s = fail(err, PV_E_IO, "%s: cannot be written: %s", o->path, strerror(errno));
    if (fclose(o->f) && !s)
        s = fail(err, PV_E_IO, "%s: cannot be written: %s", o->path, strerror(errno));
    o->f = NULL;
    if (!s && rename(o->tmp_path, o->path))
        s = fail(err, PV_E_IO, "%s: cannot be renamed to %s: %s", o->tmp_path, o->path,
                 strerror(errno));
    if (s)
        unlink(o->tmp_path);
    mem_free(o->tmp_path);
    mem_free(o->path);
    *o = (struct file_out){ 0 };
    return s;
}

/* The data must be on disk before the name: otherwise a crash can leave the new name with an empty
 * file under it. */
enum pv_status file_out_commit(struct file_out *o, struct pv_error *err)
{
    return commit(o, true, err);
}

enum pv_status file_out_commit_unsynced(struct file_out *o, struct pv_error *err)
{
    return commit(o, false, err);
}

void file_out_abandon(struct file_out *o)
{
    if (o->f)
        fclose(o->f);
    if (o->tmp_path)
        unlink(o->tmp_path);
    mem_free(o->tmp_path);
    mem_free(o->path);
    *o = (struct file_out){ 0 };
}

char *path_join(const char *dir, const char *name)
{
    size_t n_dir = strlen(dir), n_name = strlen(name);
    bool slash = n_dir > 0 && dir[n_dir - 1] != '/';
    char *path = mem_alloc(n_dir + slash + n_name + 1);

    if (!path)
        return NULL;
    memcpy(path, dir, n_dir);
    if (slash)
        path[n_dir] = '/';
    memcpy(path + n_dir + slash, name, n_name + 1);
    return path;
}
