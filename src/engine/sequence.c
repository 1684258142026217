/* A prompt begins with the rows that the pool already has. Pages are published as they fill, and
 * all are returned when the answer ends or when other tasks need them more. Rows are identified by
 * digests of everything that their keys and values depend on. */
#include "engine/sequence.h"

#include "base/digest.h"
#include "base/mem.h"

#include <string.h>

enum pv_status sequence_open(struct sequence *q, struct kvpool *pool, int context, bool ways_differ,
                             struct pv_error *err)
{
    size_t n = (size_t)context;
    enum pv_status s = kvcache_attach(&q->kv, pool, context, err);
    if (!s)
        s = timeline_open(&q->line, context, err);
    if (s)
        return s;
    q->ways_differ = ways_differ;
    q->digest = mem_alloc(n * sizeof *q->digest);
    q->kv_ids = mem_alloc(n * sizeof *q->kv_ids);
    if (!q->digest || !q->kv_ids)
        return fail_nomem(err, n * (sizeof *q->digest + sizeof *q->kv_ids));
    return PV_OK;
}

void sequence_close(struct sequence *q)
{
    kvcache_close(&q->kv);
    timeline_close(&q->line);
    mem_free(q->digest);
    mem_free(q->kv_ids);
    *q = (struct sequence){ 0 };
}

/* ---- digests of rows ---- */

/* Everything on which the keys and values of a row depend, except the rows before it. */
struct row_name {
    int32_t id;  /* a token; -1: a row of a media item */
    int32_t row; /* index of the row in the media item */
    int32_t pos[3];
    int32_t decoded; /* computed like rows of an answer, if that differs from prompts */
    uint8_t item[DIGEST_SIZE];
};

/* Compute the digests of rows [from, to). */
static void make_digests(struct sequence *q, int from, int to)
{
    for (int i = from; i < to; i++) {
        struct row_name name = { .id = q->line.ids[i],
                                 .decoded = q->ways_differ && i >= q->answer0 };
        struct digest d;
        uint8_t out[DIGEST_SIZE];
        int row = 0;
        const struct media_item *m = timeline_item(&q->line, i, &row);
        memcpy(name.pos, q->line.pos[i], sizeof name.pos);
        if (m) {
            name.id = -1;
            name.row = row;
            memcpy(name.item, m->m.digest, sizeof name.item);
        }
        digest_init(&d);
        digest_add(&d, &name, sizeof name);
        digest_finish(&d, out);
        memcpy(q->digest[i].bytes, out, sizeof q->digest[i].bytes);
    }
}

/* ---- pages ---- */

int sequence_name(struct sequence *q)
{
    int same = 0;
    while (same < q->n_kv_ids && same < q->line.n && q->kv_ids[same] == q->line.ids[same])
        ++same;
    memcpy(q->kv_ids, q->line.ids, (size_t)q->line.n * sizeof *q->kv_ids);
    q->n_kv_ids = q->line.n;
    make_digests(q, 0, q->line.n);
    return same;
}

int sequence_adopt(struct sequence *q, struct device_work *work)
{
    return kvcache_adopt(&q->kv, work, q->digest, q->line.n);
}

void sequence_commit(struct sequence *q, struct device_work *work, int n, const int *path,
                     bool whole)
{
    int from = q->kv.len;
    if (!path || path[n - 1] == n - 1)
        kvcache_advance(&q->kv, n);
    else
        kvcache_gather(&q->kv, work, path, n);
    if (from >= q->answer0) {
        memcpy(q->kv_ids + from, q->line.ids + from, (size_t)n * sizeof *q->kv_ids);
        q->n_kv_ids = q->kv.len;
        make_digests(q, from, q->kv.len);
    }
    if (whole && from / KV_CHUNK != q->kv.len / KV_CHUNK)
        kvcache_publish(&q->kv, q->digest);
}

void sequence_release(struct sequence *q)
{
    kvcache_release(&q->kv, q->digest);
}

void sequence_give_back(struct sequence *q)
{
    q->kept_len = q->kv.len > q->kept_len ? q->kv.len : q->kept_len; /* less: partly restored */
    kvcache_release(&q->kv, q->digest);
}

void sequence_restore(struct sequence *q, struct device_work *work)
{
    kvcache_adopt(&q->kv, work, q->digest, q->kept_len);
}
