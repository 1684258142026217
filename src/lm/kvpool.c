/* One block of device memory, page after page; in a page layer after layer, K of all heads and then
 * V of all heads. What is known about pages lies on the host under one lock. Pages are in a hash
 * table by the key before them, because a search asks "what follows these rows?". */
#include "lm/kvpool.h"

#include "base/digest.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { NONE = -1 };

struct page {
    int users;
    int n_rows;           /* published; 0: none */
    struct kv_key before; /* of what they follow */
    int chain;            /* next page in the same bucket */
    int newer, older;     /* neighbours in the list of unused pages; free ones use `older` alone */
};

struct kvpool {
    struct device *dev;
    enum dtype dtype;
    int n_layers, n_kv, d, n_pages;
    size_t page_size;
    uint8_t *mem;
    pthread_mutex_t lock;
    struct page *page;   /* [n_pages] */
    struct kv_key *rows; /* [n_pages, KV_CHUNK] */
    int *bucket;         /* [n_buckets] first page */
    int n_buckets;
    int free;           /* first of the pages that hold nothing */
    int newest, oldest; /* of the published pages that nobody uses */
    struct kvpool_counts counts;
};

size_t kvpool_page_size(const struct config *c, enum dtype dtype)
{
    return kv_page_size(dtype, c->n_layers, c->n_kv_heads, c->head_dim);
}

size_t kvpool_cost(const struct config *c, enum dtype dtype, int n_pages)
{
    return (size_t)n_pages * (kvpool_page_size(c, dtype) + sizeof(struct page) +
                              KV_CHUNK * sizeof(struct kv_key) + 2 * sizeof(int));
}

/* Of all KV heads, or of those that the device has. */
static enum pv_status open_memory(struct kvpool *p, const struct config *c, size_t size,
                                  struct pv_error *err)
{
    void *mem = NULL;
    enum pv_status s;
    if (c->spread) {
        struct kv_shape shape = { .dtype = p->dtype,
                                  .n_layers = p->n_layers,
                                  .n_heads = c->n_heads,
                                  .n_kv_heads = c->n_kv_heads,
                                  .head_dim = p->d,
                                  .n_pages = p->n_pages };
        s = p->dev->ops->alloc_kv(p->dev, &shape, &mem, &p->n_kv, err);
        p->page_size = kv_page_size(p->dtype, p->n_layers, p->n_kv, p->d);
    } else {
        s = device_alloc(p->dev, &mem, size, err);
    }
    p->mem = mem;
    return s;
}

static enum pv_status open_parts(struct kvpool *p, const struct config *c, struct pv_error *err)
{
    size_t n = (size_t)p->n_pages, size;
    enum pv_status s;
    if (!mul_size(n, p->page_size, &size))
        return fail(err, PV_E_LIMIT, "%d pages of %zu bytes are too many", p->n_pages,
                    p->page_size);
    p->n_buckets = 2 * p->n_pages + 1;
    p->page = mem_zalloc(n * sizeof *p->page);
    p->rows = mem_alloc(n * KV_CHUNK * sizeof *p->rows);
    p->bucket = mem_alloc((size_t)p->n_buckets * sizeof *p->bucket);
    if (!p->page || !p->rows || !p->bucket)
        return fail_nomem(err, n * (sizeof *p->page + KV_CHUNK * sizeof *p->rows));
    s = open_memory(p, c, size, err);
    for (int i = 0; i < p->n_buckets; i++)
        p->bucket[i] = NONE;
    for (int i = 0; i < p->n_pages; i++)
        p->page[i].older = i + 1 < p->n_pages ? i + 1 : NONE;
    return s;
}

enum pv_status kvpool_open(struct kvpool **out, struct device *dev, const struct config *c,
                           enum dtype dtype, int n_pages, struct pv_error *err)
{
    struct kvpool *p = mem_zalloc(sizeof *p);
    enum pv_status s;
    assert(n_pages > 0);
    if (!p)
        return fail_nomem(err, sizeof *p);
    p->dev = dev;
    p->dtype = dtype;
    p->n_layers = c->n_layers;
    p->n_kv = c->n_kv_heads;
    p->d = c->head_dim;
    p->n_pages = p->counts.pages = n_pages;
    p->page_size = kvpool_page_size(c, dtype);
    p->newest = p->oldest = NONE;
    pthread_mutex_init(&p->lock, NULL);
    s = open_parts(p, c, err);
    if (s) {
        kvpool_close(&p);
        return s;
    }
    *out = p;
    return PV_OK;
}

void kvpool_close(struct kvpool **pool)
{
    struct kvpool *p = *pool;
    if (!p)
        return;
    assert(p->counts.used == 0);
    if (p->mem)
        p->dev->ops->free(p->dev, p->mem);
    mem_free(p->page);
    mem_free(p->rows);
    mem_free(p->bucket);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
    *pool = NULL;
}

struct device *kvpool_device(const struct kvpool *p)
{
    return p->dev;
}

int kvpool_pages(const struct kvpool *p)
{
    return p->n_pages;
}

size_t kvpool_size(const struct kvpool *p)
{
    return p->page_size * (size_t)p->n_pages;
}

int kvpool_layers(const struct kvpool *p)
{
    return p->n_layers;
}

struct kv_layer kvpool_layer(const struct kvpool *p, int i, const int32_t *table, int cap)
{
    size_t half = p->page_size / 2 / (size_t)p->n_layers;
    return (struct kv_layer){ .dtype = p->dtype,
                              .n_kv = p->n_kv,
                              .d = p->d,
                              .cap = cap,
                              .k = p->mem + 2 * (size_t)i * half,
                              .v = p->mem + (2 * (size_t)i + 1) * half,
                              .page_size = p->page_size,
                              .n_pool = p->n_pages,
                              .page = table };
}

