/* Pages shared between sequences: whatever sequences of a few common beginnings come, grow, fork
 * and go, each finds in its slots what belongs to its own rows, no page is lost, and the pool never
 * has more of them than it was given. */
#include "lm/kvcache.h"

#include "base/rng.h"
#include "rig.h"

enum { CONTEXT = 1024, SEQS = 5, FEW_PAGES = 8, MANY_PAGES = 14 };

static const struct config small = { .n_layers = 2, .n_kv_heads = 1, .head_dim = 8 };

struct sequence {
    struct kvcache kv;
    struct kv_key rows[CONTEXT];
    float mark[CONTEXT]; /* what the slot must hold: a function of the row and all before it */
};

struct scene {
    struct device *dev;
    struct device_work *work;
    struct kvpool *pool;
    struct sequence seq[SEQS];
};

static bool scene_open(struct scene *s, int pages)
{
    struct work_shape shape = { .rows = 64,
                                .in = 64,
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 8,
                                .context = CONTEXT,
                                .kv_dtype = DTYPE_F32 };
    if (!CHECK(!device_cpu_open(&s->dev, 1, 0, NULL) &&
               !s->dev->ops->work_open(s->dev, &s->work, &shape, NULL) &&
               !kvpool_open(&s->pool, s->dev, &small, DTYPE_F32, pages, NULL)))
        return false;
    for (int i = 0; i < SEQS; i++)
        CHECK(!kvcache_attach(&s->seq[i].kv, s->pool, CONTEXT, NULL));
    return true;
}

static void scene_close(struct scene *s)
{
    for (int i = 0; i < SEQS; i++)
        kvcache_close(&s->seq[i].kv);
    CHECK_EQ(kvpool_counts(s->pool).used, 0);
    kvpool_close(&s->pool);
    s->dev->ops->work_close(s->dev, &s->work);
    device_close(&s->dev);
}

/* Names rows [from, to): a token each, and what the slots must hold. */
static void name_rows(struct sequence *q, int from, int to, struct rng *r, int common)
{
    for (int i = from; i < to; i++) {
        int token = i < common ? i / 300 : (int)(rng_next(r) % 3);
        float before = i ? q->mark[i - 1] : 1;
        q->rows[i] = (struct kv_key){ { (uint8_t)token, (uint8_t)i, (uint8_t)(i >> 8) } };
        q->mark[i] = (float)((int)(before * 31 + (float)(token + i)) % 1000003);
    }
}

static void write_rows(struct scene *s, struct sequence *q, int n)
{
    for (int i = 0; i < n; i++) {
        float x[8];
        for (int k = 0; k < 8; k++)
            x[k] = q->mark[q->kv.len + i] + (float)k;
        for (int l = 0; l < 2; l++)
            s->dev->ops->kv_write(s->work, &q->kv.layer[l], q->kv.len + i, x, x, 1);
    }
    kvcache_advance(&q->kv, n);
}

static bool holds(const struct sequence *q)
{
    for (int i = 0; i < q->kv.len; i++)
        for (int l = 0; l < 2; l++) {
            float k, v;
            memcpy(&k, kv_key_at(&q->kv.layer[l], 0, i) + 4 * 3, sizeof k);
            memcpy(&v, kv_value_at(&q->kv.layer[l], 0, i, 5), sizeof v);
            if (k != q->mark[i] + 3 || v != q->mark[i] + 5)
                return CHECK_MSG(false, "slot %d of %d", i, q->kv.len);
        }
    return true;
}

TEST(sequences_share_what_they_have_in_common)
{
    static struct scene s;
    struct rng r = { test_seed };
    int64_t adopted = 0, refused = 0;
    if (!scene_open(&s, FEW_PAGES))
        return;
    for (int round = 0; round < 4000; round++) {
        struct sequence *q = &s.seq[rng_next(&r) % SEQS];
        int n = 1 + (int)(rng_next(&r) % 60);
        switch (rng_next(&r) % 8) {
        case 0: /* it ends; what it has stays known */
            kvcache_release(&q->kv, rng_next(&r) % 8 ? q->rows : NULL);
            break;
        case 1: /* back to an earlier row, and on another way */
            kvcache_truncate(&q->kv, (int)(rng_next(&r) % (uint64_t)(q->kv.len + 1)));
            name_rows(q, q->kv.len, CONTEXT, &r, 0);
            break;
        default:
            if (q->kv.len == 0 && q->kv.n_pages == 0) { /* a new one */
                name_rows(q, 0, CONTEXT, &r, (int)(rng_next(&r) % 700));
                adopted += kvcache_adopt(&q->kv, s.work, q->rows, 800) > 0;
            }
            n = n < CONTEXT - q->kv.len ? n : CONTEXT - q->kv.len;
            if (!kvcache_reserve(&q->kv, s.work, n)) {
                refused++; /* others have the pages: this one gives way */
                kvcache_release(&q->kv, q->rows);
                break;
            }
            write_rows(&s, q, n);
            kvcache_publish(&q->kv, q->rows);
        }
        if (!holds(q))
            break;
        struct kvpool_counts c = kvpool_counts(s.pool);
        CHECK(c.used + c.cached <= FEW_PAGES && c.used >= 0 && c.cached >= 0);
    }
    for (int i = 0; i < SEQS; i++)
        holds(&s.seq[i]);
    CHECK_MSG(adopted > 50 && refused > 20 && kvpool_counts(s.pool).evicted > 20,
              "%lld adopted, %lld refused, %lld evicted", (long long)adopted, (long long)refused,
              (long long)kvpool_counts(s.pool).evicted);
    scene_close(&s);
}

TEST(pages_go_by_last_use)
{
    static struct scene s;
    static struct sequence *q[3] = { &s.seq[0], &s.seq[1], &s.seq[2] };
    struct rng r = { 3 };
    if (!scene_open(&s, MANY_PAGES))
        return;
    for (int i = 0; i < 3; i++) { /* 4 of 14 pages each */
        name_rows(q[i], 0, CONTEXT, &r, 0);
        CHECK(kvcache_reserve(&q[i]->kv, s.work, CONTEXT));
        write_rows(&s, q[i], CONTEXT);
        kvcache_release(&q[i]->kv, q[i]->rows);
    }
    CHECK_EQ(kvcache_adopt(&q[0]->kv, s.work, q[0]->rows, CONTEXT), CONTEXT); /* used again */
    kvcache_release(&q[0]->kv, q[0]->rows);
    name_rows(&s.seq[3], 0, CONTEXT, &r, 0);
    CHECK(kvcache_reserve(&s.seq[3].kv, s.work, CONTEXT)); /* 2 were free, 2 must go: q[1]'s last */
    CHECK_EQ(kvcache_adopt(&q[0]->kv, s.work, q[0]->rows, CONTEXT), CONTEXT);
    CHECK_EQ(kvcache_adopt(&q[2]->kv, s.work, q[2]->rows, CONTEXT), CONTEXT);
    CHECK_EQ(kvcache_adopt(&q[1]->kv, s.work, q[1]->rows, CONTEXT), 2 * KV_CHUNK);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
