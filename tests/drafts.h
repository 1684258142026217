/* What tests of drafters share: shapes of every kind, and what a proposal must be. */
#ifndef PV_TESTS_DRAFTS_H
#define PV_TESTS_DRAFTS_H

#include "spec/drafter.h"
#include "test.h"

enum { N_SHAPES = 6 };

/* Shape i of N_SHAPES. */
static inline void make_shape(struct shape *s, int i)
{
    if (i < 2)
        shape_chain(s, i ? 32 : 3, NULL);
    else if (i == 2)
        shape_static25(s);
    else
        shape_dynamic(s, (const int[]){ 30, 64, 12 }[i - 3], (const int[]){ 3, 31, 4 }[i - 3],
                      (const int[]){ 8, 16, 2 }[i - 3], NULL);
}

/* Parents first, siblings different, within the shape and `most`. */
static inline bool well_formed(const struct tree *t, const struct shape *s, int most, int vocab)
{
    int deepest = shape_depth(s) < most ? shape_depth(s) : most;
    bool ok = t->n >= 1 && t->n <= shape_rows(s) && t->n <= TREE_MAX && t->parent[0] == -1;
    for (int i = 1; i < t->n && ok; i++) {
        int p = t->parent[i];
        ok = p >= 0 && p < i && t->depth[i] == t->depth[p] + 1 && t->depth[i] <= deepest &&
             t->id[i] >= 0 && t->id[i] < vocab && tree_child(t, p, t->id[i]) == i;
    }
    return ok;
}

static inline bool is_chain(const struct tree *t, const int32_t *want, int n)
{
    bool ok = t->n == n + 1;
    for (int i = 0; i < n && ok; i++)
        ok = t->id[i + 1] == want[i] && t->parent[i + 1] == i;
    return ok;
}

#endif
