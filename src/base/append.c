/* Appending whole lines. Everything goes out in one write; where the disk takes a part of it only,
 * the file is cut back to what it was. A record lock keeps two processes from cutting each other's
 * lines. */
#include "base/append.h"

#include "base/buf.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

bool append_whole(int fd, const char *data, size_t len)
{
    struct stat st;
    int why;
    if (fstat(fd, &st))
        return false;
    if (write_all(fd, data, len))
        return true;
    why = errno;
    (void)!ftruncate(fd, st.st_size); /* a device cannot be cut, and keeps nothing */
    errno = why;
    return false;
}

static bool lock_whole(int fd)
{
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int r;
    do
        r = fcntl(fd, F_SETLKW, &whole);
    while (r < 0 && errno == EINTR);
    return r == 0 || errno == EINVAL || errno == ENOLCK; /* no locks on this kind of file */
}

/* Does the file, of `size` bytes, end in the middle of a line? */
static bool ends_open(int fd, off_t size)
{
    char last = '\n';
    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

/* errno of what failed, 0: nothing. */
static int append_fd(int fd, const char *header, const char *text, size_t len)
{
    struct buf all;
    struct stat st;
    int why = 0;

    if (!lock_whole(fd) || fstat(fd, &st))
        return errno;
    buf_init(&all, SIZE_MAX - 1);
    if (st.st_size == 0 && header)
        buf_puts(&all, header);
    else if (ends_open(fd, st.st_size))
        buf_puts(&all, "\n");
    buf_add(&all, text, len);
    if (all.failed)
        why = ENOMEM;
    else if (!append_whole(fd, all.data, all.len))
        why = errno;
    buf_clear(&all);
    return why;
}

enum pv_status file_append(const char *path, const char *header, const char *text, size_t len,
                           struct pv_error *err)
{
    bool was_there = file_exists(path);
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666), why;

    if (fd < 0)
        return fail(err, PV_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    why = append_fd(fd, header, text, len);
    if (close(fd) && !why)
        why = errno;
    if (why && !was_there)
        unlink(path);
    return why ? fail(err, PV_E_IO, "%s: cannot be written, and is as it was: %s", path,
                      strerror(why))
               : PV_OK;
}