void *kvpool_memory(const struct kvpool *p, int page)
{
    return p->mem + (size_t)page * p->page_size;
}

/* ---- lists; the caller holds the lock ---- */

static bool same_key(const struct kv_key *a, const struct kv_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static int *bucket_of(struct kvpool *p, const struct kv_key *key)
{
    uint64_t n;
    memcpy(&n, key->bytes, sizeof n);
    return &p->bucket[n % (uint64_t)p->n_buckets];
}

static void unpublish(struct kvpool *p, int i)
{
    int *at = bucket_of(p, &p->page[i].before);
    if (p->page[i].n_rows == 0)
        return;
    while (*at != i)
        at = &p->page[*at].chain;
    *at = p->page[i].chain;
    p->page[i].n_rows = 0;
}

static void add_free(struct kvpool *p, int i)
{
    p->page[i].older = p->free;
    p->free = i;
}

static void add_unused(struct kvpool *p, int i)
{
    p->page[i].newer = NONE;
    p->page[i].older = p->newest;
    if (p->newest != NONE)
        p->page[p->newest].newer = i;
    else
        p->oldest = i;
    p->newest = i;
    p->counts.cached++;
}

static void remove_unused(struct kvpool *p, int i)
{
    struct page *g = &p->page[i];
    *(g->newer != NONE ? &p->page[g->newer].older : &p->newest) = g->older;
    *(g->older != NONE ? &p->page[g->older].newer : &p->oldest) = g->newer;
    p->counts.cached--;
}

static void evict_oldest(struct kvpool *p)
{
    int i = p->oldest;
    remove_unused(p, i);
    unpublish(p, i);
    add_free(p, i);
    p->counts.evicted++;
}

/* ---- users ---- */

int kvpool_take(struct kvpool *p)
{
    int i;
    pthread_mutex_lock(&p->lock);
    if (p->free == NONE && p->oldest != NONE)
        evict_oldest(p);
    i = p->free;
    if (i != NONE) {
        p->free = p->page[i].older;
        p->page[i].users = 1;
        p->counts.used++;
    }
    pthread_mutex_unlock(&p->lock);
    return i;
}

void kvpool_drop(struct kvpool *p, int i)
{
    pthread_mutex_lock(&p->lock);
    assert(p->page[i].users > 0);
    if (--p->page[i].users == 0) {
        p->counts.used--;
        if (p->page[i].n_rows > 0)
            add_unused(p, i);
        else
            add_free(p, i);
    }
    pthread_mutex_unlock(&p->lock);
}

bool kvpool_own(struct kvpool *p, int i)
{
    bool alone;
    pthread_mutex_lock(&p->lock);
    alone = p->page[i].users == 1;
    if (alone)
        unpublish(p, i);
    pthread_mutex_unlock(&p->lock);
    return alone;
}

/* ---- what pages hold ---- */

struct kv_key kvpool_key(const struct kv_key *before, const struct kv_key *rows)
{
    struct digest d;
    uint8_t out[DIGEST_SIZE];
    struct kv_key key;
    digest_init(&d);
    digest_add(&d, before, sizeof *before);
    digest_add(&d, rows, KV_CHUNK * sizeof *rows);
    digest_finish(&d, out);
    memcpy(key.bytes, out, sizeof key.bytes);
    return key;
}

static int count_same(const struct kvpool *p, int page, const struct kv_key *rows, int n)
{
    const struct kv_key *mine = p->rows + (size_t)page * KV_CHUNK;
    int most = p->page[page].n_rows < n ? p->page[page].n_rows : n, same = 0;
    while (same < most && same_key(&mine[same], &rows[same]))
        same++;
    return same;
}

/* The page after `before` that agrees with most of the rows; NONE: there is none. */
static int find_best(struct kvpool *p, const struct kv_key *before, const struct kv_key *rows,
                     int n, int *same)
{
    int best = NONE;
    *same = 0;
    for (int i = *bucket_of(p, before); i != NONE && *same < n; i = p->page[i].chain) {
        int agree = same_key(&p->page[i].before, before) ? count_same(p, i, rows, n) : 0;
        if (agree > *same) {
            *same = agree;
            best = i;
        }
    }
    return best;
}

void kvpool_publish(struct kvpool *p, int i, const struct kv_key *before, const struct kv_key *rows,
                    int n)
{
    struct page *g = &p->page[i];
    int same;
    pthread_mutex_lock(&p->lock);
    assert(g->users > 0 && n > 0 && n <= KV_CHUNK);
    unpublish(p, i);
    find_best(p, before, rows, n, &same);
    if (same < n) { /* else another page has all of it: this one stays unknown */
        int *at = bucket_of(p, before);
        g->before = *before;
        g->n_rows = n;
        memcpy(p->rows + (size_t)i * KV_CHUNK, rows, (size_t)n * sizeof *rows);
        g->chain = *at;
        *at = i;
    }
    pthread_mutex_unlock(&p->lock);
}

int kvpool_find(struct kvpool *p, const struct kv_key *before, const struct kv_key *rows, int n,
                int *same)
{
    int best;
    pthread_mutex_lock(&p->lock);
    best = find_best(p, before, rows, n < KV_CHUNK ? n : KV_CHUNK, same);
    if (best != NONE) {
        if (p->page[best].users++ == 0) {
            remove_unused(p, best);
            p->counts.used++;
        }
        p->counts.hits++;
    }
    pthread_mutex_unlock(&p->lock);
    return best;
}

struct kvpool_counts kvpool_counts(struct kvpool *p)
{
    struct kvpool_counts c;
    pthread_mutex_lock(&p->lock);
    c = p->counts;
    pthread_mutex_unlock(&p->lock);
    return c;
}
