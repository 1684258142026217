/* A decoder as a drafter. Its cache holds the rows of the prompt it may see, then the answer; what
 * of that is still true is found by comparing, at the beginning of a prompt and of every round.
 *
 * Chains run token by token. Trees grow level by level: a step runs the nodes whose children are
 * wanted, and leaves them behind the cache as pending rows, parents of the next level's. Nothing of
 * a tree is committed: the next round finds out what was right, and runs that as a chain. */
#include "spec/drafter_model.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum {
    LEVEL_ROWS = 16, /* nodes whose logits one step brings back */
    MAX_WIDTH = 16,  /* of a dynamic tree */
    MAX_POOL = MAX_WIDTH * (1 + 16 * MAX_WIDTH),
    MAX_GROWN = MAX_WIDTH * TREE_MAX_DEPTH
};

/* A row of the prompt in the cache. */
struct held_row {
    int32_t id, pos[3];
    int row; /* of the target's prompt: tells rows of one medium apart */
};

struct model_drafter {
    struct drafter base;
    const struct decoder *dec; /* borrowed */
    struct decoder_state *st;
    struct kvcache kv;
    int chunk, context;
    int target_vocab, vocab; /* vocab: what both know */
    struct held_row *rows;   /* [context]: the prompt as seen, n_rows */
    int n_rows, n_cached;    /* of these rows, in the cache */
    int32_t *answer;         /* [context]: behind the prompt, n_answer of them cached */
    int n_answer;
    int32_t next; /* position of the answer's first token */
    float *embeds, *logits;
    int32_t *ids, (*pos)[3];
    struct candidate *candidates;
};

static struct model_drafter *of(struct drafter *d)
{
    return (struct model_drafter *)d;
}

/* ---- opening ---- */

static int most_rows(int chunk)
{
    return chunk < TREE_MAX ? TREE_MAX : chunk;
}

size_t drafter_model_size(const struct decoder *dec, int chunk, int context, enum dtype kv_dtype)
{
    const struct config *c = decoder_config(dec);
    return kvcache_size(c, kv_dtype, context) +
           decoder_state_size(dec, most_rows(chunk), LEVEL_ROWS, context, kv_dtype) +
           (size_t)context * (sizeof(struct held_row) + sizeof(int32_t)) +
           (size_t)most_rows(chunk) * ((size_t)c->hidden + 4) * sizeof(float) +
           (size_t)c->vocab * (LEVEL_ROWS * sizeof(float) + sizeof(struct candidate));
}

static void close_model(struct drafter *base)
{
    struct model_drafter *d = of(base);
    decoder_state_close(&d->st);
    kvcache_close(&d->kv);
    mem_free(d->rows);
    mem_free(d->answer);
    mem_free(d->embeds);
    mem_free(d->logits);
    mem_free(d->ids);
    mem_free(d->pos);
    mem_free(d->candidates);
    mem_free(d);
}

static void work_on_model(struct drafter *base, struct device *crew)
{
    struct model_drafter *d = of(base);
    decoder_device(d->dec)->ops->work_on(decoder_state_work(d->st), crew);
}

/* ---- the prompt ---- */

/* The rows of the prompt that are seen, with the positions they take. */
static void list_rows(struct model_drafter *d, const struct draft_prompt *p)
{
    int same = 0, n = 0;
    bool equal = true;
    for (int i = 0; i < p->n; i++) {
        struct held_row r = { .id = p->ids[i], .row = p->ids[i] < 0 ? i : 0 };
        if (!p->seen[i])
            continue;
        for (int a = 0; a < 3; a++)
            r.pos[a] = p->original ? p->pos[i][a] : n;
        equal = equal && n < d->n_cached && memcmp(&d->rows[n], &r, sizeof r) == 0;
        same += equal;
        d->rows[n++] = r;
    }
    d->n_rows = n;
    d->n_cached = same;
    d->n_answer = 0;
    d->next = p->original ? p->next : n;
    kvcache_truncate(&d->kv, same);
}

