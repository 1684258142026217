/* Draft trees that grow on the CUDA device, by the simulator of CUDA: a drafter whose device
 * chooses the rows of all levels in one step proposes the tree that it proposes when the host
 * chooses them level by level, and leaves the same cache. Draft models and draft heads, with and
 * without a draft vocabulary; levels that are launched and levels that are played. And several
 * trees in one step. */
#include "base/rng.h"
#include "cudasim/gpu.h"
#include "lm/states.h"
#include "rig.h"
#include "spec/drafter_head.h"
#include "spec/drafter_model.h"
#include "spec/grow.h"
#include "tiny_head.h"

enum { PROMPT = 12, CONTEXT = 512, CHUNK = 4, VOCAB = 96, ROWS = 64, ROUNDS = 4, HIDDEN = 64 };

static const struct sampling greedy = { .top_p = 1 };

static void be(int major)
{
    struct cudasim_gpu gpu;
    cudasim_is(&gpu);
    gpu.major = major;
    cudasim_be(&gpu);
}

/* One drafter, and how many steps it made. */
struct side {
    struct decoder_state *st;
    struct kvpool *pool;
    struct lone_stepper steps;
    enum pv_status (*run)(struct stepper *, const struct step *, struct pv_error *);
    struct drafter *d;
    struct tree tree;
    float scores[TREE_MAX];
    int n_steps;
};

/* A model, perhaps with a head beside it, and a drafter of each kind of device. */
struct forest {
    struct rig rig;
    const struct device_ops *grows;
    struct device_ops asks; /* the same without `grow` */
    struct head_file *hf;
    struct decoder *head;
    struct states states;
    bool late;           /* the target's states of the last tokens are missing at times */
    struct side side[2]; /* the first grows trees on the device */
    int32_t ids[CONTEXT], pos[CONTEXT][3];
};

static struct forest forest; /* large */

static struct side *side_of(struct stepper *s)
{
    return &forest.side[s == &forest.side[1].steps.base];
}

static enum pv_status counted(struct stepper *s, const struct step *step, struct pv_error *err)
{
    struct side *side = side_of(s);
    side->n_steps++;
    return side->run(s, step, err);
}

static const struct decoder *drafting(const struct forest *f)
{
    return f->head ? f->head : f->rig.dec;
}

static bool side_open(struct forest *f, struct side *s, const struct draft_prompt *p)
{
    const struct decoder *dec = drafting(f);
    struct pv_error err = { 0 };
    enum pv_status st = kvpool_open(&s->pool, f->rig.dev, decoder_config(dec), DTYPE_BF16,
                                    CONTEXT / KV_CHUNK, &err);
    if (!st)
        st = decoder_state_open(&s->st, dec, ROWS, GROW_LEVEL, CONTEXT, DTYPE_BF16, &err);
    if (!st)
        lone_stepper_init(&s->steps, dec, s->st, s->pool);
    s->run = s->steps.base.run;
    s->steps.base.run = counted;
    if (!st && f->head)
        st =
            drafter_head_open(&s->d, &s->steps.base, head_file_config(f->hf), CHUNK, CONTEXT, &err);
    else if (!st)
        st = drafter_model_open(&s->d, &s->steps.base, CHUNK, CONTEXT, VOCAB, &err);
    if (!st)
        st = s->d->begin(s->d, p, &err);
    return CHECK_MSG(!st, "%s", err.text);
}

static void forest_close(struct forest *f)
{
    for (int i = 0; i < 2; i++) {
        if (f->side[i].d)
            f->side[i].d->close(f->side[i].d);
        decoder_state_close(&f->side[i].st);
        kvpool_close(&f->side[i].pool);
    }
    if (f->hf)
        states_close(&f->states);
    decoder_close(&f->head);
    head_file_close(&f->hf);
    rig_close(&f->rig);
    *f = (struct forest){ 0 };
}

