/* Pages are written as they are in memory. A page that is known only in part is written whole, and
 * only its known rows are published when it is read. */
#include "engine/disk_pages.h"

#include "base/mem.h"
#include "engine/scheduler.h"

#include <string.h>

/* The key of the first n rows of a page, given the key `before` of everything before it. */
static void page_key(const struct engine_disk *d, const struct kv_key *before,
                     const struct kv_key *rows, int n, uint8_t key[DIGEST_SIZE])
{
    struct digest k;
    digest_init(&k);
    digest_add(&k, d->pages_id, sizeof d->pages_id);
    digest_add(&k, before, sizeof *before);
    digest_add(&k, rows, (size_t)n * sizeof *rows);
    digest_finish(&k, key);
}

/* Number of rows of page i up to the end of the last run of a media item that ends in it; 0 if none
 * does. */
static int media_rows_in(const struct timeline *t, int i)
{
    int rows = 0;
    for (int k = 0; k < t->n_spans; k++) {
        int end = t->span[k].row0 + t->span[k].n - i * KV_CHUNK;
        if (end > rows && end < KV_CHUNK)
            rows = end;
    }
    return rows;
}

/* ---- reading ---- */

/* What reading a page needs. */
struct reader {
    struct engine_disk *disk;
    const struct sequence *q;
    struct device_work *work;
    struct disk_entry entry;
};

/* Read the first n rows of a page into a page of the pool. Returns -1 if they are not on disk or no
 * page is free. */
static int32_t read_page(struct reader *r, const struct kv_key *before, const struct kv_key *rows,
                         int n)
{
    const struct sequence *q = r->q;
    struct engine_disk *d = r->disk;
    struct kvpool *pool = q->kv.pool;
    const struct device_ops *ops = kvpool_device(pool)->ops;
    size_t size = q->kv.layer[0].page_size;
    uint8_t key[DIGEST_SIZE];
    int page;
    page_key(d, before, rows, n, key);
    if (!disk_cache_has(d->cache, DISK_PAGE, key))
        return -1;
    page = kvpool_take(pool);
    if (page < 0)
        return -1;
    if (disk_cache_find(d->cache, DISK_PAGE, key, size, &r->entry)) {
        ops->put(r->work, kvpool_memory(pool, page), r->entry.data, size);
        if (!ops->wait(r->work, NULL)) {
            kvpool_publish(pool, page, before, rows, n);
            return page;
        }
    }
    kvpool_drop(pool, page);
    return -1;
}

/* Get page i after `before` from the pool, or else from disk. *same: number of its rows that exist.
 */
static int32_t fetch_page(struct reader *r, int i, const struct kv_key *before, int *same)
{
    const struct sequence *q = r->q;
    const struct kv_key *rows = q->digest + (size_t)i * KV_CHUNK;
    int left = q->line.n - i * KV_CHUNK, part = media_rows_in(&q->line, i);
    int32_t found = kvpool_find(q->kv.pool, before, rows, left, same), read = -1;
    if (*same == KV_CHUNK)
        return found;
    if (left >= KV_CHUNK) {
        read = read_page(r, before, rows, KV_CHUNK);
        *same = read >= 0 ? KV_CHUNK : *same;
    }
    if (read < 0 && part > *same) {
        read = read_page(r, before, rows, part);
        *same = read >= 0 ? part : *same;
    }
    if (read >= 0 && found >= 0)
        kvpool_drop(q->kv.pool, found);
    return read >= 0 ? read : found;
}

void disk_pages_fetch(struct engine_disk *d, const struct sequence *q, struct device_work *work,
                      struct task *t)
{
    int most = (q->line.n + KV_CHUNK - 1) / KV_CHUNK, n = 0, same = KV_CHUNK;
    struct kv_key before = { { 0 } };
    struct reader r = { .disk = d, .q = q, .work = work };
    int32_t *page = d->cache && d->kv ? mem_alloc((size_t)most * sizeof *page) : NULL;
    while (page && n < most && same == KV_CHUNK && !task_cancelled(t)) {
        page[n] = fetch_page(&r, n, &before, &same);
        if (page[n] < 0)
            break;
        if (same == KV_CHUNK)
            before = kvpool_key(&before, q->digest + (size_t)n * KV_CHUNK);
        n++;
        task_pause(t);
    }
    /* The pages were held so that none was evicted for the next one. Now the last one must not be
     * held, since it is written to if it is not full. */
    while (n > 0)
        kvpool_drop(q->kv.pool, page[--n]);
    mem_free(page);
    disk_entry_clear(&r.entry);
}

/* ---- writing ---- */

static void write_page(struct engine_disk *d, const struct sequence *q, struct device_work *work,
                       int i, int n, uint8_t *copy)
{
    const struct device_ops *ops = kvpool_device(q->kv.pool)->ops;
    size_t size = q->kv.layer[0].page_size;
    uint8_t key[DIGEST_SIZE];
    page_key(d, &q->kv.key[i], q->digest + (size_t)i * KV_CHUNK, n, key);
    if (disk_cache_has(d->cache, DISK_PAGE, key))
        return;
    ops->get(work, copy, kvpool_memory(q->kv.pool, q->kv.page[i]), size);
    if (!ops->wait(work, NULL))
        disk_cache_keep(d->cache, DISK_PAGE, key, copy, size);
}

void disk_pages_keep(struct engine_disk *d, struct sequence *q, struct device_work *work,
                     struct task *t)
{
    int len = q->kv.len < q->answer0 ? q->kv.len : q->answer0;
    uint8_t *copy;
    if (!d->cache || !d->kv)
        return;
    copy = mem_alloc(q->kv.layer[0].page_size);
    kvcache_publish(&q->kv, q->digest); /* computes the keys of all pages */
    task_preemptible(t, false);
    for (int i = 0; copy && i * KV_CHUNK < len; i++) {
        int part = media_rows_in(&q->line, i);
        if ((i + 1) * KV_CHUNK <= len)
            write_page(d, q, work, i, KV_CHUNK, copy);
        if (part > 0 && i * KV_CHUNK + part <= len)
            write_page(d, q, work, i, part, copy);
        task_pause(t);
    }
    task_preemptible(t, true);
    mem_free(copy);
}
