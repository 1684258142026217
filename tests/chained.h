/* Chains of a step (struct step) against one step after another, on any device: the same tokens and
 * the same bytes of the KV cache, whatever was recorded before. */
#ifndef PV_TESTS_CHAINED_H
#define PV_TESTS_CHAINED_H

#include "lm/sampling.h"
#include "rig.h"
#include "tiny_model.h"

enum { CHAINED_VOCAB = 96, CHAINED_ROWS = 24, CHAINED_CONTEXT = 512 };

struct chained {
    struct rig at_once, by_one;
    struct kvcache other[2]; /* another sequence of each, with pages of its own */
    struct sampling how;     /* temperature 0: greedy */
};

static inline void chained_close(struct chained *c)
{
    kvcache_close(&c->other[0]);
    kvcache_close(&c->other[1]);
    rig_close(&c->at_once);
    rig_close(&c->by_one);
}

/* Both score every third token only, from the second on. */
static inline bool chained_narrow(struct chained *c)
{
    int32_t ids[CHAINED_VOCAB];
    struct rig *both[] = { &c->at_once, &c->by_one };
    int n = 0;
    for (int i = 1; i < CHAINED_VOCAB; i += 3)
        ids[n++] = i;
    for (int i = 0; i < 2; i++) {
        struct rig *r = both[i];
        struct pv_error err = { 0 };
        decoder_state_close(&r->st);
        if (!CHECK_MSG(!decoder_draft_vocab(r->dec, model_file_lm_head(r->mf), ids, n, &err), "%s",
                       err.text) ||
            !CHECK(!decoder_state_open(&r->st, r->dec, CHAINED_ROWS, CHAINED_ROWS, CHAINED_CONTEXT,
                                       DTYPE_BF16, NULL)))
            return false;
    }
    return true;
}

static inline bool chained_open(struct chained *c, enum dtype type, struct rig_shape shape)
{
    struct tiny_model m = { .arch = "qwen2",
                            .hidden = 64,
                            .n_layers = 2,
                            .n_heads = 2,
                            .n_kv = 1,
                            .head_dim = 64,
                            .ffn = 128,
                            .vocab = CHAINED_VOCAB,
                            .type = (int)type,
                            .seed = 9 };
    char path[256];
    const char *name = tiny_model_write(&m, "chained", path);
    *c = (struct chained){ .how = { .top_p = 1 } };
    shape.kv = DTYPE_BF16;
    shape.max_rows = CHAINED_ROWS;
    shape.context = CHAINED_CONTEXT;
    return rig_open(&c->at_once, name, shape) && rig_open(&c->by_one, name, shape) &&
           CHECK(!kvcache_open(&c->other[0], c->at_once.dev, c->at_once.c, DTYPE_BF16,
                               CHAINED_CONTEXT, NULL)) &&
           CHECK(!kvcache_open(&c->other[1], c->by_one.dev, c->by_one.c, DTYPE_BF16,
                               CHAINED_CONTEXT, NULL));
}

/* A step of n rows with a chain behind it, at plain positions; 1 + chain tokens. */
struct chained_step {
    struct step step;
    struct step_seq seq;
    struct step_choice choice;
    int32_t pos[CHAINED_ROWS + STEP_MAX_CHAIN][3];
    uint64_t position[STEP_MAX_CHAIN + 1];
    int last;
};

static inline void chained_fill(struct chained_step *s, const struct sampling *how,
                                struct kvcache *kv, const int32_t *ids, int n, int chain,
                                int32_t *out)
{
    bool greedy = how->temperature == 0;
    s->last = n - 1;
    s->seq = (struct step_seq){ .kv = kv, .n = n };
    s->choice = (struct step_choice){
        .t = how->temperature, .drawn = out, .position = s->position, .seed = how->seed
    };
    s->step = (struct step){ .n = n,
                             .ids = ids,
                             .pos = (const int32_t(*)[3])s->pos,
                             .n_seqs = 1,
                             .seqs = &s->seq,
                             .n_logits = 1,
                             .logit_rows = &s->last,
                             .argmax = greedy ? out : NULL,
                             .choice = greedy ? NULL : &s->choice,
                             .chain = chain };
    for (int i = 0; i < n + chain; i++)
        for (int a = 0; a < 3; a++)
            s->pos[i][a] = kv->len + i;
    for (int i = 0; i <= chain; i++)
        s->position[i] = (uint64_t)(kv->len + n + i);
}

/* The yardstick: n rows, and then each token of its own. Commits all rows. */
static inline bool chained_by_one(struct chained *c, struct kvcache *kv, const int32_t *ids, int n,
                                  int chain, int32_t *out)
{
    struct chained_step s;
    struct pv_error err = { 0 };
    bool ok = true;
    for (int i = 0; i <= chain && ok; i++) {
        const int32_t *from = i ? out + i - 1 : ids;
        int rows = i ? 1 : n;
        chained_fill(&s, &c->how, kv, from, rows, 0, out + i);
        ok = CHECK_MSG(!decoder_step(c->by_one.dec, c->by_one.st, &s.step, &err), "%s", err.text);
        kvcache_advance(kv, rows);
    }
    return ok;
}

