/* Trees grown level by level from a drafter's logits: static ones, and those that follow the most
 * likely paths. The drafter supplies the function that runs the rows. */
#ifndef PV_SPEC_GROW_H
#define PV_SPEC_GROW_H

#include "lm/decoder.h"
#include "spec/drafter.h"

enum {
    GROW_LEVEL = 16,                                   /* rows of one step */
    GROW_WIDTH = 16,                                   /* of a dynamic tree */
    GROW_MAX_ROWS = GROW_LEVEL * TREE_MAX_DEPTH,       /* behind the cache in one round */
    GROW_MAX_POOL = GROW_WIDTH * (1 + 16 * GROW_WIDTH) /* candidates of a dynamic tree */
};

/* The rows of a tree behind the cache, in which the root is. The last n_new have not run. */
struct grown {
    int n, n_new;
    int parent[GROW_MAX_ROWS]; /* -1: the root's */
    int32_t id[GROW_LEVEL];    /* of the new ones */
    int depth[GROW_LEVEL];
};

/* The most likely tokens of the rows that ran last, if that is all a tree needs: logits then stay
 * on the device. */
struct grow_top {
    int k; /* of each row; 0: logits are needed */
    struct top_entry entry[GROW_LEVEL * GROW_WIDTH];
    float mass[GROW_LEVEL]; /* log sum exp of the row's logits */
};

/* A candidate of a dynamic tree: its parent is another one, its score the log-probability of its
 * path. */
struct grow_node {
    int32_t id;
    int parent; /* -1: the root */
    int depth;
    int row; /* behind the cache, once it has run */
    float score;
};

/* Room for growing dynamic trees, some 100 KiB: too much for a stack. */
struct grow_pool {
    int n;
    struct grow_node node[GROW_MAX_POOL];
    int row_of[GROW_MAX_POOL]; /* row of the tree by node */
    bool taken[GROW_MAX_POOL];
};

struct grower {
    const struct draft_request *r;
    int vocab; /* ids below it are proposed */
    int room;  /* rows that fit behind the cache */
    /* Logits of the root before the first call of `run`, of its new rows after each. */
    const float *logits;
    size_t stride;              /* floats from one row's logits to the next's */
    const struct grow_top *top; /* the same of them instead of logits; or NULL, or k is 0 */
    struct candidate *scratch;  /* [vocab] */
    struct grow_pool *pool;     /* for shapes that are not static */
    /* Runs the new rows. They stay behind the cache. */
    enum pv_status (*run)(void *user, const struct grown *g, struct pv_error *err);
    void *user;
};

/* To ask a step for them. */
struct step_choice grow_top_choice(struct grow_top *t);
/* How many of a row's likeliest tokens this draft needs; 0: more than that. */
int grow_top_needs(const struct draft_request *r);

/* Fills r->tree, of a static, dynamic or fitted shape. */
enum pv_status grow_tree(const struct grower *w, struct pv_error *err);

#endif
