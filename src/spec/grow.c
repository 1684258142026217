/* A step runs the nodes whose children are wanted, and leaves them behind the cache as pending
 * rows, parents of the next level's. Nothing of a tree is committed.
 *
 * Dynamic trees keep all candidates of all levels in a pool; the best by the probability of their
 * path are the tree, and since no node is likelier than its parent, it is one. Ties go to the
 * candidate that came first, so that runs can be repeated. */
#include "spec/grow.h"

#include "spec/price.h"

#include <float.h>
#include <math.h>
#include <string.h>

static int grown_add(struct grown *g, int parent, int32_t id, int depth)
{
    g->id[g->n_new] = id;
    g->depth[g->n_new++] = depth;
    g->parent[g->n] = parent;
    return g->n++;
}

static enum pv_status run_new(const struct grower *w, struct grown *g, struct pv_error *err)
{
    enum pv_status s = w->run(w->user, g, err);
    g->n_new = 0;
    return s;
}

static const float *logits_of(const struct grower *w, int i)
{
    return w->logits + (size_t)i * w->stride;
}

static const struct top_entry *top_of(const struct grower *w, int i)
{
    return w->top && w->top->k > 0 ? w->top->entry + (size_t)i * (size_t)w->top->k : NULL;
}

/* The k tokens that the i-th row's children are: how many there are. */
static int choose_children(const struct grower *w, int i, int depth, int k, int32_t *ids)
{
    const struct draft_request *r = w->r;
    const struct top_entry *top = top_of(w, i);
    int n = 0;
    if (!top)
        return sample_top(logits_of(w, i), w->vocab, r->how, r->position + (uint64_t)depth, k, ids,
                          w->scratch);
    while (n < k && n < w->top->k && top[n].id >= 0) {
        ids[n] = top[n].id;
        n++;
    }
    return n;
}

struct step_choice grow_top_choice(struct grow_top *t)
{
    return (struct step_choice){ .k = t->k, .t = 1, .top = t->entry, .mass = t->mass };
}

int grow_top_needs(const struct draft_request *r)
{
    const struct shape *s = r->shape;
    int k = s->width;
    if (r->how->temperature > 0 || s->kind == SHAPE_CHAIN)
        return 0;
    for (int i = 0; s->kind == SHAPE_STATIC && i < s->n; i++)
        k = s->rank[i] + 1 > k || i == 0 ? s->rank[i] + 1 : k;
    return k <= GROW_WIDTH ? k : 0;
}

/* ---- static trees ---- */

/* Children of the node whose logits are the i-th. row_of[]: rows of the tree by node of the shape.
 */
static void add_children(const struct grower *w, int node, int i, int *row_of)
{
    const struct draft_request *r = w->r;
    const struct shape *s = r->shape;
    int row = row_of[node], depth = r->tree->depth[row], k = shape_children(s, node), n;
    int32_t ids[TREE_MAX];
    n = choose_children(w, i, depth, k, ids);
    for (int c = node + 1; c < s->n; c++)
        if (s->parent[c] == node && s->rank[c] < n)
            row_of[c] = tree_add(r->tree, row, ids[s->rank[c]]);
}

/* Nodes of the shape, all of one depth. place[]: rows behind the cache by row of the tree. */
static enum pv_status expand_level(const struct grower *w, struct grown *g, const int *nodes, int n,
                                   int *row_of, int *place, struct pv_error *err)
{
    const struct tree *t = w->r->tree;
    enum pv_status s;
    for (int i = 0; i < n; i++) {
        int row = row_of[nodes[i]];
        place[row] = grown_add(g, place[t->parent[row]], t->id[row], t->depth[row]);
    }
    s = run_new(w, g, err);
    for (int i = 0; i < n && !s; i++)
        add_children(w, nodes[i], i, row_of);
    return s;
}

static enum pv_status grow_static(const struct grower *w, struct pv_error *err)
{
    const struct draft_request *r = w->r;
    const struct shape *s = r->shape;
    struct grown g = { .n = 0 };
    int row_of[TREE_MAX], place[TREE_MAX], deepest = shape_depth(s);
    for (int i = 0; i < TREE_MAX; i++) {
        row_of[i] = i == 0 ? 0 : -1;
        place[i] = -1;
    }
    add_children(w, 0, 0, row_of);
    for (int depth = 1; depth < deepest && depth < r->most; depth++) {
        int nodes[GROW_LEVEL], n = 0;
        for (int i = 1; i < s->n; i++) {
            enum pv_status st = PV_OK;
            bool wanted =
                row_of[i] > 0 && r->tree->depth[row_of[i]] == depth && shape_children(s, i) > 0;
            if (wanted)
                nodes[n++] = i;
            if (n == GROW_LEVEL || (n > 0 && i == s->n - 1)) {
                st = expand_level(w, &g, nodes, n, row_of, place, err);
                n = 0;
            }
            if (st)
                return st;
        }
    }
    return PV_OK;
}

/* ---- dynamic trees ---- */

