/* A process holds a lock (flock) on its directory, which ends with the process however it ends. So
 * a directory whose lock is free has no owner. Only directories of our name and user are touched,
 * and in them only files of the names that uploads have. */
#include "temporary_dir.h"

#include "upload_info.h"

#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTEMPTS = 100 };

static const char prefix[] = "prevue-uploads-";

const char *temporary_dir_base(void)
{
    const char *base = getenv("TMPDIR");
    return base && *base ? base : "/tmp";
}

/* Opens and locks a directory of ours; -1: it is not ours, or its owner lives. */
static int lock_dir(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return -1;
    /* No links: somebody else has removed it in between. */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
        (st.st_mode & 0777) == 0700 && st.st_nlink > 0)
        return fd;
    close(fd);
    return -1;
}

static void remove_files(int fd)
{
    int copy = dup(fd);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (upload_id_valid(e->d_name, strlen(e->d_name)))
            unlinkat(fd, e->d_name, 0);
    if (d)
        closedir(d);
    else if (copy >= 0)
        close(copy);
}

static void remove_dead(const char *base)
{
    DIR *d = opendir(base);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        int fd = -1;
        if (!strncmp(e->d_name, prefix, sizeof prefix - 1))
            fd = lock_dir(dirfd(d), e->d_name);
        if (fd < 0)
            continue;
        remove_files(fd);
        unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
        close(fd);
    }
    if (d)
        closedir(d);
}

/* Between its making and its lock another server may take a directory for a dead one: then once
 * more. */
char *temporary_dir_open(int *lock)
{
    remove_dead(temporary_dir_base());
    for (int i = 0; i < ATTEMPTS; i++) {
        char *path = path_join(temporary_dir_base(), "prevue-uploads-XXXXXX");
        if (!path || !mkdtemp(path)) {
            mem_free(path);
            return NULL;
        }
        *lock = lock_dir(AT_FDCWD, path);
        if (*lock >= 0)
            return path;
        mem_free(path);
        errno = EBUSY;
    }
    return NULL;
}
