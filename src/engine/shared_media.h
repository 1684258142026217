/* A media item that was loaded once and is given to any number of prompts, and the cache that finds
 * it again by its content. */
#ifndef PV_ENGINE_SHARED_MEDIA_H
#define PV_ENGINE_SHARED_MEDIA_H

#include "engine/media_loader.h"

/* Counted by reference; nothing in it changes but the store of its pixels (media_load_pixels). */
struct pv_media {
    atomic_int refs;
    struct loaded_media l;
};

/* Takes what `l` owns, also on failure. */
enum pv_status shared_media_open(struct pv_media **out, struct loaded_media *l,
                                 struct pv_error *err);
struct pv_media *shared_media_share(struct pv_media *m); /* one reference more: the same pointer */
void shared_media_close(struct pv_media **m);            /* NULL is fine */

/* The media used last, in memory. Any thread. */
struct media_cache;

/* limit: bytes of all pixels and features. NULL: no memory. */
struct media_cache *media_cache_open(uint64_t limit);
void media_cache_close(struct media_cache **c); /* NULL is fine */
/* A reference to the item kept under this key; NULL: there is none. */
struct pv_media *media_cache_find(struct media_cache *c, const uint8_t key[DIGEST_SIZE]);
/* Keep one under this key unless it is too large; the least recently used ones are dropped. */
void media_cache_keep(struct media_cache *c, const uint8_t key[DIGEST_SIZE], struct pv_media *m);

#endif