static bool open_rig(struct forest *f, enum dtype type)
{
    struct tiny_model m = { .arch = "qwen2",
                            .hidden = HIDDEN,
                            .n_layers = 2,
                            .n_heads = 2,
                            .n_kv = 1,
                            .head_dim = 64,
                            .ffn = 128,
                            .vocab = VOCAB,
                            .type = (int)type,
                            .seed = 9 };
    struct rig_shape shape = {
        .kv = DTYPE_BF16, .max_rows = ROWS, .context = CONTEXT, .cuda = true
    };
    struct rng r = { test_seed };
    char path[256];
    *f = (struct forest){ 0 };
    for (int i = 0; i < CONTEXT; i++) {
        f->ids[i] = (int32_t)(rng_next(&r) % VOCAB);
        f->pos[i][0] = f->pos[i][1] = f->pos[i][2] = i;
    }
    if (!rig_open(&f->rig, tiny_model_write(&m, "forest", path), shape))
        return false;
    f->grows = f->rig.dev->ops;
    f->asks = *f->grows;
    f->asks.grow = NULL;
    return CHECK(f->grows->grow);
}

/* Every third token only is scored. */
static bool narrow(struct forest *f)
{
    struct decoder *dec = f->head ? f->head : f->rig.dec;
    struct pv_error err = { 0 };
    int32_t ids[VOCAB];
    int n = 0;
    for (int i = 1; i < VOCAB; i += 3)
        ids[n++] = i;
    decoder_state_close(&f->rig.st);
    return CHECK_MSG(!decoder_draft_vocab(dec, model_file_lm_head(f->rig.mf), ids, n, &err), "%s",
                     err.text);
}

static bool open_head(struct forest *f, const struct tiny_head *h)
{
    struct pv_error err = { 0 };
    struct config c;
    char path[256];
    enum pv_status s = head_file_open(&f->hf, tiny_head_write(h, "treehead", path), 0, &err);
    if (!s)
        s = head_file_fit(f->hf, f->rig.c, "target", &c, &err);
    if (!s)
        s = decoder_open_head(&f->head, f->hf, &c, f->rig.dec, &err);
    if (!s)
        s = states_open(&f->states, CONTEXT, HIDDEN,
                        head_features_of(head_file_config(f->hf), f->rig.c->n_layers), ROWS, &err);
    return CHECK_MSG(!s, "%s", err.text);
}

/* The states of the target for rows [from, to) of the timeline: random ones. */
static bool add_states(struct forest *f, int from, int to)
{
    size_t width = states_width(&f->states);
    float *rows = malloc(sizeof *rows * width * (size_t)(to - from));
    int path[CONTEXT];
    struct rng r = { test_seed + (uint64_t)from };
    bool ok;
    for (size_t i = 0; i < width * (size_t)(to - from); i++)
        rows[i] = (float)(rng_next(&r) % 2000) / 1000 - 1;
    for (int i = 0; i < to - from; i++)
        path[i] = i;
    states_truncate(&f->states, from);
    ok = CHECK(
        !states_add(&f->states, from, rows, (size_t)(to - from) * HIDDEN, path, to - from, NULL));
    free(rows);
    return ok;
}

static bool open_sides(struct forest *f)
{
    static bool visible[CONTEXT];
    struct draft_prompt p = { .n = PROMPT,
                              .ids = f->ids,
                              .pos = (const int32_t(*)[3])f->pos,
                              .next = PROMPT,
                              .visible = visible,
                              .states = f->hf ? &f->states : NULL };
    for (int i = 0; i < PROMPT; i++)
        visible[i] = true;
    return (!f->hf || add_states(f, 0, PROMPT)) && side_open(f, &f->side[0], &p) &&
           side_open(f, &f->side[1], &p);
}

static bool propose(struct forest *f, int which, struct draft_request r)
{
    struct side *s = &f->side[which];
    struct pv_error err = { 0 };
    f->rig.dev->ops = which == 0 ? f->grows : &f->asks;
    tree_begin(&s->tree, r.answer[r.n_answer - 1]);
    memset(s->scores, 0, sizeof s->scores);
    r.tree = &s->tree;
    r.scores = s->scores;
    return CHECK_MSG(!s->d->propose(s->d, &r, &err), "%s", err.text);
}

static bool same_trees(const struct side *a, const struct side *b)
{
    size_t n = (size_t)a->tree.n;
    return a->tree.n == b->tree.n && !memcmp(a->tree.id, b->tree.id, n * sizeof *a->tree.id) &&
           !memcmp(a->tree.parent, b->tree.parent, n * sizeof *a->tree.parent) &&
           !memcmp(a->scores, b->scores, sizeof a->scores);
}