/* log sum exp of logits / T. */
static double log_mass(const float *x, int n, double t)
{
    float top = -INFINITY, scale = (float)fmin(1 / t, (double)FLT_MAX);
    double sum = 0;
    for (int i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++)
        sum += (double)expf((x[i] - top) * scale);
    return top / t + log(sum);
}

static int width_of(const struct grower *w)
{
    return w->r->shape->width < GROW_WIDTH ? w->r->shape->width : GROW_WIDTH;
}

static void pool_children(const struct grower *w, struct grow_pool *p, int parent, int i)
{
    const struct draft_request *r = w->r;
    const struct top_entry *top = top_of(w, i);
    const float *x = top ? NULL : logits_of(w, i);
    double t = r->how->temperature > 0 ? r->how->temperature : 1;
    double mass = top ? (double)w->top->mass[i] : log_mass(x, w->vocab, t);
    int depth = parent < 0 ? 0 : p->node[parent].depth, n;
    float score = parent < 0 ? 0 : p->node[parent].score;
    int32_t ids[GROW_WIDTH];
    n = choose_children(w, i, depth, width_of(w), ids);
    for (int c = 0; c < n && p->n < GROW_MAX_POOL; c++) {
        double logit = top ? (double)top[c].logit : (double)x[ids[c]];
        p->node[p->n++] = (struct grow_node){ .id = ids[c],
                                              .parent = parent,
                                              .depth = depth + 1,
                                              .score = score + (float)fmin(logit / t - mass, 0) };
    }
}

/* The best `k` of nodes [from, p->n), lower index first among equals: their indices, ascending. */
static int pool_best(struct grow_pool *p, int from, int k, int *out)
{
    bool *taken = p->taken;
    int n = 0;
    memset(taken, 0, (size_t)p->n * sizeof *taken);
    for (; n < k; n++) {
        int best = -1;
        for (int i = from; i < p->n; i++)
            if (!taken[i] && (best < 0 || p->node[i].score > p->node[best].score))
                best = i;
        if (best < 0)
            break;
        taken[best] = true;
    }
    n = 0;
    for (int i = from; i < p->n; i++)
        if (taken[i])
            out[n++] = i;
    return n;
}

/* What a row of a fitted tree brings. */
static double worth(const struct grower *w, const struct grow_node *c)
{
    const struct price *price = w->r->price;
    return fmin(exp((double)c->score) * price->trust, 1);
}

/* Of n nodes, those whose children will be worth their rows; none if that is not worth the step. */
static int pick_worthy(const struct grower *w, const struct grow_pool *p, int *front, int n)
{
    const struct price *price = w->r->price;
    double gain = price->level_row - price->level;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        double g = worth(w, &p->node[front[i]]) * price->next - price->row - price->level_row;
        if (g <= 0)
            continue;
        gain += g;
        front[kept++] = front[i];
    }
    return gain > 0 ? kept : 0;
}

/* The best of a level grow children: of nodes [from, p->n), whose parents have run. */
static enum pv_status pool_grow(const struct grower *w, struct grow_pool *p, struct grown *g,
                                int from, struct pv_error *err)
{
    int front[GROW_WIDTH], n, room = w->room - g->n, width = width_of(w);
    enum pv_status s;
    n = pool_best(p, from, width < room ? width : room, front);
    if (w->r->shape->kind == SHAPE_FITTED)
        n = pick_worthy(w, p, front, n);
    for (int i = 0; i < n; i++) {
        struct grow_node *c = &p->node[front[i]];
        c->row = grown_add(g, c->parent < 0 ? -1 : p->node[c->parent].row, c->id, c->depth);
    }
    if (n == 0) /* the pool is full, or the cache, or more is not worth while */
        return PV_OK;
    s = run_new(w, g, err);
    for (int i = 0; i < n && !s; i++)
        pool_children(w, p, front[i], i);
    return s;
}

static enum pv_status grow_dynamic(const struct grower *w, struct pv_error *err)
{
    const struct draft_request *r = w->r;
    const struct shape *s = r->shape;
    struct grow_pool *p = w->pool;
    struct grown g = { .n = 0 };
    int front[TREE_MAX], n, level0 = 0;
    p->n = 0;
    pool_children(w, p, -1, 0);
    for (int depth = 1; depth <= s->depth && depth < r->most && level0 < p->n; depth++) {
        int level1 = p->n;
        enum pv_status st = pool_grow(w, p, &g, level0, err);
        if (st)
            return st;
        level0 = level1;
    }
    n = pool_best(p, 0, s->total - 1, front);
    for (int i = 0; i < n; i++) {
        const struct grow_node *c = &p->node[front[i]];
        int parent = c->parent < 0 ? 0 : p->row_of[c->parent];
        bool wanted = s->kind != SHAPE_FITTED || worth(w, c) > r->price->row;
        int row = parent < 0 || !wanted ? -1 : tree_add(r->tree, parent, c->id);
        p->row_of[front[i]] = row;
        if (r->scores && row > 0)
            r->scores[row] = c->score;
    }
    return PV_OK;
}

enum pv_status grow_tree(const struct grower *w, struct pv_error *err)
{
    return w->r->shape->kind == SHAPE_STATIC ? grow_static(w, err) : grow_dynamic(w, err);
}
