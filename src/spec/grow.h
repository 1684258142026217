/* Grows draft trees level by level from a drafter's logits: trees of a fixed form, and trees that
 * follow the most likely paths. The drafter supplies the function that runs the rows. */
#ifndef PV_SPEC_GROW_H
#define PV_SPEC_GROW_H

#include "lm/decoder.h"
#include "spec/drafter.h"

enum {
    GROW_LEVEL = 16,                                   /* rows of one step */
    GROW_WIDTH = 16,                                   /* most nodes that a level extends */
    GROW_MAX_ROWS = GROW_LEVEL * TREE_MAX_DEPTH,       /* uncommitted rows of one round */
    GROW_MAX_POOL = GROW_WIDTH * (1 + 16 * GROW_WIDTH) /* candidates of a dynamic tree */
};

/* The rows of a tree as the drafter runs them: uncommitted rows after its cache, which includes the
 * root. The last n_new have not run yet. */
struct grown {
    int n, n_new;
    int parent[GROW_MAX_ROWS]; /* -1: the root */
    int32_t id[GROW_LEVEL];    /* of the new rows */
    int depth[GROW_LEVEL];     /* of the new rows */
};

/* The most likely tokens of the rows that ran last. If a tree needs no more than that, the logits
 * stay on the device. */
struct grow_top {
    int k; /* tokens per row; 0: logits are needed */
    struct top_entry entry[GROW_LEVEL * GROW_WIDTH];
    float mass[GROW_LEVEL]; /* log sum exp of the row's logits */
};

/* A candidate of a dynamic tree. */
struct grow_node {
    int32_t id;
    int parent; /* another candidate; -1: the root */
    int depth;
    int row;     /* index in struct grown, once it has run */
    float score; /* log-probability of its path */
};

/* Memory for growing dynamic trees, about 100 KiB: too much for the stack. */
struct grow_pool {
    int n;
    struct grow_node node[GROW_MAX_POOL];
    int row_of[GROW_MAX_POOL]; /* row of the tree by node */
    bool taken[GROW_MAX_POOL];
};

struct grower {
    const struct draft_request *r;
    int vocab; /* only ids below it are proposed */
    int room;  /* rows that fit into the drafter's cache */
    /* Logits of the root before the first call of `run`; after each call, of the new rows. */
    const float *logits;
    size_t stride;              /* floats from one row's logits to the next's */
    const struct grow_top *top; /* used instead of logits, unless NULL or top->k is 0 */
    struct candidate *scratch;  /* [vocab] */
    struct grow_pool *pool;     /* for shapes that are not static */
    /* Runs the new rows without committing them. */
    enum pv_status (*run)(void *user, const struct grown *g, struct pv_error *err);
    void *user;
};

/* The request to a step for these tokens. */
struct step_choice grow_top_choice(struct grow_top *t);
/* How many of the most likely tokens per row are enough for this draft; 0: it needs logits. */
int grow_top_needs(const struct draft_request *r);

/* Fill r->tree; the shape is static, dynamic or fitted. */
enum pv_status grow_tree(const struct grower *w, struct pv_error *err);

#endif