/* Embeddings of the media's rows among [from, from + n) of the list. */
static enum pv_status fill_embeds(struct model_drafter *d, const struct draft_prompt *p, int from,
                                  int n, struct pv_error *err)
{
    size_t hidden = (size_t)decoder_config(d->dec)->hidden;
    for (int i = 0; i < n;) {
        const struct held_row *r = &d->rows[from + i];
        int some = 1;
        enum pv_status s;
        if (r->id >= 0) {
            i++;
            continue;
        }
        while (i + some < n && r[some].id == r->id && r[some].row == r->row + some)
            some++;
        s = p->embed(p->user, r->row, some, d->embeds + (size_t)i * hidden, err);
        if (s)
            return s;
        i += some;
    }
    return PV_OK;
}

static enum pv_status run_prompt(struct model_drafter *d, const struct draft_prompt *p, int n,
                                 struct pv_error *err)
{
    struct step_seq seq = { .kv = &d->kv, .n = n };
    struct step step = { .n = n,
                         .ids = d->ids,
                         .embeds = d->embeds,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = &seq };
    enum pv_status s = fill_embeds(d, p, d->n_cached, n, err);
    if (s)
        return s;
    for (int i = 0; i < n; i++) {
        const struct held_row *r = &d->rows[d->n_cached + i];
        d->ids[i] = r->id;
        memcpy(d->pos[i], r->pos, sizeof r->pos);
    }
    s = decoder_step(d->dec, d->st, &step, err);
    if (s)
        return s;
    kvcache_advance(&d->kv, n);
    d->n_cached += n;
    return PV_OK;
}

static enum pv_status begin_model(struct drafter *base, const struct draft_prompt *p,
                                  struct pv_error *err)
{
    struct model_drafter *d = of(base);
    if (p->n > d->context)
        return fail(err, PV_E_LIMIT, "a prompt of %d tokens does not fit the drafter's %d", p->n,
                    d->context);
    for (int i = 0; i < p->n; i++)
        if (p->ids[i] >= d->vocab)
            return fail(err, PV_E_ARG,
                        "token id %d of the prompt is not in the drafter's vocabulary of %d",
                        (int)p->ids[i], d->vocab);
    list_rows(d, p);
    while (d->n_cached < d->n_rows) {
        int left = d->n_rows - d->n_cached;
        enum pv_status s = run_prompt(d, p, left < d->chunk ? left : d->chunk, err);
        if (s)
            return s;
        if (p->progress && !p->progress(p->user, d->n_cached, d->n_rows))
            return fail(err, PV_E_CANCELLED, "stopped after %d of the drafter's %d prompt tokens",
                        d->n_cached, d->n_rows);
    }
    return PV_OK;
}

/* ---- rounds ---- */

/* Rows of answer tokens as one chain; logits of the last. They are committed. */
static enum pv_status run_answer(struct model_drafter *d, const int32_t *ids, int n,
                                 struct pv_error *err)
{
    struct step_seq seq = { .kv = &d->kv, .n = n };
    int last = n - 1;
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .logits = d->logits };
    enum pv_status s;
    for (int i = 0; i < n; i++)
        for (int a = 0; a < 3; a++)
            d->pos[i][a] = d->next + d->n_answer + i;
    s = decoder_step(d->dec, d->st, &step, err);
    if (s)
        return s;
    kvcache_advance(&d->kv, n);
    memcpy(d->answer + d->n_answer, ids, (size_t)n * sizeof *ids);
    d->n_answer += n;
    return PV_OK;
}

/* The cache agrees with the answer, root included; the root's logits are in d->logits. */
static enum pv_status catch_up(struct model_drafter *d, const struct draft_request *r,
                               struct pv_error *err)
{
    int same = 0;
    while (same < d->n_answer && same < r->n_answer - 1 && d->answer[same] == r->answer[same])
        same++;
    d->n_answer = same;
    kvcache_truncate(&d->kv, d->n_rows + same);
    while (d->n_answer < r->n_answer) {
        int left = r->n_answer - d->n_answer;
        enum pv_status s =
            run_answer(d, r->answer + d->n_answer, left < d->chunk ? left : d->chunk, err);
        if (s)
            return s;
    }
    return PV_OK;
}

