/* Files: read-only mappings, whole small files, and writing by temporary name and rename. */
#ifndef PV_BASE_FILE_H
#define PV_BASE_FILE_H

#include "base/status.h"

#include <stdio.h>

struct file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
};

/* A mapping of a regular file of at most `limit` bytes. */
enum pv_status file_map_open(struct file_map *map, const char *path, uint64_t limit,
                             struct pv_error *err);
void file_map_close(struct file_map *map);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Do both names lead to one file that there is? */
bool file_is_same(const char *a, const char *b);

/* A file being written: data goes to "PATH.tmpXXXXXX"; commit renames, abandon removes. */
struct file_out {
    FILE *f;
    char *tmp_path;
    char *path;
};

enum pv_status file_out_open(struct file_out *o, const char *path, struct pv_error *err);
enum pv_status file_out_write(struct file_out *o, const void *data, size_t len,
                              struct pv_error *err);
enum pv_status file_out_commit(struct file_out *o, struct pv_error *err); /* closes either way */
void file_out_abandon(struct file_out *o);

/* "dir/name" in fresh memory (mem_free), NULL when out of memory. */
char *path_join(const char *dir, const char *name);

#endif
