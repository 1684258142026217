/* A draft model whose device runs chains in one step proposes what it proposes token by token, and
 * leaves the same cache: greedy, drawn and filtered, whatever of its proposals is accepted, and up
 * to the end of its context. */
#include "base/rng.h"
#include "drafts.h"
#include "rig.h"
#include "spec/drafter_model.h"
#include "tiny_model.h"

enum { PROMPT = 40, CONTEXT = 256, CHUNK = 8, VOCAB = 96, ROUNDS = 30 };

static const struct tiny_model model = { .arch = "qwen2",
                                         .hidden = 64,
                                         .n_layers = 2,
                                         .n_heads = 2,
                                         .n_kv = 1,
                                         .head_dim = 32,
                                         .ffn = 128,
                                         .vocab = VOCAB,
                                         .type = DTYPE_F32,
                                         .seed = 11 };

/* One drafter: its device runs chains in one step, or token by token. */
struct side {
    struct rig rig;
    struct device_ops ops;
    struct kvpool *pool;
    struct lone_stepper steps;
    struct drafter *d;
    struct tree tree;
};

static bool side_open(struct side *s, bool at_once, const struct draft_prompt *p)
{
    struct rig_shape shape = { .level = cpu_level_best(),
                               .threads = 2,
                               .kv = DTYPE_F16,
                               .max_rows = TREE_MAX,
                               .context = CONTEXT };
    static char path[256];
    memset(s, 0, sizeof *s);
    if (!rig_open(&s->rig, path[0] ? path : tiny_model_write(&model, "chain", path), shape) ||
        !CHECK(!kvpool_open(&s->pool, s->rig.dev, s->rig.c, DTYPE_F16, CONTEXT / KV_CHUNK, NULL)))
        return false;
    if (at_once)
        rig_chains(&s->rig, &s->ops);
    lone_stepper_init(&s->steps, s->rig.dec, s->rig.st, s->pool);
    return CHECK(!drafter_model_open(&s->d, &s->steps.base, CHUNK, CONTEXT, VOCAB, NULL)) &&
           CHECK(!s->d->begin(s->d, p, NULL));
}

static void side_close(struct side *s)
{
    if (s->d)
        s->d->close(s->d);
    kvpool_close(&s->pool);
    rig_close(&s->rig);
}

static bool propose(struct side *s, struct draft_request r)
{
    struct pv_error err = { 0 };
    tree_begin(&s->tree, r.answer[r.n_answer - 1]);
    r.tree = &s->tree;
    return CHECK_MSG(!s->d->propose(s->d, &r, &err), "%s", err.text);
}

static bool same_proposals(const struct side *a, const struct side *b)
{
    size_t n = (size_t)a->tree.n;
    return a->tree.n == b->tree.n && !memcmp(a->tree.id, b->tree.id, n * sizeof *a->tree.id) &&
           !memcmp(a->tree.parent, b->tree.parent, n * sizeof *a->tree.parent);
}

/* Rounds in which 0 to all of the proposed tokens are accepted, until the context is full. */
static void check_rounds(const struct sampling *how)
{
    static struct side a, b;
    static const int windows[] = { 5, 1, 20, 32, 2, 16, 17 };
    int32_t ids[PROMPT], pos[PROMPT][3], answer[CONTEXT + 1];
    bool visible[PROMPT], ok;
    struct draft_prompt p = {
        .n = PROMPT, .ids = ids, .pos = (const int32_t(*)[3])pos, .next = PROMPT, .visible = visible
    };
    struct rng r = { test_seed };
    int n = CHUNK + 3, round = 0; /* more than a chunk is to be caught up with */
    for (int i = 0; i < PROMPT; i++) {
        ids[i] = (int32_t)(rng_next(&r) % VOCAB);
        visible[i] = true;
        pos[i][0] = pos[i][1] = pos[i][2] = i;
    }
    for (int i = 0; i < n; i++)
        answer[i] = (int32_t)(rng_next(&r) % VOCAB);
    ok = side_open(&a, true, &p) && side_open(&b, false, &p);
    for (; ok && n <= CONTEXT - PROMPT && round < ROUNDS; round++) {
        struct shape shape;
        struct draft_request q = { .answer = answer,
                                   .n_answer = n,
                                   .position = (uint64_t)(PROMPT + n),
                                   .how = how,
                                   .shape = &shape,
                                   .most = round % 5 == 3 ? 3 : 64 };
        int accepted;
        shape_chain(&shape, windows[round % 7], NULL);
        ok = propose(&a, q) && propose(&b, q) &&
             CHECK_MSG(same_proposals(&a, &b), "round %d of window %d", round, shape.window) &&
             CHECK_EQ(a.d->rows, b.d->rows) && CHECK_EQ(a.d->slots, b.d->slots) &&
             CHECK_MSG(
                 !memcmp(kvpool_memory(a.pool, 0), kvpool_memory(b.pool, 0), kvpool_size(a.pool)),
                 "the caches differ in round %d", round);
        accepted = (int)(rng_next(&r) % (uint64_t)a.tree.n);
        for (int i = 0; i < accepted && n < CONTEXT; i++)
            answer[n++] = a.tree.id[i + 1];
        if (n < CONTEXT)
            answer[n++] = (int32_t)(rng_next(&r) % VOCAB);
    }
    CHECK(!ok || n > CONTEXT - PROMPT); /* the end was reached */
    side_close(&a);
    side_close(&b);
}

TEST(chains_in_one_step_are_those_of_many)
{
    struct sampling greedy = { .top_p = 1 };
    struct sampling warm = { .temperature = 0.8f, .top_p = 1, .seed = 4 };
    struct sampling filtered = { .temperature = 0.8f, .top_k = 8, .top_p = 0.9f, .seed = 4 };
    check_rounds(&greedy);
    check_rounds(&warm);
    check_rounds(&filtered);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
