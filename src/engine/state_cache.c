/* A list of copies, the most recently used first. An answer replaces the prompt with which it
 * begins. */
#include "engine/state_cache.h"

#include "base/mem.h"

#include <string.h>

struct snapshot {
    struct snapshot *next;
    struct kv_key *rows; /* [states.n] */
    struct states states;
    uint64_t size;
};

struct state_cache {
    uint64_t limit, bytes;
    struct snapshot *first;
};

uint64_t state_cache_size(int64_t rows, int hidden, struct head_features features)
{
    return (uint64_t)rows * (states_row_size(hidden, features) + sizeof(struct kv_key));
}

struct state_cache *state_cache_open(uint64_t limit)
{
    struct state_cache *c = mem_zalloc(sizeof *c);
    if (c)
        c->limit = limit;
    return c;
}

static void drop(struct state_cache *c, struct snapshot **at)
{
    struct snapshot *p = *at;
    *at = p->next;
    c->bytes -= p->size;
    states_close(&p->states);
    mem_free(p->rows);
    mem_free(p);
}

void state_cache_close(struct state_cache **c)
{
    if (!*c)
        return;
    while ((*c)->first)
        drop(*c, &(*c)->first);
    mem_free(*c);
    *c = NULL;
}

static int count_same(const struct snapshot *p, const struct kv_key *rows, int n)
{
    int most = p->states.n < n ? p->states.n : n, same = 0;
    while (same < most && memcmp(&p->rows[same], &rows[same], sizeof *rows) == 0)
        same++;
    return same;
}

static bool same_features(const struct head_features *a, const struct head_features *b)
{
    bool same = a->n == b->n;
    for (int k = 0; k < a->n && same; k++)
        same = a->layer[k] == b->layer[k];
    return same;
}

static bool as_much(const struct states *a, const struct states *b)
{
    return a->hidden == b->hidden && same_features(&a->features, &b->features) &&
           (a->all || !b->all) && (b->layer == 0 || a->layer == b->layer);
}

/* Copy the states of s. Returns NULL if there is no memory. */
static struct snapshot *copy(const struct kv_key *rows, const struct states *s)
{
    struct snapshot *p = mem_zalloc(sizeof *p);
    if (!p)
        return NULL;
    p->rows = mem_alloc((size_t)s->n * sizeof *p->rows);
    if (!p->rows || states_open(&p->states, s->n, s->hidden, s->features, 1, NULL) ||
        states_take(&p->states, s, s->n, NULL)) {
        states_close(&p->states);
        mem_free(p->rows);
        mem_free(p);
        return NULL;
    }
    p->states.all = s->all;
    p->states.layer = s->layer;
    memcpy(p->rows, rows, (size_t)s->n * sizeof *rows);
    p->size = sizeof *p + states_size(&p->states) + (uint64_t)s->n * sizeof *rows;
    return p;
}

void state_cache_keep(struct state_cache *c, const struct kv_key *rows, const struct states *s)
{
    struct snapshot *p;
    if (s->n < 1)
        return;
    for (struct snapshot **at = &c->first; *at;) {
        bool within = count_same(*at, rows, s->n) == (*at)->states.n && as_much(s, &(*at)->states);
        if (within)
            drop(c, at);
        else
            at = &(*at)->next;
    }
    p = copy(rows, s);
    if (!p)
        return;
    p->next = c->first;
    c->first = p;
    c->bytes += p->size;
    while (c->bytes > c->limit) {
        struct snapshot **last = &c->first;
        while ((*last)->next)
            last = &(*last)->next;
        drop(c, last);
    }
}

void state_cache_find(struct state_cache *c, const struct kv_key *rows, int n, struct states *s)
{
    struct snapshot **best = NULL, *p;
    int most = s->n;
    for (struct snapshot **at = &c->first; *at; at = &(*at)->next) {
        /* Whether the last row's state is kept depends on the row after it, which may be another.
         */
        int same = as_much(&(*at)->states, s) ? count_same(*at, rows, n) - 1 : 0;
        if (same > most) {
            most = same;
            best = at;
        }
    }
    if (!best)
        return;
    p = *best;
    *best = p->next;
    p->next = c->first;
    c->first = p;
    (void)states_take(s, &p->states, most, NULL); /* on failure they are computed again */
}