static int32_t next_token(struct model_drafter *d, const struct draft_request *r, int depth)
{
    uint64_t position = r->position + (uint64_t)depth;
    float *q;
    if (!r->q)
        return sample_token(d->logits, d->vocab, r->how, position, d->candidates);
    q = r->q + (size_t)depth * (size_t)d->target_vocab;
    memset(q, 0, (size_t)d->target_vocab * sizeof *q);
    sample_distribution(d->logits, d->vocab, r->how, q, d->candidates);
    return drafter_draw(q, d->vocab, r->how, position);
}

static enum pv_status propose_chain(struct model_drafter *d, const struct draft_request *r,
                                    int window, struct pv_error *err)
{
    int room = d->context - d->n_rows - d->n_answer;
    if (window > r->most)
        window = r->most;
    for (int i = 0; i < window; i++) {
        int32_t id = next_token(d, r, i);
        enum pv_status s;
        if (tree_add(r->tree, r->tree->n - 1, id) < 0 || i + 1 == window || i >= room)
            break;
        s = run_answer(d, &id, 1, err);
        if (s)
            return s;
    }
    return PV_OK;
}

/* The rows of a tree behind the cache; the root is in the cache. The last n_new have not run. */
struct grown {
    int n, n_new;
    int parent[MAX_GROWN];
    int32_t id[LEVEL_ROWS]; /* of the new ones */
    int depth[LEVEL_ROWS];
};

static int grown_add(struct grown *g, int parent, int32_t id, int depth)
{
    g->id[g->n_new] = id;
    g->depth[g->n_new++] = depth;
    g->parent[g->n] = parent;
    return g->n++;
}

/* Runs the new rows; their logits, in that order, are in d->logits. */
static enum pv_status run_level(struct model_drafter *d, struct grown *g, struct pv_error *err)
{
    int all[LEVEL_ROWS], n = g->n_new;
    struct step_seq seq = { .kv = &d->kv, .n = n, .parent = g->parent, .pending = g->n - n };
    struct step step = { .n = n,
                         .ids = g->id,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = n,
                         .logit_rows = all,
                         .logits = d->logits };
    for (int i = 0; i < n; i++) {
        all[i] = i;
        for (int a = 0; a < 3; a++)
            d->pos[i][a] = d->next + d->n_answer - 1 + g->depth[i];
    }
    g->n_new = 0;
    return decoder_step(d->dec, d->st, &step, err);
}

static const float *logits_of(const struct model_drafter *d, int i)
{
    return d->logits + (size_t)i * (size_t)decoder_config(d->dec)->vocab;
}

/* ---- static trees ---- */

/* Children of the node whose logits are the i-th. node[]: rows of the tree by node of the shape. */
static void add_children(struct model_drafter *d, const struct draft_request *r, int node, int i,
                         int *row_of)
{
    const struct shape *s = r->shape;
    int row = row_of[node], depth = r->tree->depth[row], k = shape_children(s, node), n;
    int32_t ids[TREE_MAX];
    n = sample_top(logits_of(d, i), d->vocab, r->how, r->position + (uint64_t)depth, k, ids,
                   d->candidates);
    for (int c = node + 1; c < s->n; c++)
        if (s->parent[c] == node && s->rank[c] < n)
            row_of[c] = tree_add(r->tree, row, ids[s->rank[c]]);
}

/* Nodes of the shape, all of one depth. place[]: rows behind the cache by row of the tree. */
static enum pv_status expand_level(struct model_drafter *d, const struct draft_request *r,
                                   struct grown *g, const int *nodes, int n, int *row_of,
                                   int *place, struct pv_error *err)
{
    const struct tree *t = r->tree;
    enum pv_status s;
    for (int i = 0; i < n; i++) {
        int row = row_of[nodes[i]];
        place[row] = grown_add(g, place[t->parent[row]], t->id[row], t->depth[row]);
    }
    s = run_level(d, g, err);
    for (int i = 0; i < n && !s; i++)
        add_children(d, r, nodes[i], i, row_of);
    return s;
}

