/* Results kept in a directory for other processes: entries of bytes under a key, which is a digest
 * of all that the bytes depend on.
 *
 * Several processes may use one directory at the same time. Nobody holds a lock: an entry appears
 * whole under its name, and one that vanishes is not found. An entry that is damaged, or of another
 * version of the format, is reported to `warn`, removed and treated as missing. All entries
 * together stay below a limit; the one used longest ago is removed first. Files whose names are not
 * those of entries are never touched.
 *
 * All functions but open and close may be called from several threads. */
#ifndef PV_ENGINE_DISK_CACHE_H
#define PV_ENGINE_DISK_CACHE_H

#include "base/digest.h"
#include "base/status.h"

enum disk_kind {
    DISK_MODEL, /* the digest of a model's weights */
    DISK_MEDIA, /* what a video becomes in a prompt, without its pixels */
    DISK_ROWS,  /* rows that a vision tower made of a part of a video or picture */
    DISK_PAGE,  /* keys and values of a page */
    DISK_KINDS
};

struct disk_cache;

struct disk_cache_params {
    const char *dir; /* created if it does not exist; its parent must exist */
    uint64_t limit;  /* bytes of all entries; 0: 16 GiB */
    void (*warn)(void *user, const char *sentence); /* may be NULL; called on any thread */
    void *user;
};

/* PV_E_IO when the directory cannot be made or written. */
enum pv_status disk_cache_open(struct disk_cache **out, const struct disk_cache_params *p,
                               struct pv_error *err);
void disk_cache_close(struct disk_cache **c);

/* Bytes of an entry. Zero before the first use; keeps its memory for the next. */
struct disk_entry {
    const uint8_t *data; /* [size], in `file`; 64-byte aligned */
    size_t size;
    uint8_t *file; /* owned */
    size_t cap;
};
void disk_entry_clear(struct disk_entry *e);

/* False: there is none. It counts as used now. */
bool disk_cache_find(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE],
                     struct disk_entry *out);
/* Whether there is one, which may be damaged; one that was found damaged is gone. It counts as used
 * now. */
bool disk_cache_has(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE]);
/* Writes an entry, in the place of an older one. What cannot be written is not kept: the first
 * failure is reported to `warn`, and nothing is written after it. */
void disk_cache_keep(struct disk_cache *c, enum disk_kind kind, const uint8_t key[DIGEST_SIZE],
                     const void *data, size_t size);

struct disk_cache_counts {
    int64_t found[DISK_KINDS], missed[DISK_KINDS], kept[DISK_KINDS];
    int64_t damaged, removed; /* removed: to stay below the limit */
};
struct disk_cache_counts disk_cache_counts(struct disk_cache *c);

/* ---- the format, for tests ---- */

enum { DISK_HEADER = 64, DISK_VERSION = 2 };
/* Checks the bytes of a whole file: header, size and checksum. The entry lies DISK_HEADER bytes
 * behind the beginning; *size is its size. PV_E_FORMAT with the reason. */
enum pv_status disk_file_check(const uint8_t *file, size_t file_size, enum disk_kind kind,
                               const uint8_t key[DIGEST_SIZE], size_t *size, struct pv_error *err);

#endif