static inline bool chained_same_pool(const struct chained *c, const struct kvcache *a,
                                     const struct kvcache *b)
{
    size_t size = kvpool_size(a->pool);
    uint8_t *x = malloc(size), *y = malloc(size);
    bool same;
    c->at_once.dev->ops->download(c->at_once.dev, x, kvpool_memory(a->pool, 0), size);
    c->by_one.dev->ops->download(c->by_one.dev, y, kvpool_memory(b->pool, 0), size);
    same = size == kvpool_size(b->pool) && !memcmp(x, y, size);
    free(x);
    free(y);
    return same;
}

/* One sequence: the tokens, the cache, and that both go on alike. */
static inline bool chained_once(struct chained *c, const int32_t *ids, int n, int chain)
{
    struct chained_step s;
    struct pv_error err = { 0 };
    int32_t got[STEP_MAX_CHAIN + 1], want[STEP_MAX_CHAIN + 1];
    bool ok = chained_by_one(c, &c->by_one.kv, ids, n, chain, want);
    chained_fill(&s, &c->how, &c->at_once.kv, ids, n, chain, got);
    ok = ok &&
         CHECK_MSG(!decoder_step(c->at_once.dec, c->at_once.st, &s.step, &err), "%s", err.text);
    kvcache_advance(&c->at_once.kv, n + chain);
    for (int i = 0; i <= chain && ok; i++)
        ok = CHECK_MSG(got[i] == want[i], "token %d of %d behind %d rows is %d, not %d", i,
                       chain + 1, n, (int)got[i], (int)want[i]) &&
             CHECK(!decoder_draft_ids(c->at_once.dec) || got[i] % 3 == 1);
    return ok && CHECK_MSG(chained_same_pool(c, &c->at_once.kv, &c->by_one.kv),
                           "the caches differ after a chain of %d behind %d rows", chain, n);
}

/* Two sequences of different lengths in one pass. */
static inline bool chained_twice(struct chained *c, const int32_t *ids, int n, int m, int chain)
{
    struct chained_step s[2];
    const struct step *steps[2] = { &s[0].step, &s[1].step };
    struct pv_error err = { 0 };
    int32_t got[2][STEP_MAX_CHAIN + 1], want[2][STEP_MAX_CHAIN + 1];
    bool ok = chained_by_one(c, &c->by_one.kv, ids, n, chain, want[0]) &&
              chained_by_one(c, &c->other[1], ids + 3, m, chain, want[1]);
    chained_fill(&s[0], &c->how, &c->at_once.kv, ids, n, chain, got[0]);
    chained_fill(&s[1], &c->how, &c->other[0], ids + 3, m, chain, got[1]);
    ok = ok &&
         CHECK_MSG(!decoder_steps(c->at_once.dec, c->at_once.st, steps, 2, &err), "%s", err.text);
    kvcache_advance(&c->at_once.kv, n + chain);
    kvcache_advance(&c->other[0], m + chain);
    for (int k = 0; k < 2 && ok; k++)
        for (int i = 0; i <= chain && ok; i++)
            ok = CHECK_MSG(got[k][i] == want[k][i], "token %d of sequence %d is %d, not %d", i, k,
                           (int)got[k][i], (int)want[k][i]);
    return ok && CHECK(chained_same_pool(c, &c->at_once.kv, &c->by_one.kv)) &&
           CHECK(chained_same_pool(c, &c->other[0], &c->other[1]));
}

static inline uint64_t chained_first_runs(const struct chained *c)
{
    struct device *dev = c->at_once.dev;
    return dev->ops->first_runs ? dev->ops->first_runs(dev) : 0;
}

/* Both caches get so many slots more, of zeros. */
static inline void chained_skip(struct chained *c, int n)
{
    kvcache_advance(&c->at_once.kv, n);
    kvcache_advance(&c->by_one.kv, n);
}

/* Chains of several lengths, each often enough to be recorded and played, over the border of a
 * page, and up to the last slot. */
static inline void chained_check(enum dtype type, struct sampling how, bool narrow,
                                 struct rig_shape shape)
{
    static const int lengths[] = { 4, 0, 4, 4, STEP_MAX_CHAIN, 1, 4 };
    int32_t ids[CHAINED_ROWS];
    struct rng r = { test_seed };
    struct chained c;
    bool ok = chained_open(&c, type, shape) && (!narrow || chained_narrow(&c));
    c.how = how;
    for (int i = 0; i < CHAINED_ROWS; i++)
        ids[i] = (int32_t)(rng_next(&r) % CHAINED_VOCAB);
    chained_skip(&c, ok ? KV_CHUNK - 20 : 0);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && ok; i++)
        ok = chained_once(&c, ids + i, 1 + (int)i % 2, lengths[i]);
    ok = ok && chained_twice(&c, ids, 2, 1, 2);
    for (int i = 0; i < 3 && ok; i++) { /* by now every level is recorded, where that is done */
        uint64_t before = chained_first_runs(&c);
        ok = chained_once(&c, ids, 1, 3) &&
             CHECK_MSG(i < 2 || chained_first_runs(&c) == before, "a level is not recorded");
    }
    chained_skip(&c, ok ? CHAINED_CONTEXT - c.at_once.kv.len - 6 : 0);
    ok = ok && chained_once(&c, ids, 1, 5);
    chained_close(&c);
}

#endif
