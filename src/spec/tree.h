/* Tokens that a drafter proposes after a root, and the shapes in which it proposes them. */
#ifndef PV_SPEC_TREE_H
#define PV_SPEC_TREE_H

#include "base/status.h"

enum {
    TREE_MAX = 64,      /* rows, the root included */
    TREE_MAX_DEPTH = 32 /* of a proposed token; the root has depth 0 */
};

/* The rows of one verification. Row 0 is the root: the last token of the answer, which the target
 * has not run yet. Parents come before children; siblings have different tokens. */
struct tree {
    int n;
    int32_t id[TREE_MAX];
    int parent[TREE_MAX]; /* -1 for the root */
    int depth[TREE_MAX];
};

void tree_begin(struct tree *t, int32_t root);
/* Add a child of `parent`. Returns its row, or that of an existing child with this token; -1 if the
 * tree is full or too deep. */
int tree_add(struct tree *t, int parent, int32_t id);
/* Depth of the deepest token; 0: there is only the root. */
int tree_deepest(const struct tree *t);
bool tree_is_leaf(const struct tree *t, int row);
/* The child of `row` with this token; -1: none. */
int tree_child(const struct tree *t, int row, int32_t id);

enum shape_kind {
    SHAPE_CHAIN,   /* `window` tokens, each after the one before */
    SHAPE_STATIC,  /* a fixed tree: node i is the rank[i]-th most likely child of its parent */
    SHAPE_DYNAMIC, /* follows the paths that the drafter finds most likely, as in EAGLE-2 */
    SHAPE_FITTED   /* the same, but grows only while that is worth its cost (price.h) */
};

struct shape {
    enum shape_kind kind;
    int window;              /* chain */
    int n;                   /* static: rows, the root included */
    int parent[TREE_MAX];    /* static; sorted by depth, then by path */
    int rank[TREE_MAX];      /* static; from 0 */
    int total, depth, width; /* dynamic: rows to verify, levels after the first, and nodes that a
                                level extends; fitted: upper bounds of these */
};

/* PV_E_ARG for impossible sizes. */
enum pv_status shape_chain(struct shape *s, int window, struct pv_error *err);
enum pv_status shape_dynamic(struct shape *s, int total, int depth, int width,
                             struct pv_error *err);
/* Fitted trees within these bounds. */
enum pv_status shape_fitted(struct shape *s, int total, int depth, int width, struct pv_error *err);
/* The tree of 25 proposed tokens that EAGLE and SpecVLM use. */
void shape_static25(struct shape *s);
/* Read a tree from a text file: one path of child ranks per line ("0", "0 1", ...); '#' begins a
 * comment. Every prefix of a path must be in the file too. */
enum pv_status shape_read(struct shape *s, const char *path, struct pv_error *err);

/* Most rows of a tree of this shape, and its greatest depth. */
int shape_rows(const struct shape *s);
int shape_depth(const struct shape *s);
/* Static: how many of a node's most likely children the shape uses (0: it is a leaf). */
int shape_children(const struct shape *s, int node);

#endif
