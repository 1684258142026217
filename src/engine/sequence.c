/* The rows of a session in the engine's pages: a prompt begins with whatever the pool already
 * knows, pages are published as they fill, and all go back when the answer ends or when others need
 * them more. Rows are named by digests of all that their keys and values depend on. */
#include "engine/session.h"

#include "base/digest.h"

#include <string.h>

/* What the keys and values of a row are a function of, beside the rows before it. */
struct row_name {
    int32_t id;  /* a token; -1: a row of a medium, */
    int32_t row; /* and which */
    int32_t pos[3];
    int32_t decoded; /* it went the way of an answer's rows, where that differs */
    uint8_t medium[DIGEST_SIZE];
};

void session_digest(struct pv_session *s, int from, int to)
{
    bool ways = decoder_ways_differ(s->model->dec);
    for (int i = from; i < to; i++) {
        struct row_name name = { .id = s->line.ids[i], .decoded = ways && i >= s->answer0 };
        struct digest d;
        uint8_t out[DIGEST_SIZE];
        int row = 0;
        const struct medium *m = timeline_medium(&s->line, i, &row);
        memcpy(name.pos, s->line.pos[i], sizeof name.pos);
        if (m) {
            name.id = -1;
            name.row = row;
            memcpy(name.medium, m->digest, sizeof name.medium);
        }
        digest_init(&d);
        digest_add(&d, &name, sizeof name);
        digest_finish(&d, out);
        memcpy(s->digest[i].bytes, out, sizeof s->digest[i].bytes);
    }
}

void session_commit(struct pv_session *s, int n, const int *path)
{
    int from = s->kv.len;
    if (!path || path[n - 1] == n - 1)
        kvcache_advance(&s->kv, n);
    else
        kvcache_gather(&s->kv, s->target.base.work, path, n);
    if (from >= s->answer0) {
        memcpy(s->kv_ids + from, s->line.ids + from, (size_t)n * sizeof *s->kv_ids);
        s->n_kv_ids = s->kv.len;
        session_digest(s, from, s->kv.len);
    }
    if (from / KV_CHUNK != s->kv.len / KV_CHUNK)
        kvcache_publish(&s->kv, s->digest);
}
