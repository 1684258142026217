/* A decoder spread over ranks that are threads of the test. */
#ifndef PV_TESTS_RANKED_H
#define PV_TESTS_RANKED_H

#include "dist/ranks.h"
#include "rig.h"

#include <pthread.h>

struct ranked {
    int n;
    struct transport *t[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    enum pv_status status[RANKS_MAX]; /* how those that follow ended */
    struct rig rig;
};

struct ranked_follower {
    struct ranked *r;
    int rank;
};

static inline void *ranked_follow(void *arg)
{
    struct ranked_follower *f = arg;
    f->r->status[f->rank] = ranks_follow(f->r->t[f->rank], NULL);
    transport_close(&f->r->t[f->rank]);
    free(f);
    return NULL;
}

/* Rank 0 has the caller's thread; apart: and no part of what is spread. */
static inline bool ranked_start(struct ranked *r, int n, bool apart)
{
    *r = (struct ranked){ .n = n };
    if (!CHECK(transport_threads(r->t, n, NULL) == PV_OK))
        return false;
    for (int i = 0; i < n; i++)
        r->t[i]->apart = apart;
    for (int i = 1; i < n; i++) {
        struct ranked_follower *f = malloc(sizeof *f);
        *f = (struct ranked_follower){ r, i };
        CHECK(pthread_create(&r->thread[i], NULL, ranked_follow, f) == 0);
    }
    return true;
}

static inline void ranked_stop(struct ranked *r)
{
    if (!r->t[0])
        return;
    ranks_end(r->t[0]);
    transport_close(&r->t[0]);
    for (int i = 1; i < r->n; i++)
        pthread_join(r->thread[i], NULL);
}

static inline bool ranked_open(struct ranked *r, int n, bool apart, const char *path,
                               struct rig_shape s)
{
    struct pv_error err = { 0 };
    struct rig *g = &r->rig;
    enum pv_status st;
    if (!ranked_start(r, n, apart))
        return false;
    *g = (struct rig){ .max_rows = s.max_rows };
    st = model_file_open(&g->mf, path, NULL, 0, families, &err);
    if (!st)
        st = device_ranks_open(&g->dev, r->t[0], s.threads, cpu_levels[s.level].flags, &err);
    if (!st) {
        g->dev->spreads = g->dev->repacks = true;
        st = decoder_open(&g->dec, g->mf, g->dev, &err);
    }
    if (!st)
        st = decoder_state_open(&g->st, g->dec, s.max_rows, s.max_rows, s.context, s.kv, &err);
    if (!st)
        st = kvcache_open(&g->kv, g->dev, decoder_config(g->dec), s.kv, s.context, &err);
    if (!CHECK_MSG(st == PV_OK, "%s with %d ranks: %s", path, n, err.text))
        return false;
    g->c = decoder_config(g->dec);
    g->pos = malloc(sizeof *g->pos * (size_t)s.max_rows);
    g->rows = malloc(sizeof *g->rows * (size_t)s.max_rows);
    for (int i = 0; i < s.max_rows; i++)
        g->rows[i] = i;
    return true;
}

static inline void ranked_close(struct ranked *r)
{
    rig_close(&r->rig);
    ranked_stop(r);
    for (int i = 1; i < r->n; i++)
        CHECK_EQ(r->status[i], PV_OK);
}

#endif