static bool same_pools(struct forest *f)
{
    size_t size = kvpool_size(f->side[0].pool);
    uint8_t *x = malloc(size), *y = malloc(size);
    bool same;
    f->grows->download(f->rig.dev, x, kvpool_memory(f->side[0].pool, 0), size);
    f->grows->download(f->rig.dev, y, kvpool_memory(f->side[1].pool, 0), size);
    same = !memcmp(x, y, size);
    free(x);
    free(y);
    return same;
}

/* Rounds of one shape; the answer grows by one or two tokens a round, so that steps repeat. Returns
 * whether the trees are the same. once: the device makes one step of each. */
static bool check_shape(struct forest *f, const struct shape *shape, int most, int *n, bool once)
{
    bool ok = true;
    for (int round = 0; round < ROUNDS && ok; round++) {
        struct draft_request r = { .answer = f->ids + PROMPT,
                                   .n_answer = *n,
                                   .position = (uint64_t)(PROMPT + *n),
                                   .how = &greedy,
                                   .shape = shape,
                                   .most = most };
        int before = f->side[0].n_steps;
        uint64_t first = f->grows->first_runs(f->rig.dev);
        int known = PROMPT + *n - 1 - (f->late ? round % 3 : 0);
        ok = (!f->hf || add_states(f, 0, known)) && propose(f, 0, r) &&
             CHECK_MSG(round < ROUNDS - 1 || f->late || f->grows->first_runs(f->rig.dev) == first,
                       "a level is not recorded") &&
             propose(f, 1, r) &&
             CHECK_MSG(same_trees(&f->side[0], &f->side[1]),
                       "round %d of shape %d, %d rows, %d tokens: %d and %d rows", round,
                       (int)shape->kind, shape_rows(shape), *n, f->side[0].tree.n,
                       f->side[1].tree.n) &&
             CHECK_EQ(f->side[0].d->rows, f->side[1].d->rows) &&
             CHECK_EQ(f->side[0].d->slots, f->side[1].d->slots) &&
             CHECK_MSG(same_pools(f), "the caches differ in round %d", round) &&
             CHECK(!once || round == 0 || f->late || f->side[0].n_steps == before + 1);
        *n += 1;
    }
    return ok;
}

/* The static tree and the one that is published for draft heads. `all`: also a wide and a deep one,
 * one that is too deep for one step, fewer levels than the shape has, and a chain. */
static void check_shapes(struct forest *f, bool all)
{
    static const int sizes[][3] = { { 30, 3, 8 }, { 50, 1, 16 }, { 20, 14, 2 }, { 18, 17, 1 } };
    struct shape s;
    int n = 3;
    bool ok = open_sides(f);
    shape_static25(&s);
    ok = ok && check_shape(f, &s, all ? 3 : 64, &n, true);
    for (size_t i = 0; i < (all ? sizeof sizes / sizeof *sizes : 1) && ok; i++)
        ok = CHECK(!shape_dynamic(&s, sizes[i][0], sizes[i][1], sizes[i][2], NULL)) &&
             check_shape(f, &s, 64, &n, i < 3);
    ok = ok && (!all || (CHECK(!shape_chain(&s, 3, NULL)) && check_shape(f, &s, 64, &n, true)));
    forest_close(f);
}

TEST(trees_of_draft_models)
{
    if (open_rig(&forest, DTYPE_BF16))
        check_shapes(&forest, false);
    be(9);
    if (open_rig(&forest, DTYPE_Q8_0) && narrow(&forest))
        check_shapes(&forest, false);
    cudasim_be(NULL);
}

static struct tiny_head small_head(void)
{
    struct tiny_head h = tiny_head(HIDDEN, 21);
    h.head_dim = 64;
    h.type = DTYPE_BF16;
    return h;
}