static enum pv_status propose_static(struct model_drafter *d, const struct draft_request *r,
                                     struct pv_error *err)
{
    const struct shape *s = r->shape;
    struct grown g = { .n = 0 };
    int row_of[TREE_MAX], place[TREE_MAX], deepest = shape_depth(s);
    for (int i = 0; i < TREE_MAX; i++) {
        row_of[i] = i == 0 ? 0 : -1;
        place[i] = -1;
    }
    add_children(d, r, 0, 0, row_of);
    for (int depth = 1; depth < deepest && depth < r->most; depth++) {
        int nodes[LEVEL_ROWS], n = 0;
        for (int i = 1; i < s->n; i++) {
            enum pv_status st = PV_OK;
            bool wanted =
                row_of[i] > 0 && r->tree->depth[row_of[i]] == depth && shape_children(s, i) > 0;
            if (wanted)
                nodes[n++] = i;
            if (n == LEVEL_ROWS || (n > 0 && i == s->n - 1)) {
                st = expand_level(d, r, &g, nodes, n, row_of, place, err);
                n = 0;
            }
            if (st)
                return st;
        }
    }
    return PV_OK;
}

/* ---- dynamic trees ---- */

/* A candidate: its parent is another one, its score the log-probability of its path. */
struct pool_node {
    int32_t id;
    int parent; /* -1: the root */
    int depth;
    int row; /* behind the cache, once it has run */
    float score;
};

struct pool {
    int n;
    struct pool_node node[MAX_POOL];
};

/* log sum exp of logits / T. */
static double log_mass(const float *x, int n, double t)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++)
        sum += exp((x[i] - top) / t);
    return top / t + log(sum);
}

static void pool_children(struct model_drafter *d, const struct draft_request *r, struct pool *p,
                          int parent, int i)
{
    const float *x = logits_of(d, i);
    double t = r->how->temperature > 0 ? r->how->temperature : 1, mass = log_mass(x, d->vocab, t);
    int depth = parent < 0 ? 0 : p->node[parent].depth, n;
    float score = parent < 0 ? 0 : p->node[parent].score;
    int32_t ids[MAX_WIDTH];
    int k = r->shape->width < MAX_WIDTH ? r->shape->width : MAX_WIDTH;
    n = sample_top(x, d->vocab, r->how, r->position + (uint64_t)depth, k, ids, d->candidates);
    for (int c = 0; c < n && p->n < MAX_POOL; c++)
        p->node[p->n++] = (struct pool_node){ .id = ids[c],
                                              .parent = parent,
                                              .depth = depth + 1,
                                              .score = score + (float)(x[ids[c]] / t - mass) };
}

