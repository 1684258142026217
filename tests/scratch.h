/* A directory for the files a test program writes. */
#ifndef PV_TESTS_SCRATCH_H
#define PV_TESTS_SCRATCH_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tests put names of files behind this path in buffers of 96 bytes and more, and in error messages
 * of a fixed length. */
static char scratch_path[64];

static inline void scratch_remove(const char *path)
{
    DIR *d = opendir(path);
    char sub[4096];
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        int n = snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || n >= (int)sizeof sub)
            continue;
        if (lstat(sub, &st) == 0 && S_ISDIR(st.st_mode))
            scratch_remove(sub);
        else
            unlink(sub);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static inline void scratch_clear(void)
{
    scratch_remove(scratch_path);
}

/* The directory for temporary files: $TMPDIR if it is an absolute path that leaves room for our
 * name in scratch_path (up to 44 bytes), otherwise /tmp. */
static inline const char *scratch_base(void)
{
    const char *dir = getenv("TMPDIR");
    bool fits =
        dir && dir[0] == '/' && strlen(dir) + sizeof "/prevue-test-XXXXXX" <= sizeof scratch_path;
    return fits ? dir : "/tmp";
}

/* A fresh directory of this program, removed with all in it when the program ends. */
static inline const char *scratch_dir(void)
{
    if (!scratch_path[0]) {
        snprintf(scratch_path, sizeof scratch_path, "%s/prevue-test-XXXXXX", scratch_base());
        if (!mkdtemp(scratch_path)) {
            perror(scratch_path);
            exit(1);
        }
        atexit(scratch_clear);
    }
    return scratch_path;
}

/* A file in it with these bytes. The path is valid until the next call; a program that cannot write
 * its own files ends. */
static inline const char *scratch_file(const char *name, const void *data, size_t size)
{
    static char path[256];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", scratch_dir(), name);
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) {
        perror(path);
        exit(1);
    }
    return path;
}

#endif
