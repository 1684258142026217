/* A drafter that exists only here: what it says after a token is a function of all tokens up to it.
 * The truth is drawn once from the same probabilities, so they can be believed, or only in part. */
#ifndef PV_TESTS_FAKE_DRAFTER_H
#define PV_TESTS_FAKE_DRAFTER_H

#include "base/rng.h"
#include "spec/grow.h"
#include "spec/price.h"
#include "spec/verify.h"
#include "test.h"

#include <math.h>

enum { INVENTED_VOCAB = 12 };

struct invented {
    uint64_t seed;
    double sure;   /* share of places at which one token is nearly certain */
    double honest; /* share of places at which the truth is as likely as it says */
    uint64_t root; /* where the answer has come to */
    uint64_t at[GROW_MAX_ROWS];
    float logits[GROW_LEVEL * INVENTED_VOCAB];
    struct candidate scratch[INVENTED_VOCAB];
    int steps, rows; /* of the last tree */
};

static inline uint64_t invented_after(uint64_t at, int32_t id)
{
    return rng_bits(at, (uint64_t)id, 1);
}

/* Probabilities of the ids after a place: the r-th likeliest is id r + shift. */
static inline void invented_say(const struct invented *d, uint64_t at, double p[INVENTED_VOCAB])
{
    bool sure = rng_uniform(d->seed, at, 2) < d->sure;
    double first =
        sure ? 0.8 + 0.199 * rng_uniform(d->seed, at, 3) : 0.2 + 0.4 * rng_uniform(d->seed, at, 3);
    int shift = (int)(rng_bits(d->seed, at, 4) % INVENTED_VOCAB);
    double left = 1;
    for (int r = 0; r < INVENTED_VOCAB; r++) {
        double q = r + 1 == INVENTED_VOCAB ? left : left * first;
        p[(r + shift) % INVENTED_VOCAB] = q;
        left -= q;
    }
}

/* The token that plain decoding has there; one that is never proposed where the drafter lies. */
static inline int32_t invented_truth(const struct invented *d, uint64_t at)
{
    double p[INVENTED_VOCAB], u = rng_uniform(d->seed, at, 5);
    if (rng_uniform(d->seed, at, 6) > d->honest)
        return INVENTED_VOCAB;
    invented_say(d, at, p);
    for (int32_t id = 0; id + 1 < INVENTED_VOCAB; id++) {
        if (u < p[id])
            return id;
        u -= p[id];
    }
    return INVENTED_VOCAB - 1;
}

static inline void invented_logits(struct invented *d, int i, uint64_t at)
{
    double p[INVENTED_VOCAB];
    invented_say(d, at, p);
    for (int id = 0; id < INVENTED_VOCAB; id++)
        d->logits[i * INVENTED_VOCAB + id] = (float)log(p[id] + 1e-30);
}

static inline enum pv_status invented_run(void *user, const struct grown *g, struct pv_error *err)
{
    struct invented *d = user;
    int first = g->n - g->n_new;
    (void)err;
    for (int i = 0; i < g->n_new; i++) {
        int parent = g->parent[first + i];
        CHECK(parent < first); /* which has run */
        d->at[first + i] = invented_after(parent < 0 ? d->root : d->at[parent], g->id[i]);
        invented_logits(d, i, d->at[first + i]);
    }
    d->steps++;
    d->rows += g->n_new;
    return PV_OK;
}

/* The tree below the root. scores [TREE_MAX] or NULL. */
static inline void invented_grow(struct invented *d, const struct shape *shape,
                                 const struct price *price, int most, int room, struct tree *t,
                                 float *scores)
{
    static const struct sampling greedy = { .top_p = 1 };
    struct draft_request r = {
        .how = &greedy, .shape = shape, .tree = t, .most = most, .scores = scores, .price = price
    };
    static struct grow_pool pool;
    struct grower w = { .r = &r,
                        .pool = &pool,
                        .vocab = INVENTED_VOCAB,
                        .room = room,
                        .logits = d->logits,
                        .stride = INVENTED_VOCAB,
                        .scratch = d->scratch,
                        .run = invented_run,
                        .user = d };
    d->steps = d->rows = 1; /* the root's */
    invented_logits(d, 0, d->root);
    tree_begin(t, 0);
    CHECK_EQ(grow_tree(&w, NULL), PV_OK);
}

/* What is true of the tree; the answer goes on behind it. */
static inline void invented_judge(struct invented *d, const struct tree *t, struct verdict *v)
{
    int row = 0;
    *v = (struct verdict){ .n = 0 };
    while (row >= 0) {
        v->path[v->n++] = row;
        v->next = invented_truth(d, d->root);
        d->root = invented_after(d->root, v->next);
        row = tree_child(t, row, v->next);
    }
}

#endif
