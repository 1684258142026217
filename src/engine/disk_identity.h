/* What an engine keeps on disk, and under which identity: results are found again only by the same
 * build of the library, on the same kind of CPU or GPU, for the same weights. */
#ifndef PV_ENGINE_DISK_IDENTITY_H
#define PV_ENGINE_DISK_IDENTITY_H

#include "engine/disk_cache.h"
#include "engine/model.h"

/* The part of an engine that is on disk. */
struct engine_disk {
    struct disk_cache *cache;      /* NULL: none, and nothing below counts */
    bool kv;                       /* KV pages too */
    uint8_t rows_id[DIGEST_SIZE];  /* of all that rows of media depend on beside their pixels */
    uint8_t pages_id[DIGEST_SIZE]; /* of all that KV pages depend on beside their rows */
    /* The unit of a media item that was read last; under model->step_lock. */
    struct disk_entry unit;
    uint8_t unit_key[DIGEST_SIZE];
};

/* p->dir NULL: none. Reads all weights of the model, unless the directory knows the digest of these
 * files already. */
enum pv_status engine_disk_open(struct engine_disk *d, const struct pv_cache_params *p,
                                const struct pv_model *m, enum dtype kv, struct pv_error *err);
void engine_disk_close(struct engine_disk *d);

#endif
