/* An engine's cache on disk, and the identity under which results are stored: they are found again
 * only by the same build of the library, on the same kind of CPU or GPU, for the same weights. */
#ifndef PV_ENGINE_DISK_IDENTITY_H
#define PV_ENGINE_DISK_IDENTITY_H

#include "engine/disk_cache.h"
#include "engine/model.h"

/* The cache on disk of an engine. */
struct engine_disk {
    struct disk_cache *cache;      /* NULL: none, and the other fields are unused */
    bool kv;                       /* also store KV pages */
    char decoder[160];             /* versions of FFmpeg's libraries, on which pixels depend */
    uint8_t rows_id[DIGEST_SIZE];  /* digest of what rows of media depend on, besides pixels */
    uint8_t pages_id[DIGEST_SIZE]; /* digest of what KV pages depend on, besides their rows */
    /* The media unit that was read last; protected by model->step_lock. */
    struct disk_entry unit;
    uint8_t unit_key[DIGEST_SIZE];
};

/* p->dir NULL: no cache. Reads all weights of the model to compute their digest, unless the
 * directory has the digest of these files. */
enum pv_status engine_disk_open(struct engine_disk *d, const struct pv_cache_params *p,
                                const struct pv_model *m, enum dtype kv, struct pv_error *err);
void engine_disk_close(struct engine_disk *d);

#endif
