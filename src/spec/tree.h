/* Tokens that a drafter proposes after a root, and the shapes in which it proposes them. */
#ifndef PV_SPEC_TREE_H
#define PV_SPEC_TREE_H

#include "base/status.h"

enum {
    TREE_MAX = 64,      /* rows, the root included */
    TREE_MAX_DEPTH = 32 /* of a proposed token; the root has 0 */
};

/* The rows of one verification. Row 0 is the root: the last token of the answer, which the target
 * has not run yet. Parents come before children; siblings have different tokens. */
struct tree {
    int n;
    int32_t id[TREE_MAX];
    int parent[TREE_MAX]; /* -1: the root's */
    int depth[TREE_MAX];
};

void tree_begin(struct tree *t, int32_t root);
/* A child of `parent`: its row, or that of the child with this token that is there already; -1
 * when the tree is full or too deep. */
int tree_add(struct tree *t, int parent, int32_t id);
/* Depth of the deepest token; 0: there is only the root. */
int tree_deepest(const struct tree *t);
bool tree_is_leaf(const struct tree *t, int row);
/* The child of `row` with this token; -1: none. */
int tree_child(const struct tree *t, int row, int32_t id);

enum shape_kind {
    SHAPE_CHAIN,   /* `window` tokens, each after the one before */
    SHAPE_STATIC,  /* a fixed tree: node i is the rank[i]-th likeliest child of its parent */
    SHAPE_DYNAMIC, /* grown where the drafter is surest: systems of the EAGLE-2 kind */
    SHAPE_FITTED   /* the same, as far as it is worth the time (price.h) */
};

struct shape {
    enum shape_kind kind;
    int window;              /* chain */
    int n;                   /* static: rows, the root included */
    int parent[TREE_MAX];    /* static; sorted by depth, then by path */
    int rank[TREE_MAX];      /* static; from 0 */
    int total, depth, width; /* dynamic: rows verified, levels after the first, frontier; fitted:
                                the same, at most */
};

/* PV_E_ARG, with one sentence, for sizes that are not possible. */
enum pv_status shape_chain(struct shape *s, int window, struct pv_error *err);
enum pv_status shape_dynamic(struct shape *s, int total, int depth, int width,
                             struct pv_error *err);
/* Fitted trees within these bounds. */
enum pv_status shape_fitted(struct shape *s, int total, int depth, int width, struct pv_error *err);
/* The tree of 25 proposed tokens that EAGLE and SpecVLM use. */
void shape_static25(struct shape *s);
/* A tree from a text file: one path of child ranks a line ("0", "0 1", ...), '#' begins a comment.
 * Every prefix of a path must be a path too. */
enum pv_status shape_read(struct shape *s, const char *path, struct pv_error *err);

/* Most rows a verification of this shape has, and the deepest token. */
int shape_rows(const struct shape *s);
int shape_depth(const struct shape *s);
/* Static: how many of a node's likeliest children the shape uses (0: it is a leaf). */
int shape_children(const struct shape *s, int node);

#endif
