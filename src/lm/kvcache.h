/* The KV cache of one sequence: a list of pages of a pool. Slots [0, len) are committed. A step
 * writes its rows after them and commits nothing, so rejecting its rows needs no action. */
#ifndef PV_LM_KVCACHE_H
#define PV_LM_KVCACHE_H

#include "lm/kvpool.h"

struct kvcache {
    struct device *dev;     /* borrowed */
    int layer0, n_layers;   /* it holds layers [layer0, layer0 + n_layers) of the model */
    int cap, len;           /* cap: most slots, a multiple of KV_CHUNK */
    struct kv_layer *layer; /* [n_layers] */
    struct kvpool *pool;
    bool alone;         /* it owns its pool and has all pages of it */
    int32_t *page;      /* [cap / KV_CHUNK] */
    int n_pages;        /* pages that it has: slots below n_pages * KV_CHUNK can be written */
    int n_known;        /* how many of these, from the first, are published */
    struct kv_key *key; /* [cap / KV_CHUNK + 1]: key before each page, up to n_known */
};

/* Bytes of a cache of `context` slots. */
size_t kvcache_size(const struct config *c, enum dtype dtype, int context);
/* A cache with its own pool, in which all slots are allocated from the beginning. */
enum pv_status kvcache_open(struct kvcache *kv, struct device *dev, const struct config *c,
                            enum dtype dtype, int context, struct pv_error *err);
/* The same for layers [layer0, layer1) only, for steps over these layers. Used if groups of layers
 * keep different rows. */
enum pv_status kvcache_open_layers(struct kvcache *kv, struct device *dev, const struct config *c,
                                   int layer0, int layer1, enum dtype dtype, int context,
                                   struct pv_error *err);
/* A cache that takes pages from a pool when they are needed. Borrows the pool. */
enum pv_status kvcache_attach(struct kvcache *kv, struct kvpool *pool, int context,
                              struct pv_error *err);
void kvcache_close(struct kvcache *kv);

/* Make sure that the n slots after `len` can be written: takes pages, and copies pages that others
 * share. False if the pool has no more pages, or `cap` is exceeded; pages taken so far are kept. */
bool kvcache_reserve(struct kvcache *kv, struct device_work *w, int n);
/* Pages that kvcache_reserve(n) would take out of the pool. */
int kvcache_lacks(const struct kvcache *kv, int n);

/* Fill the empty cache with the longest prefix of rows [n] that is published in the pool. If its
 * last page agrees in part only, that page is copied. Returns the number of slots now committed. */
int kvcache_adopt(struct kvcache *kv, struct device_work *w, const struct kv_key *rows, int n);
/* Publish the whole pages among the committed rows [len], the digests of all committed slots. */
void kvcache_publish(struct kvcache *kv, const struct kv_key *rows);
/* Return all pages to the pool. With `rows` (digests of the committed slots) they are published
 * first, the last one as far as it is filled; if NULL, unpublished contents are lost. */
void kvcache_release(struct kvcache *kv, const struct kv_key *rows);

/* Drop all slots from `len` on. */
void kvcache_truncate(struct kvcache *kv, int len);
/* The same, in order to compute them again: pages that are published stay so for other
 * sequences. */
void kvcache_restart(struct kvcache *kv, int len);
/* Commit the first n rows of the last step (a chain). */
void kvcache_advance(struct kvcache *kv, int n);
/* Commit the rows path[0] < path[1] < ... of the last step, in that order. */
void kvcache_gather(struct kvcache *kv, struct device_work *w, const int *path, int n);
/* Copy slot from_slots[i] of a layer of another cache, of the same model, layers, device and type,
 * to slot to_slots[i] of the same layer. `layer` counts from layer0. Commits nothing. */
void kvcache_copy(struct kvcache *to, const struct kvcache *from, struct device_work *w, int layer,
                  const int *to_slots, const int *from_slots, int n);
/* The same for one KV head only. Not for a decoder that is spread over ranks. */
void kvcache_copy_head(struct kvcache *to, const struct kvcache *from, struct device_work *w,
                       int layer, int head, const int *to_slots, const int *from_slots, int n);

#endif
