/* A sequence's page table over a pool (lm/kvpool.h), and what of it may be written. */
#include "lm/kvcache.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { PATH_MAX_ROWS = 1024 };

static int pages_of(int slots)
{
    return (slots + KV_CHUNK - 1) / KV_CHUNK;
}

size_t kvcache_size(const struct config *c, enum dtype dtype, int context)
{
    return kvpool_page_size(c, dtype) * (size_t)pages_of(context);
}

enum pv_status kvcache_attach(struct kvcache *kv, struct kvpool *pool, int context,
                              struct pv_error *err)
{
    int n = pages_of(context), layers = kvpool_layers(pool);
    size_t size = (size_t)n * (sizeof *kv->page + sizeof *kv->key) + sizeof *kv->key +
                  (size_t)layers * sizeof *kv->layer;
    *kv = (struct kvcache){
        .dev = kvpool_device(pool), .n_layers = layers, .cap = n * KV_CHUNK, .pool = pool
    };
    kv->page = mem_zalloc((size_t)n * sizeof *kv->page);
    kv->key = mem_zalloc(((size_t)n + 1) * sizeof *kv->key);
    kv->layer = mem_alloc((size_t)layers * sizeof *kv->layer);
    if (!kv->page || !kv->key || !kv->layer) {
        kvcache_close(kv);
        return fail_nomem(err, size);
    }
    for (int i = 0; i < layers; i++)
        kv->layer[i] = kvpool_layer(pool, i, kv->page, kv->cap);
    return PV_OK;
}

enum pv_status kvcache_open(struct kvcache *kv, struct device *dev, const struct config *c,
                            enum dtype dtype, int context, struct pv_error *err)
{
    struct kvpool *pool;
    enum pv_status s = kvpool_open(&pool, dev, c, dtype, pages_of(context), err);
    if (s)
        return s;
    s = kvcache_attach(kv, pool, context, err);
    if (s) {
        kvpool_close(&pool);
        return s;
    }
    kv->alone = true;
    for (; kv->n_pages < pages_of(context); kv->n_pages++)
        kv->page[kv->n_pages] = kvpool_take(pool);
    return PV_OK;
}

enum pv_status kvcache_open_layers(struct kvcache *kv, struct device *dev, const struct config *c,
                                   int layer0, int layer1, enum dtype dtype, int context,
                                   struct pv_error *err)
{
    struct config part = *c;
    enum pv_status s;
    assert(layer0 >= 0 && layer0 < layer1 && layer1 <= c->n_layers);
    part.n_layers = layer1 - layer0;
    s = kvcache_open(kv, dev, &part, dtype, context, err);
    if (!s)
        kv->layer0 = layer0;
    return s;
}

/* Pages from n on go back. The last goes first: it is the one least likely to be shared, so it
 * shall be the oldest. */
static void drop_pages(struct kvcache *kv, int n)
{
    while (kv->n_pages > n)
        kvpool_drop(kv->pool, kv->page[--kv->n_pages]);
    kv->n_known = kv->n_known < n ? kv->n_known : n;
}

void kvcache_close(struct kvcache *kv)
{
    if (kv->pool)
        drop_pages(kv, 0);
    if (kv->alone)
        kvpool_close(&kv->pool);
    mem_free(kv->page);
    mem_free(kv->key);
    mem_free(kv->layer);
    *kv = (struct kvcache){ 0 };
}

/* ---- pages ---- */

int kvcache_lacks(const struct kvcache *kv, int n)
{
    int lacks = pages_of(kv->len + n) - kv->n_pages;
    return lacks > 0 ? lacks : 0;
}

/* A copy takes the place of page i of the table. */
static bool copy_page(struct kvcache *kv, struct device_work *w, int i)
{
    int copy = kvpool_take(kv->pool);
    if (copy < 0)
        return false;
    kv->dev->ops->copy(w, kvpool_memory(kv->pool, copy), kvpool_memory(kv->pool, kv->page[i]),
                       kv->layer[0].page_size);
    kvpool_drop(kv->pool, kv->page[i]);
    kv->page[i] = copy;
    return true;
}

bool kvcache_reserve(struct kvcache *kv, struct device_work *w, int n)
{
    int first = kv->len / KV_CHUNK, end = pages_of(kv->len + n);
    if (kv->alone)
        return n <= kv->cap - kv->len;
    if (n > kv->cap - kv->len)
        return false;
    for (int i = first; i < kv->n_pages && i < end; i++) {
        if (!kvpool_own(kv->pool, kv->page[i]) && !copy_page(kv, w, i))
            return false;
        kv->n_known = kv->n_known < i ? kv->n_known : i;
    }
    for (; kv->n_pages < end; kv->n_pages++) {
        int page = kvpool_take(kv->pool);
        if (page < 0)
            return false;
        kv->page[kv->n_pages] = page;
    }
    return true;
}

/* ---- sharing ---- */

