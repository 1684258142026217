/* A cache in a directory, shared by processes: entries of bytes under a key, which is a digest of
 * everything that the bytes depend on.
 *
 * Several processes may use one directory at the same time, without locks: an entry gets its name
 * when it is complete, and one that another process removes is simply missing. An entry that is
 * damaged, or of another version of the format, is reported to `warn`, removed and treated as
 * missing. The total size stays below a limit; the least recently used entry is removed first.
 * Files whose names are not those of entries are never touched.
 *
 * All functions but open and close may be called from several threads. */
#ifndef PV_ENGINE_DISK_CACHE_H
#define PV_ENGINE_DISK_CACHE_H

#include "base/digest.h"
#include "base/status.h"

enum disk_kind {
    DISK_MODEL, /* the digest of a model's weights */
    DISK_MEDIA, /* the properties of a video in a prompt, without its pixels */
    DISK_ROWS,  /* rows that a vision tower computed from a part of a video or picture */
    DISK_PAGE,  /* keys and values of a KV page */
    DISK_KINDS
};

struct disk_cache;

struct disk_cache_params {
    const char *dir; /* created if it does not exist; its parent must exist */
    uint64_t limit;  /* bytes of all entries; 0: 16 GiB */
    void (*warn)(void *user, const char *sentence); /* may be NULL; called on any thread */
    void *user;
};

/* PV_E_IO if the directory cannot be created or written. */
enum pv_status disk_cache_open(struct disk_cache **out, const struct disk_cache_params *p,
                               struct pv_error *err);
void disk_cache_close(struct disk_cache **c);

/* The bytes of an entry. Zero it before the first use; it keeps its memory for the next one. */
struct disk_entry {
    const uint8_t *data; /* in `file`; 64-byte aligned */
    uint8_t *file;       /* owned */
    size_t cap;
};
void disk_entry_clear(struct disk_entry *e);

/* Read an entry of `size` bytes and mark it as used now. A file of another length is damaged, and
 * not read. False: there is none. */
bool disk_cache_find(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE],
                     size_t size, struct disk_entry *out);
/* Whether there is an entry, without checking it for damage; marks it as used now. */
bool disk_cache_has(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE]);
/* Write an entry, replacing an older one. The first failure is reported to `warn`; nothing is
 * written after it. Where something that is not a file has the entry's name, this entry alone is
 * not written, and the first of them is reported. */
void disk_cache_keep(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE],
                     const void *data, size_t size);

struct disk_cache_counts {
    int64_t found[DISK_KINDS], missed[DISK_KINDS], kept[DISK_KINDS];
    int64_t damaged, removed; /* removed: to stay below the limit */
};
struct disk_cache_counts disk_cache_counts(struct disk_cache *c);

/* ---- the format, for tests ---- */

enum { DISK_HEADER = 64, DISK_VERSION = 2 };
/* Check the bytes of a whole file: header, size and checksum. The entry begins at offset
 * DISK_HEADER; *size is its size. PV_E_FORMAT with the reason. */
enum pv_status disk_file_check(const uint8_t *file, size_t file_size, enum disk_kind kind,
                               const uint8_t key[DIGEST_SIZE], size_t *size, struct pv_error *err);

#endif
