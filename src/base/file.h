/* Files: read-only mappings, digests, and writing to a temporary name followed by a rename. */
#ifndef PV_BASE_FILE_H
#define PV_BASE_FILE_H

#include "base/digest.h"
#include "base/status.h"

#include <stdio.h>

/* Identity of a file and time of its last change. Equal stamps mean equal contents, unless the file
 * was written again within one tick of the file system's clock. */
struct file_stamp {
    uint64_t device, inode, size;
    int64_t modified_ns, changed_ns; /* mtime and ctime */
};

struct file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
    struct file_stamp stamp; /* when it was mapped */
};

/* Map a regular file of at most `limit` bytes. A git-LFS pointer instead of the real file is
 * PV_E_FORMAT. */
enum pv_status file_map_open(struct file_map *map, const char *path, uint64_t limit,
                             struct pv_error *err);
void file_map_close(struct file_map *map);

/* Is this the beginning of a git-LFS pointer? `size` may be that of the whole file. */
bool file_is_lfs_pointer(const void *data, size_t size);

/* The digest of the contents of a regular file of at most `limit` bytes. */
enum pv_status file_digest(const char *path, uint64_t limit, uint8_t out[DIGEST_SIZE],
                           struct pv_error *err);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Whether both names refer to the same existing file. */
bool file_is_same(const char *a, const char *b);

/* A file being written: data goes to "PATH.tmpXXXXXX"; commit renames, abandon removes. */
struct file_out {
    FILE *f;
    char *tmp_path;
    char *path;
};

enum pv_status file_out_open(struct file_out *o, const char *path, struct pv_error *err);
/* The same for a file that nobody but its owner may read. */
enum pv_status file_out_open_private(struct file_out *o, const char *path, struct pv_error *err);
enum pv_status file_out_write(struct file_out *o, const void *data, size_t len,
                              struct pv_error *err);
enum pv_status file_out_commit(struct file_out *o, struct pv_error *err); /* closes either way */
/* The same without waiting for the disk: after a crash of the system the file may be incomplete.
 * For files that their reader validates and can do without. */
enum pv_status file_out_commit_unsynced(struct file_out *o, struct pv_error *err);
void file_out_abandon(struct file_out *o);

/* "dir/name" in fresh memory (mem_free), NULL when out of memory. */
char *path_join(const char *dir, const char *name);

#endif