TEST(trees_of_draft_heads)
{
    struct tiny_head h = small_head();
    be(9);
    if (open_rig(&forest, DTYPE_BF16) && open_head(&forest, &h))
        check_shapes(&forest, true);
    h.norms = true;
    if (open_rig(&forest, DTYPE_BF16) && open_head(&forest, &h) && narrow(&forest)) {
        forest.late = true;
        check_shapes(&forest, false);
    }
    h.type = DTYPE_Q8_0; /* and so are the rows of its draft vocabulary */
    if (open_rig(&forest, DTYPE_BF16) && open_head(&forest, &h) && narrow(&forest))
        check_shapes(&forest, false);
    cudasim_be(NULL);
}

TEST(trees_of_eagle3_heads)
{
    struct tiny_head h = small_head();
    h.eagle3 = true;
    h.n_features = 3;
    h.features[1] = 1;
    h.features[2] = 2;
    h.vocab = VOCAB;
    h.draft_vocab = VOCAB / 2;
    if (open_rig(&forest, DTYPE_BF16) && open_head(&forest, &h))
        check_shapes(&forest, false);
}

/* ---- several trees in one step ---- */

/* A tree behind the last of n tokens, and what comes of it. */
struct grown_step {
    struct step step;
    struct step_seq seq;
    struct step_tree tree;
    struct kvcache kv;
    int32_t pos[ROWS][3], ids[16];
    struct top_entry top[16 * 4];
    float mass[16];
    int last;
};

static bool fill_step(struct grown_step *g, struct forest *f, const int32_t *ids, int n,
                      const int32_t *pick)
{
    *g = (struct grown_step){ .last = n - 1 };
    for (int i = 0; i < n + 3; i++)
        g->pos[i][0] = g->pos[i][1] = g->pos[i][2] = i;
    g->seq = (struct step_seq){ .kv = &g->kv, .n = n };
    g->tree = (struct step_tree){
        .k = 4, .level = { 4, 3, 2 }, .pick = pick, .top = g->top, .mass = g->mass, .ids = g->ids
    };
    g->step = (struct step){ .n = n,
                             .ids = ids,
                             .pos = (const int32_t(*)[3])g->pos,
                             .n_seqs = 1,
                             .seqs = &g->seq,
                             .n_logits = 1,
                             .logit_rows = &g->last,
                             .chain = 3,
                             .tree = &g->tree };
    return CHECK(!kvcache_open(&g->kv, f->rig.dev, f->rig.c, DTYPE_BF16, KV_CHUNK, NULL));
}

static bool same_results(const struct grown_step *a, const struct grown_step *b)
{
    return !memcmp(a->top, b->top, sizeof a->top) && !memcmp(a->mass, b->mass, sizeof a->mass) &&
           !memcmp(a->ids + 1, b->ids + 1, sizeof a->ids - sizeof a->ids[0]);
}

static void check_together(const int32_t *pick)
{
    static struct grown_step alone[2], both[2];
    const struct step *steps[] = { &both[0].step, &both[1].step };
    struct pv_error err = { 0 };
    bool ok = true;
    for (int i = 0; i < 2; i++)
        ok = ok && fill_step(&alone[i], &forest, forest.ids + 7 * i, 3 - i, pick) &&
             fill_step(&both[i], &forest, forest.ids + 7 * i, 3 - i, pick) &&
             CHECK_MSG(!decoder_step(forest.rig.dec, forest.rig.st, &alone[i].step, &err), "%s",
                       err.text);
    for (int round = 0; round < 3 && ok; round++) {
        memset(both[0].top, 0, sizeof both[0].top);
        ok = CHECK_MSG(!decoder_steps(forest.rig.dec, forest.rig.st, steps, 2, &err), "%s",
                       err.text) &&
             CHECK(same_results(&alone[0], &both[0])) && CHECK(same_results(&alone[1], &both[1])) &&
             CHECK(!same_results(&alone[0], &alone[1]));
    }
    for (int i = 0; i < 2; i++) {
        kvcache_close(&alone[i].kv);
        kvcache_close(&both[i].kv);
    }
}

TEST(trees_grow_together_as_alone)
{
    static const int32_t pick[] = { 0, 1, 2, 3, 4, 5, 12, 20, 24 };
    if (!open_rig(&forest, DTYPE_BF16))
        return;
    check_together(NULL);
    check_together(pick);
    forest_close(&forest);
}

int main(int argc, char **argv)
{
    cudasim_lazy(true);
    return test_main(argc, argv);
}