int kvcache_adopt(struct kvcache *kv, struct device_work *w, const struct kv_key *rows, int n)
{
    assert(kv->n_pages == 0 && kv->len == 0 && !kv->alone);
    n = n < kv->cap ? n : kv->cap;
    while (kv->len < n) {
        int same, i = kv->n_pages;
        int page = kvpool_find(kv->pool, &kv->key[i], rows + kv->len, n - kv->len, &same);
        if (page < 0)
            break;
        kv->page[kv->n_pages++] = page;
        kv->len += same;
        if (same == KV_CHUNK) {
            kv->key[i + 1] = kvpool_key(&kv->key[i], rows + (size_t)i * KV_CHUNK);
            kv->n_known = kv->n_pages;
            continue;
        }
        if (!copy_page(kv, w, i) && !kvpool_own(kv->pool, kv->page[i])) {
            drop_pages(kv, i); /* no room for a copy: the part is computed again */
            kv->len = i * KV_CHUNK;
        }
        break;
    }
    return kv->len;
}

void kvcache_publish(struct kvcache *kv, const struct kv_key *rows)
{
    if (kv->alone)
        return;
    for (; (kv->n_known + 1) * KV_CHUNK <= kv->len; kv->n_known++) {
        const struct kv_key *mine = rows + (size_t)kv->n_known * KV_CHUNK;
        struct kv_key *before = &kv->key[kv->n_known];
        kvpool_publish(kv->pool, kv->page[kv->n_known], before, mine, KV_CHUNK);
        before[1] = kvpool_key(before, mine);
    }
}

void kvcache_release(struct kvcache *kv, const struct kv_key *rows)
{
    if (kv->alone || !kv->pool)
        return;
    if (rows) {
        int rest;
        kvcache_publish(kv, rows);
        rest = kv->len - kv->n_known * KV_CHUNK;
        if (rest > 0)
            kvpool_publish(kv->pool, kv->page[kv->n_known], &kv->key[kv->n_known],
                           rows + (size_t)kv->n_known * KV_CHUNK, rest);
    }
    drop_pages(kv, 0);
    kv->len = 0;
}

/* ---- slots ---- */

void kvcache_truncate(struct kvcache *kv, int len)
{
    assert(len >= 0 && len <= kv->len);
    kv->len = len;
    kv->n_known = kv->n_known < len / KV_CHUNK ? kv->n_known : len / KV_CHUNK;
}

void kvcache_restart(struct kvcache *kv, int len)
{
    kvcache_truncate(kv, len);
    if (!kv->alone)
        drop_pages(kv, pages_of(len));
}

void kvcache_advance(struct kvcache *kv, int n)
{
    assert(n >= 0 && n <= kv->n_pages * KV_CHUNK - kv->len);
    kv->len += n;
}

void kvcache_gather(struct kvcache *kv, struct device_work *w, const int *path, int n)
{
    int to[PATH_MAX_ROWS], from[PATH_MAX_ROWS];
    assert(n <= PATH_MAX_ROWS && n <= kv->n_pages * KV_CHUNK - kv->len);
    for (int i = 0; i < n; i++) {
        to[i] = kv->len + i;
        from[i] = kv->len + path[i];
        assert(path[i] >= i && (i == 0 || path[i] > path[i - 1]));
    }
    for (int l = 0; l < kv->n_layers; l++)
        kv->dev->ops->kv_move(w, &kv->layer[l], to, from, n);
    kv->len += n;
}

void kvcache_copy(struct kvcache *to, const struct kvcache *from, struct device_work *w, int layer,
                  const int *to_slots, const int *from_slots, int n)
{
    const struct kv_layer *a = &to->layer[layer], *b = &from->layer[layer];
    assert(to != from && to->dev == from->dev && to->n_layers == from->n_layers &&
           to->layer0 == from->layer0);
    assert(a->dtype == b->dtype && a->n_kv == b->n_kv && a->d == b->d);
    to->dev->ops->kv_copy(w, a, b, to_slots, from_slots, n);
}

/* The layer as if it had this KV head alone: the heads of a page lie one after another. */
static struct kv_layer one_head(const struct kv_layer *kv, int head)
{
    struct kv_layer one = *kv;
    size_t at = (size_t)head * kv_head_size(kv->dtype, kv->d);
    assert(head >= 0 && head < kv->n_kv);
    one.n_kv = 1;
    one.k = (uint8_t *)kv->k + at;
    one.v = (uint8_t *)kv->v + at;
    return one;
}

void kvcache_copy_head(struct kvcache *to, const struct kvcache *from, struct device_work *w,
                       int layer, int head, const int *to_slots, const int *from_slots, int n)
{
    struct kv_layer a = one_head(&to->layer[layer], head);
    struct kv_layer b = one_head(&from->layer[layer], head);
    assert(to != from && to->dev == from->dev && to->n_layers == from->n_layers &&
           to->layer0 == from->layer0);
    assert(a.dtype == b.dtype && a.d == b.d);
    to->dev->ops->kv_copy(w, &a, &b, to_slots, from_slots, n);
}
