/* A pool of KV pages for the sequences of one decoder on one device.
 *
 * A page holds the keys and values of KV_CHUNK positions in all layers. Sequences (lm/kvcache.h)
 * take pages and return them. A page whose rows will not change any more can be published under the
 * digests of its rows and the key of everything before them. A later sequence that begins with the
 * same rows then shares the page instead of computing it. Since the bits of a row do not depend on
 * the other rows of a step, sharing changes no result. Published pages that nobody uses stay until
 * memory is needed; the least recently used one is evicted first.
 *
 * All functions may be called from several threads. */
#ifndef PV_LM_KVPOOL_H
#define PV_LM_KVPOOL_H

#include "format/config.h"
#include "tensor/device.h"

enum { KV_KEY_SIZE = 16 };

/* 128 bits of a digest (base/digest.h): of one row (its token or picture, its positions, how it was
 * run), or of a page and all pages before it. The key before the first page is all zero. */
struct kv_key {
    uint8_t bytes[KV_KEY_SIZE];
};

struct kvpool;

/* Bytes of one page on the device. */
size_t kvpool_page_size(const struct config *c, enum dtype dtype);
/* Bytes that kvpool_open allocates for n pages, including the bookkeeping. */
size_t kvpool_cost(const struct config *c, enum dtype dtype, int n_pages);
/* Allocates all pages. Borrows dev. */
enum pv_status kvpool_open(struct kvpool **out, struct device *dev, const struct config *c,
                           enum dtype dtype, int n_pages, struct pv_error *err);
/* Every page must have been returned. */
void kvpool_close(struct kvpool **pool);

struct device *kvpool_device(const struct kvpool *p);
int kvpool_pages(const struct kvpool *p);
size_t kvpool_size(const struct kvpool *p); /* bytes of all pages */
int kvpool_layers(const struct kvpool *p);
/* Layer i for a sequence with the page table `table` [cap / KV_CHUNK]. */
struct kv_layer kvpool_layer(const struct kvpool *p, int i, const int32_t *table, int cap);
/* Where a page begins, on the device: kvpool_page_size bytes. */
void *kvpool_memory(const struct kvpool *p, int page);

/* A page for the caller's exclusive use, with undefined but finite contents; -1: all are in use. */
int kvpool_take(struct kvpool *p);
void kvpool_drop(struct kvpool *p, int page);
/* Prepare to write to a page. True: the caller is its only user, and it is no longer published.
 * False: the caller must copy it instead. */
bool kvpool_own(struct kvpool *p, int page);

/* The key of a page with these rows [KV_CHUNK] after the pages with the key `before`. */
struct kv_key kvpool_key(const struct kv_key *before, const struct kv_key *rows);
/* Publish the first n rows of a page. The caller keeps using the page and must not write to these
 * rows again without kvpool_own. */
void kvpool_publish(struct kvpool *p, int page, const struct kv_key *before,
                    const struct kv_key *rows, int n);
/* The published page after `before` that has the longest common prefix, *same rows, with rows [n].
 * The caller becomes one of its users. -1: no page has the same first row. */
int kvpool_find(struct kvpool *p, const struct kv_key *before, const struct kv_key *rows, int n,
                int *same);

struct kvpool_counts {
    int pages;    /* in all */
    int used;     /* by sequences */
    int cached;   /* published and not used by anyone */
    int64_t hits; /* pages found by kvpool_find */
    int64_t evicted;
};
struct kvpool_counts kvpool_counts(struct kvpool *p);

#endif
