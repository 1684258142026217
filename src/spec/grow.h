/* Grows draft trees level by level from a drafter's logits: trees of a fixed form, and trees that
 * follow the most likely paths. The drafter supplies the function that runs the rows. */
#ifndef PV_SPEC_GROW_H
#define PV_SPEC_GROW_H

#include "lm/decoder.h"
#include "spec/drafter.h"

enum {
    GROW_LEVEL = DEVICE_MAX_LEVEL,                     /* rows of one step */
    GROW_WIDTH = DEVICE_MAX_LEVEL,                     /* most nodes that a level extends */
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

/* A tree whose levels all run in the step that runs its root (struct step_tree), because the device
 * chooses the rows of each level itself. The step brings back the candidates of all rows at once;
 * grow_tree draws the tree from these, and finds the same rows. */
struct grow_ahead {
    int n_levels; /* 0: the tree must be grown level by level */
    struct step_tree tree;
    int depth[STEP_MAX_CHAIN]; /* of the rows of each level */
    int32_t pick[STEP_MAX_TREE];
    struct top_entry top[STEP_MAX_TREE * GROW_WIDTH];
    float mass[STEP_MAX_TREE];
    int32_t ids[STEP_MAX_TREE];
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

/* List the levels of the tree that grow_tree would grow with this room and vocabulary; window > 0:
 * of a chain of so many tokens. n_levels stays 0 if they cannot run in one step: tokens are drawn,
 * the size of the tree follows prices, the device does not grow trees, or the tree is too large. */
void grow_ahead_plan(struct grow_ahead *a, const struct decoder *dec, const struct draft_request *r,
                     int window, int room);
/* Add the tree to the step of its root. */
void grow_ahead_ask(struct grow_ahead *a, struct step *step);
/* After the step: the tokens of the root, in `top`. */
void grow_ahead_root(const struct grow_ahead *a, struct grow_top *top);
/* Instead of running the new rows of `g`: their tokens. PV_E_DEVICE if the device has run other
 * rows. */
enum pv_status grow_ahead_take(const struct grow_ahead *a, const struct grown *g,
                               struct grow_top *top, struct pv_error *err);

/* Fill r->tree; the shape is static, dynamic or fitted. */
enum pv_status grow_tree(const struct grower *w, struct pv_error *err);

#endif
