/* Drafters whose quality is known: `oracle` replays an answer with a given rate of errors, `random`
 * is the oracle that knows nothing. They show that the emitted text does not depend on the drafter.
 *
 * Every token is a function of (seed, position, parent, child), so a run can be repeated. Only the
 * first child of a node may be the replayed token: when that one is wrong, no sibling is right, and
 * the rate of errors is the rate of rejections. */
#include "base/mem.h"
#include "base/rng.h"
#include "spec/drafter_kind.h"

#include <string.h>

/* What a random number is for: its index. Those of children follow. */
enum { NOISE_ERROR, NOISE_ROW, NOISE_CHILD };

struct test_drafter {
    struct drafter base;
    int32_t *answer; /* [n] */
    int n, vocab;
    double errors;
    uint64_t seed;
};

static struct test_drafter *of(struct drafter *d)
{
    return (struct test_drafter *)d;
}

static int count_children(const struct tree *t, int row)
{
    int n = 0;
    for (int i = row + 1; i < t->n; i++)
        n += t->parent[i] == row;
    return n;
}

/* The token of the next child of a row; -1: the vocabulary has no more. */
static int32_t child_token(const struct test_drafter *d, const struct draft_request *r, int row)
{
    const struct tree *t = r->tree;
    uint64_t position = r->position + (uint64_t)t->depth[row];
    int at = r->n_answer - r->of_prompt + t->depth[row], child = count_children(t, row);
    int32_t right = at < d->n ? d->answer[at] : -1, id;
    bool wrong = rng_uniform(d->seed, position, NOISE_ERROR) < d->errors;
    if (child == 0 && right >= 0 && !wrong)
        return right;
    id = (int32_t)(rng_bits(d->seed, position, (uint64_t)(NOISE_CHILD + row * TREE_MAX + child)) %
                   (uint64_t)d->vocab);
    for (int tries = 0; tries < d->vocab; tries++) {
        if (id != right && tree_child(t, row, id) < 0)
            return id;
        id = id + 1 < d->vocab ? id + 1 : 0;
    }
    return -1;
}

/* A new child of `parent`: its row; -1: there is no room for it. */
static int add_child(const struct test_drafter *d, const struct draft_request *r, int parent)
{
    int32_t id = -1;
    if (parent >= 0 && r->tree->depth[parent] < r->most && r->tree->n < shape_rows(r->shape))
        id = child_token(d, r, parent);
    return id < 0 ? -1 : tree_add(r->tree, parent, id);
}

static void grow_chain(const struct test_drafter *d, const struct draft_request *r)
{
    int row = 0, depth = shape_depth(r->shape);
    for (int i = 0; i < depth && row >= 0; i++)
        row = add_child(d, r, row);
}

static void grow_static(const struct test_drafter *d, const struct draft_request *r)
{
    const struct shape *s = r->shape;
    int row[TREE_MAX] = { 0 };
    for (int i = 1; i < s->n; i++)
        row[i] = add_child(d, r, row[s->parent[i]]);
}

/* One chain as deep as the shape, then children of any rows, of at most `width` each. */
static void grow_dynamic(const struct test_drafter *d, const struct draft_request *r)
{
    const struct tree *t = r->tree;
    int depth = shape_depth(r->shape), failed = 0;
    grow_chain(d, r);
    while (failed < t->n) {
        int first = (int)(rng_bits(d->seed, r->position, NOISE_ROW + ((uint64_t)t->n << 32)) %
                          (uint64_t)t->n);
        for (failed = 0; failed < t->n; failed++) {
            int row = (first + failed) % t->n;
            if (t->depth[row] < depth && count_children(t, row) < r->shape->width &&
                add_child(d, r, row) >= 0)
                break;
        }
    }
}

static enum pv_status propose_test(struct drafter *base, const struct draft_request *r,
                                   struct pv_error *err)
{
    const struct test_drafter *d = of(base);
    (void)err;
    if (r->shape->kind == SHAPE_CHAIN)
        grow_chain(d, r);
    else if (r->shape->kind == SHAPE_STATIC)
        grow_static(d, r);
    else
        grow_dynamic(d, r);
    return PV_OK;
}

static enum pv_status begin_test(struct drafter *base, const struct draft_prompt *p,
                                 struct pv_error *err)
{
    (void)base;
    (void)p;
    (void)err;
    return PV_OK;
}

static void close_test(struct drafter *base)
{
    mem_free(of(base)->answer);
    mem_free(base);
}

enum pv_status drafter_oracle_open(struct drafter **out, const int32_t *answer, int n, int vocab,
                                   double errors, uint64_t seed, struct pv_error *err)
{
    struct test_drafter *d = mem_zalloc(sizeof *d);
    size_t size = sizeof *answer * (size_t)(n > 0 ? n : 1);
    if (!d)
        return fail_nomem(err, sizeof *d);
    d->answer = mem_alloc(size);
    if (!d->answer) {
        mem_free(d);
        return fail_nomem(err, size);
    }
    if (n > 0)
        memcpy(d->answer, answer, size);
    d->base = (struct drafter){
        .name = "oracle", .begin = begin_test, .propose = propose_test, .close = close_test
    };
    d->n = n;
    d->vocab = vocab;
    d->errors = errors;
    d->seed = seed;
    *out = &d->base;
    return PV_OK;
}

enum pv_status drafter_random_open(struct drafter **out, int vocab, uint64_t seed,
                                   struct pv_error *err)
{
    struct drafter *d = NULL;
    enum pv_status s = drafter_oracle_open(&d, NULL, 0, vocab, 1, seed, err);
    if (s)
        return s;
    d->name = "random";
    *out = d;
    return PV_OK;
}

static enum pv_status open_random(struct drafter **out, const struct drafter_resources *r,
                                  struct pv_error *err)
{
    return drafter_random_open(out, r->vocab, r->seed, err);
}

static enum pv_status open_oracle(struct drafter **out, const struct drafter_resources *r,
                                  struct pv_error *err)
{
    return drafter_oracle_open(out, r->answer, r->n_answer, r->vocab, r->errors, r->seed, err);
}

const struct drafter_kind drafter_random = {
    .info = { .name = "random", .preset = "sd" },
    .open = open_random,
    .made_anew = true,
};

const struct drafter_kind drafter_oracle = {
    .info = { .name = "oracle", .preset = "sd", .needs_answer = true },
    .open = open_oracle,
    .made_anew = true,
};