/* The best `k` of nodes [from, p->n), lower index first among equals: their indices, ascending. */
static int pool_best(const struct pool *p, int from, int k, int *out)
{
    bool taken[MAX_POOL] = { false };
    int n = 0;
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

/* The best of a level grow children: of nodes [from, p->n), whose parents have run. */
static enum pv_status pool_grow(struct model_drafter *d, const struct draft_request *r,
                                struct pool *p, struct grown *g, int from, struct pv_error *err)
{
    int front[MAX_WIDTH], n, room = d->context - d->kv.len - g->n;
    int width = r->shape->width < MAX_WIDTH ? r->shape->width : MAX_WIDTH;
    enum pv_status s;
    n = pool_best(p, from, width < room ? width : room, front);
    for (int i = 0; i < n; i++) {
        struct pool_node *c = &p->node[front[i]];
        c->row = grown_add(g, c->parent < 0 ? -1 : p->node[c->parent].row, c->id, c->depth);
    }
    if (n == 0) /* the pool is full, or the cache */
        return PV_OK;
    s = run_level(d, g, err);
    for (int i = 0; i < n && !s; i++)
        pool_children(d, r, p, front[i], i);
    return s;
}

static enum pv_status propose_dynamic(struct model_drafter *d, const struct draft_request *r,
                                      struct pv_error *err)
{
    const struct shape *s = r->shape;
    struct pool p = { .n = 0 };
    struct grown g = { .n = 0 };
    int front[TREE_MAX], row_of[MAX_POOL], n, level0 = 0;
    pool_children(d, r, &p, -1, 0);
    for (int depth = 1; depth <= s->depth && depth < r->most && level0 < p.n; depth++) {
        int level1 = p.n;
        enum pv_status st = pool_grow(d, r, &p, &g, level0, err);
        if (st)
            return st;
        level0 = level1;
    }
    n = pool_best(&p, 0, s->total - 1, front);
    for (int i = 0; i < n; i++) {
        const struct pool_node *c = &p.node[front[i]];
        int parent = c->parent < 0 ? 0 : row_of[c->parent];
        row_of[front[i]] = parent < 0 ? -1 : tree_add(r->tree, parent, c->id);
    }
    return PV_OK;
}

static enum pv_status propose_model(struct drafter *base, const struct draft_request *r,
                                    struct pv_error *err)
{
    struct model_drafter *d = of(base);
    int room = d->context - d->n_rows - r->n_answer;
    enum pv_status s;
    if (r->most < 1 || room < 0)
        return PV_OK;
    for (int i = 0; i < r->n_answer; i++)
        if (r->answer[i] >= d->vocab) /* a word that this decoder does not know */
            return PV_OK;
    s = catch_up(d, r, err);
    if (s)
        return s;
    if (r->shape->kind == SHAPE_CHAIN || r->q || room < TREE_MAX)
        return propose_chain(
            d, r, r->shape->kind == SHAPE_CHAIN ? r->shape->window : shape_depth(r->shape), err);
    return r->shape->kind == SHAPE_STATIC ? propose_static(d, r, err) : propose_dynamic(d, r, err);
}

enum pv_status drafter_model_open(struct drafter **out, const struct decoder *dec, int chunk,
                                  int context, enum dtype kv_dtype, int vocab, struct pv_error *err)
{
    const struct config *c = decoder_config(dec);
    struct model_drafter *d = mem_zalloc(sizeof *d);
    size_t rows = (size_t)most_rows(chunk), n = (size_t)context, v = (size_t)c->vocab;
    enum pv_status s;
    if (!d)
        return fail_nomem(err, sizeof *d);
    d->base = (struct drafter){ .name = "model",
                                .begin = begin_model,
                                .propose = propose_model,
                                .close = close_model,
                                .work_on = work_on_model };
    d->dec = dec;
    d->chunk = chunk;
    d->context = context;
    d->target_vocab = vocab;
    d->vocab = vocab < c->vocab ? vocab : c->vocab;
    s = kvcache_open(&d->kv, decoder_device(dec), c, kv_dtype, context, err);
    if (!s)
        s = decoder_state_open(&d->st, dec, (int)rows, LEVEL_ROWS, context, kv_dtype, err);
    d->rows = mem_zalloc(n * sizeof *d->rows);
    d->answer = mem_alloc(n * sizeof *d->answer);
    d->embeds = mem_alloc(rows * (size_t)c->hidden * sizeof *d->embeds);
    d->logits = mem_alloc(v * LEVEL_ROWS * sizeof *d->logits);
    d->ids = mem_alloc(rows * sizeof *d->ids);
    d->pos = mem_alloc(rows * sizeof *d->pos);
    d->candidates = mem_alloc(v * sizeof *d->candidates);
    if (!s && (!d->rows || !d->answer || !d->embeds || !d->logits || !d->ids || !d->pos ||
               !d->candidates))
        s = fail_nomem(err, drafter_model_size(dec, chunk, context, kv_dtype));
    if (s) {
        close_model(&d->base);
        return s;
    }
    *out = &d->base;
    return PV_OK;
}
