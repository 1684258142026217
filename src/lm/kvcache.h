/* The KV cache of one sequence: a list of pages of a pool. Slots [0, len) are committed; a step
 * writes its rows behind them and commits nothing, so that rollback is doing nothing. */
#ifndef PV_LM_KVCACHE_H
#define PV_LM_KVCACHE_H

#include "lm/kvpool.h"

struct kvcache {
    struct device *dev;     /* borrowed */
    int n_layers, cap, len; /* cap: most slots, a multiple of KV_CHUNK */
    struct kv_layer *layer; /* [n_layers] */
    struct kvpool *pool;
    bool alone;         /* the pool is its own, and all of it is here */
    int32_t *page;      /* [cap / KV_CHUNK] */
    int n_pages;        /* that are here: slots up to n_pages * KV_CHUNK can be written */
    int n_known;        /* of these are published, the first ones */
    struct kv_key *key; /* [cap / KV_CHUNK + 1]: before each page, as far as n_known */
};

/* Bytes of a cache of `context` slots. */
size_t kvcache_size(const struct config *c, enum dtype dtype, int context);
/* A cache with a pool of its own, where every slot has its place from the beginning. */
enum pv_status kvcache_open(struct kvcache *kv, struct device *dev, const struct config *c,
                            enum dtype dtype, int context, struct pv_error *err);
/* A cache without pages, which come from a pool as they are needed. Borrows the pool. */
enum pv_status kvcache_attach(struct kvcache *kv, struct kvpool *pool, int context,
                              struct pv_error *err);
void kvcache_close(struct kvcache *kv);

/* Make sure that the n slots behind `len` can be written: pages are taken, and pages that others
 * use too are copied. False: the pool has no more pages, or n slots are more than `cap` has; what
 * was taken stays. */
bool kvcache_reserve(struct kvcache *kv, struct device_work *w, int n);
/* Pages that kvcache_reserve(n) would take out of the pool. */
int kvcache_lacks(const struct kvcache *kv, int n);

/* The longest beginning of rows [n] that the pool knows becomes the contents of the empty cache.
 * Its last page, if it agrees in part only, is copied. Returns the slots that are there now. */
int kvcache_adopt(struct kvcache *kv, struct device_work *w, const struct kv_key *rows, int n);
/* Publish the whole pages among the committed rows [len], the digests of all committed slots. */
void kvcache_publish(struct kvcache *kv, const struct kv_key *rows);
/* Give all pages back. With `rows` (digests of the committed slots) they are published first, the
 * last one as far as it is filled; NULL: what is not published is lost. */
void kvcache_release(struct kvcache *kv, const struct kv_key *rows);

/* Forget all slots from `len` on. */
void kvcache_truncate(struct kvcache *kv, int len);
/* The same to compute them again: the pool keeps what it knows of them for others. */
void kvcache_restart(struct kvcache *kv, int len);
/* Commit the first n rows of the last step (a chain). */
void kvcache_advance(struct kvcache *kv, int n);
/* Commit the rows path[0] < path[1] < ... of the last step, in that order. */
void kvcache_gather(struct kvcache *kv, struct device_work *w, const int *path, int n);
/* Slot to_slots[i] of a layer becomes slot from_slots[i] of the same layer of another cache, of the
 * same model, device and type. Commits nothing. */
void kvcache_copy(struct kvcache *to, const struct kvcache *from, struct device_work *w, int layer,
                  const int *to_slots, const int *from_slots, int n);

#endif
