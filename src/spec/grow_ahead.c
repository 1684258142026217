/* Trees whose levels run in one step: lists the rows of each level beforehand, and hands the
 * results of the step to grow.c level by level.
 *
 * How many rows a level has must not depend on what the drafter says. That holds for greedy trees
 * of a fixed form, where even the parents are known, and for dynamic ones, whose levels have the
 * same width. It does not hold for fitted trees. Drawn tokens need the logits on the host. */
#include "spec/grow.h"

#include "base/minmax.h"

#include <string.h>

/* Add a level of n rows; false: it does not fit. */
static bool add_level(struct grow_ahead *a, int n, int depth, int before)
{
    if (a->n_levels == STEP_MAX_CHAIN || 1 + before + n > STEP_MAX_TREE)
        return false;
    a->tree.level[a->n_levels] = n;
    a->depth[a->n_levels++] = depth;
    return true;
}

/* A chain: each level is the likeliest token of the row before. */
static bool plan_chain(struct grow_ahead *a, const struct draft_request *r, int window, int room)
{
    int n = min_int(min_int(window, r->most) - 1, room);
    bool fits = true;
    a->tree.k = 1;
    for (int depth = 1; depth <= n && fits; depth++)
        fits = add_level(a, 1, depth, depth - 1);
    return fits;
}

static bool plan_dynamic(struct grow_ahead *a, const struct draft_request *r, int vocab, int room)
{
    const struct shape *s = r->shape;
    int k = min_int(a->tree.k, vocab), candidates = k, rows = 0;
    bool fits = true;
    for (int depth = 1; depth <= s->depth && depth < r->most && fits; depth++) {
        int n = min_int(min_int(a->tree.k, room - rows), candidates);
        if (n < 1)
            break;
        fits = add_level(a, n, depth, rows);
        rows += n;
        candidates = n * k;
    }
    return fits;
}

/* The nodes with children, by depth, as grow_static runs them. */
static bool plan_static(struct grow_ahead *a, const struct draft_request *r)
{
    const struct shape *s = r->shape;
    int row_of[TREE_MAX] = { 0 }, depth_of[TREE_MAX] = { 0 }, rows = 0;
    bool fits = true;
    for (int i = 1; i < s->n; i++)
        depth_of[i] = depth_of[s->parent[i]] + 1;
    for (int depth = 1; depth < shape_depth(s) && depth < r->most && fits; depth++) {
        int n = 0;
        for (int i = 1; i < s->n && fits; i++) {
            if (depth_of[i] == depth && shape_children(s, i) > 0) {
                row_of[i] = 1 + rows + n;
                a->pick[rows + n++] = row_of[s->parent[i]] * a->tree.k + s->rank[i];
            }
            if (n == GROW_LEVEL || (n > 0 && i == s->n - 1)) {
                fits = add_level(a, n, depth, rows);
                rows += n;
                n = 0;
            }
        }
    }
    a->tree.pick = a->pick;
    return fits;
}

void grow_ahead_plan(struct grow_ahead *a, const struct decoder *dec, const struct draft_request *r,
                     int window, int room)
{
    enum shape_kind kind = r->shape->kind;
    bool fits = false;
    a->n_levels = 0;
    a->tree =
        (struct step_tree){ .k = grow_top_needs(r), .top = a->top, .mass = a->mass, .ids = a->ids };
    if (!decoder_grows(dec) || r->how->temperature > 0 || r->q)
        return;
    if (window > 0)
        fits = plan_chain(a, r, window, room);
    else if (kind == SHAPE_STATIC && a->tree.k > 0)
        fits = plan_static(a, r);
    else if (kind == SHAPE_DYNAMIC && a->tree.k > 0)
        fits = plan_dynamic(a, r, decoder_config(dec)->vocab, room);
    if (!fits)
        a->n_levels = 0;
}

void grow_ahead_ask(struct grow_ahead *a, struct step *step)
{
    if (a->n_levels == 0)
        return;
    step->chain = a->n_levels;
    step->tree = &a->tree;
    step->logits = NULL;
    step->argmax = NULL;
    step->choice = NULL;
}

/* The tokens of rows [row, row + n). */
static void take_rows(const struct grow_ahead *a, int row, int n, struct grow_top *top)
{
    size_t k = (size_t)a->tree.k;
    top->k = a->tree.k;
    memcpy(top->entry, a->top + (size_t)row * k, sizeof *top->entry * (size_t)n * k);
    memcpy(top->mass, a->mass + row, sizeof *top->mass * (size_t)n);
}

void grow_ahead_root(const struct grow_ahead *a, struct grow_top *top)
{
    take_rows(a, 0, 1, top);
}

enum pv_status grow_ahead_take(const struct grow_ahead *a, const struct grown *g,
                               struct grow_top *top, struct pv_error *err)
{
    int rows = 1, first = 1 + g->n - g->n_new;
    for (int i = 0; i < a->n_levels; i++)
        rows += a->tree.level[i];
    for (int i = 0; i < g->n_new; i++)
        if (first + i >= rows || a->ids[first + i] != g->id[i])
            return fail(err, PV_E_DEVICE, "row %d of a draft tree is token %d, not %d, on the GPU",
                        first + i, first + i < rows ? (int)a->ids[first + i] : -1, (int)g->id[i]);
    take_rows(a, first, g->n_new, top);
    return PV_OK;
}
