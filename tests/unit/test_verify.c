/* Verification. Exact: against the rule by leaf paths, and against plain decoding. Rejection: the
 * emitted tokens follow the target's distribution whatever is proposed, which a chi-square of many
 * runs over a small vocabulary shows, and the share of accepted tokens is the one that theory
 * gives. All seeds are fixed. */
#include "spec/verify.h"

#include "base/rng.h"
#include "test.h"

#include <math.h>

enum { V = 8, RUNS = 40000 };

static struct candidate scratch[64];
static float room[64];

/* ---- a world of two Markov chains: the target's, and a drafter's that is bad at it ---- */

static float target[V][V], draft[V][V]; /* logits after each token */

static void make_world(void)
{
    struct rng r = { 20 };
    for (int i = 0; i < V; i++)
        for (int j = 0; j < V; j++) {
            target[i][j] = 1.2f * rng_normal(&r);
            draft[i][j] = 0.3f * target[i][j] + 1.2f * rng_normal(&r);
        }
}

/* The logits [t->n, V] of the target, as its forward pass would give them. */
static void run_target(float *logits, const struct tree *t)
{
    for (int i = 0; i < t->n; i++)
        memcpy(logits + (size_t)i * V, target[t->id[i]], sizeof target[0]);
}

/* ---- walks ---- */

/* The rule as published: the leaf path with the longest accepted start. */
static int longest_path(const struct tree *t, const int32_t *best, int *path)
{
    int longest = 0;
    for (int leaf = 0; leaf < t->n; leaf++) {
        int up[TREE_MAX], n = 0, good = 1;
        for (int i = leaf; i >= 0; i = t->parent[i])
            up[n++] = i;
        while (good < n && t->id[up[n - 1 - good]] == best[up[n - good]])
            good++;
        if (good > longest) {
            longest = good;
            for (int i = 0; i < good; i++)
                path[i] = up[n - 1 - i];
        }
    }
    return longest;
}

static void random_tree(struct tree *t, int rows, int vocab, struct rng *r)
{
    tree_begin(t, (int32_t)(rng_next(r) % (uint64_t)vocab));
    for (int i = 0; i < 4 * rows && t->n < rows; i++) {
        int parent = rng_next(r) % 4 ? (int)(rng_next(r) % (uint64_t)(1 + t->n / 4)) : t->n - 1;
        tree_add(t, parent, (int32_t)(rng_next(r) % (uint64_t)vocab));
    }
}

TEST(greedy_walks_as_the_leaf_paths_say)
{
    struct rng r = { test_seed };
    int deepest = 0;
    for (int round = 0; round < 3000; round++) {
        struct tree t;
        struct verdict v;
        int32_t best[TREE_MAX];
        int path[TREE_MAX], n;
        random_tree(&t, 1 + round % TREE_MAX, 3, &r);
        for (int i = 0; i < t.n; i++)
            best[i] = (int32_t)(rng_next(&r) % 3);
        n = longest_path(&t, best, path);
        memset(&v, 0xee, sizeof v);
        verify_greedy(&v, &t, best);
        CHECK_EQ(v.n, n);
        CHECK(!memcmp(v.path, path, sizeof path[0] * (size_t)n));
        CHECK_EQ(v.next, best[path[n - 1]]);
        deepest = n > deepest ? n : deepest;
    }
    CHECK_MSG(deepest >= 6, "the deepest path has %d rows", deepest);
}

TEST(greedy_on_a_tree_by_hand)
{
    /* 5 -> {6 -> {8, 9 -> 8}, 7 -> 8} */
    struct tree t;
    struct verdict v;
    int32_t best[] = { 6, 9, 9, 1, 8, 8, 4 };
    tree_begin(&t, 5);
    CHECK(tree_add(&t, 0, 6) == 1 && tree_add(&t, 0, 7) == 2 && tree_add(&t, 1, 8) == 3);
    CHECK(tree_add(&t, 1, 9) == 4 && tree_add(&t, 2, 8) == 5 && tree_add(&t, 4, 8) == 6);
    verify_greedy(&v, &t, best);
    CHECK(v.n == 4 && v.path[0] == 0 && v.path[1] == 1 && v.path[2] == 4 && v.path[3] == 6);
    CHECK_EQ(v.next, 4);
    best[0] = 7; /* its child is 8, the target says 9 */
    verify_greedy(&v, &t, best);
    CHECK(v.n == 2 && v.path[1] == 2 && v.next == 9);
    best[0] = 5;
    verify_greedy(&v, &t, best);
    CHECK(v.n == 1 && v.path[0] == 0 && v.next == 5);
    t.n = 1; /* nothing was proposed */
    best[0] = 6;
    verify_greedy(&v, &t, best);
    CHECK(v.n == 1 && v.next == 6);
}

TEST(exact_emits_what_plain_decoding_emits)
{
    static const float temperatures[] = { 0, 0.3f, 1, 2 };
    static float logits[TREE_MAX * V];
    struct rng r = { test_seed };
    int accepted = 0;
    make_world();
    for (int round = 0; round < 3000; round++) {
        struct sampling how = { .temperature = temperatures[round % 4],
                                .top_k = round % 3 ? 0 : 4,
                                .top_p = round % 5 ? 1 : 0.8f,
                                .seed = rng_next(&r) };
        uint64_t position = rng_next(&r) % 5000;
        struct tree t;
        struct verdict v;
        int32_t token;
        random_tree(&t, 1 + round % TREE_MAX, V, &r);
        run_target(logits, &t);
        memset(&v, 0xee, sizeof v);
        verify_exact(&v, &t, logits, V, &how, position, scratch);
        CHECK_EQ(v.path[0], 0);
        token = t.id[0];
        for (int i = 0; i < v.n; i++) {
            CHECK_EQ(t.id[v.path[i]], token);
            CHECK_EQ(t.parent[v.path[i]], i ? v.path[i - 1] : -1);
            token = sample_token(target[token], V, &how, position + (uint64_t)i, scratch);
        }
        CHECK_EQ(v.next, token);
        CHECK_EQ(tree_child(&t, v.path[v.n - 1], token), -1); /* it goes as far as it can */
        accepted += v.n - 1;
    }
    CHECK_MSG(accepted > 2000, "%d tokens accepted: hardly a test", accepted);
}

/* ---- proposals ---- */

enum { WINDOW = 2 }; /* of the three tokens that are counted the last comes after all of them */

/* A chain drawn from q with the noise of the positions, as drafters draw. */
static void propose_chain(struct tree *t, float *q, int32_t root, const struct sampling *how,
                          uint64_t position)
{
    tree_begin(t, root);
    for (int i = 0; i < WINDOW; i++) {
        const float *x = draft[t->id[i]];
        sample_distribution(x, V, how, q + (size_t)i * V, scratch);
        tree_add(t, i, sample_token(x, V, how, position + (uint64_t)i, scratch));
    }
}

/* Three children of the root, two of each of these: the drafter's likeliest, or, `noisy`, those
 * that its noise prefers. */
static void propose_tree(struct tree *t, int32_t root, const struct sampling *how,
                         uint64_t position, bool noisy)
{
    struct sampling rule = { .temperature = noisy ? how->temperature : 0, .top_p = 1 };
    rule.seed = how->seed;
    tree_begin(t, root);
    for (int row = 0; row < t->n && t->depth[row] < WINDOW; row++) {
        int32_t ids[3];
        int n = sample_top(draft[t->id[row]], V, &rule, position + (uint64_t)t->depth[row],
                           3 - t->depth[row], ids, scratch);
        for (int i = 0; i < n; i++)
            tree_add(t, row, ids[i]);
    }
}

enum rule {
    RULE_CHAIN,
    RULE_TREE,
    RULE_NOISY_TREE,
    RULE_WRONG_ACCEPT,  /* chain: accepts with p instead of p / q */
    RULE_WRONG_RESIDUAL /* chain: after a rejection draws from p */
};

/* A chain judged wrongly, to see that the chi-square notices. */
static void verify_wrongly(struct verdict *v, const struct tree *t, const float *logits,
                           const float *q, const struct sampling *how, uint64_t position,
                           enum rule rule)
{
    struct rng r = { rng_bits(how->seed, position, 1u << 30) };
    float p[V];
    double goal, total = 0;
    for (v->n = 1; v->n < t->n; v->n++) {
        const float *row = q + (size_t)(v->n - 1) * V;
        int32_t id = t->id[v->n];
        double u = 0.5 + 0.5 * (double)rng_float(&r);
        sample_distribution(logits + (size_t)(v->n - 1) * V, V, how, p, scratch);
        if (u >= (double)p[id] / (rule == RULE_WRONG_ACCEPT ? 1 : row[id])) {
            for (int i = 0; i < V && rule == RULE_WRONG_ACCEPT; i++)
                p[i] = p[i] > row[i] ? p[i] - row[i] : 0;
            break;
        }
        sample_distribution(logits + (size_t)v->n * V, V, how, p, scratch);
    }
    for (int i = 0; i < V; i++)
        total += p[i];
    goal = (0.5 + 0.5 * (double)rng_float(&r)) * total;
    v->next = -1;
    for (total = 0; total <= goal;)
        total += p[++v->next];
    for (int i = 0; i < v->n; i++)
        v->path[i] = i;
}

/* One round from `root`: the emitted tokens and how many. */
static int play(int32_t *out, int32_t root, const struct sampling *how, uint64_t position,
                enum rule rule)
{
    static float logits[TREE_MAX * V], q[WINDOW * V];
    struct tree t;
    struct verdict v;
    memset(&v, 0xee, sizeof v);
    if (rule == RULE_TREE || rule == RULE_NOISY_TREE) {
        propose_tree(&t, root, how, position, rule == RULE_NOISY_TREE);
        run_target(logits, &t);
        verify_rejection_tree(&v, &t, logits, V, how, position, room, scratch);
    } else {
        propose_chain(&t, q, root, how, position);
        run_target(logits, &t);
        if (rule == RULE_CHAIN)
            verify_rejection_chain(&v, &t, logits, q, V, how, position, room, scratch);
        else
            verify_wrongly(&v, &t, logits, q, how, position, rule);
    }
    for (int i = 1; i < v.n; i++)
        out[i - 1] = t.id[v.path[i]];
    out[v.n - 1] = v.next;
    return v.n;
}

/* ---- chi-square ---- */

/* How many standard deviations the chi-square of counts lies above its mean. Cells that expect
 * fewer than 5 are taken together; a count where none can be is infinitely far. */
static double far_off(const int *count, const double *p, int n, int draws)
{
    double chi = 0, few = 0, few_seen = 0;
    int cells = 0;
    for (int i = 0; i < n; i++) {
        double want = p[i] * draws;
        if (p[i] == 0 && count[i] > 0)
            return INFINITY;
        if (want < 5) {
            few += want;
            few_seen += count[i];
            continue;
        }
        chi += (count[i] - want) * (count[i] - want) / want;
        cells++;
    }
    if (few >= 5) {
        chi += (few_seen - few) * (few_seen - few) / few;
        cells++;
    }
    return cells < 2 ? 0 : (chi - (cells - 1)) / sqrt(2.0 * (cells - 1));
}

struct outcome {
    double first, joint; /* far_off of the first token, and of the first three */
    double accepted;     /* share of first tokens that were proposed ones */
};

static struct outcome measure(struct sampling how, enum rule rule)
{
    static int count[V], joint[V * V * V];
    static double p[V], p_joint[V * V * V];
    const int32_t root = 3;
    struct outcome o = { 0 };
    float after[V][V];
    memset(count, 0, sizeof count);
    memset(joint, 0, sizeof joint);
    make_world();
    for (int i = 0; i < V; i++)
        sample_distribution(target[i], V, &how, after[i], scratch);
    for (int i = 0; i < V * V * V; i++) {
        int a = i / (V * V), b = i / V % V, c = i % V;
        p[a] = after[root][a];
        p_joint[i] = (double)after[root][a] * after[a][b] * after[b][c];
    }
    for (int run = 0; run < RUNS; run++) {
        int32_t out[TREE_MAX + 3];
        uint64_t position = (uint64_t)(run % 7 * 100);
        int n;
        how.seed = (uint64_t)run;
        n = play(out, root, &how, position, rule);
        o.accepted += n > 1 ? 1.0 / RUNS : 0;
        while (n < 3)
            n += play(out + n, out[n - 1], &how, position + (uint64_t)n, rule);
        count[out[0]]++;
        joint[(out[0] * V + out[1]) * V + out[2]]++;
    }
    o.first = far_off(count, p, V, RUNS);
    o.joint = far_off(joint, p_joint, V * V * V, RUNS);
    return o;
}

/* The share of first tokens that are accepted, by theory. */
static double chance(const struct sampling *how, enum rule rule)
{
    float p[V], q[V];
    double sum = 0;
    sample_distribution(target[3], V, how, p, scratch);
    sample_distribution(draft[3], V, how, q, scratch);
    if (rule == RULE_TREE) {
        struct tree t;
        propose_tree(&t, 3, how, 0, false);
        for (int i = 0; i < V; i++)
            sum += tree_child(&t, 0, i) >= 0 ? p[i] : 0;
    } else {
        for (int i = 0; i < V; i++)
            sum += p[i] < q[i] ? p[i] : q[i];
    }
    return sum;
}

static void check_rule(struct sampling how, enum rule rule, const char *what)
{
    struct outcome o = measure(how, rule);
    double want = chance(&how, rule), error = 5 * sqrt(want * (1 - want) / RUNS) + 1e-6;
    CHECK_MSG(o.first < 5, "%s: the first token is %.1f deviations off", what, o.first);
    CHECK_MSG(o.joint < 5, "%s: the first three are %.1f deviations off", what, o.joint);
    if (rule != RULE_NOISY_TREE) /* whose candidates vary */
        CHECK_MSG(fabs(o.accepted - want) < error, "%s: %.4f accepted, %.4f expected", what,
                  o.accepted, want);
}

static const struct {
    const char *what;
    struct sampling how;
} cases[] = {
    { "plain", { .temperature = 1, .top_p = 1 } },
    { "cool", { .temperature = 0.6f, .top_p = 1 } },
    { "top-k 4", { .temperature = 1, .top_k = 4, .top_p = 1 } },
    { "top-p 0.7", { .temperature = 1.3f, .top_p = 0.7f } },
    { "min-p 0.2", { .temperature = 1, .top_p = 1, .min_p = 0.2f } },
    { "all warpers", { .temperature = 1.5f, .top_k = 6, .top_p = 0.9f, .min_p = 0.1f } },
};

TEST(chains_keep_the_distribution)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rule(cases[i].how, RULE_CHAIN, cases[i].what);
}

TEST(trees_keep_the_distribution)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rule(cases[i].how, RULE_TREE, cases[i].what);
}

/* Candidates chosen by the noise of the same seed and positions: nothing of it may reach the
 * judgement. */
TEST(trees_by_noise_keep_the_distribution)
{
    check_rule(cases[0].how, RULE_NOISY_TREE, cases[0].what);
    check_rule(cases[5].how, RULE_NOISY_TREE, cases[5].what);
}

TEST(wrong_rules_would_be_noticed)
{
    struct outcome o = measure(cases[0].how, RULE_WRONG_ACCEPT);
    CHECK_MSG(o.first > 20 && o.joint > 20, "%.1f and %.1f deviations off", o.first, o.joint);
    o = measure(cases[0].how, RULE_WRONG_RESIDUAL);
    CHECK_MSG(o.first > 20 && o.joint > 20, "%.1f and %.1f deviations off", o.first, o.joint);
}

/* ---- by hand ---- */

static void chain_of(struct tree *t, int32_t root, int n, const int32_t *ids)
{
    tree_begin(t, root);
    for (int i = 0; i < n; i++)
        tree_add(t, i, ids[i]);
}

/* Logits of a distribution. */
static void logits_of(float *x, const float *p, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = p[i] > 0 ? logf(p[i]) : -INFINITY;
}

static const float some[] = { 0.5f, 0, 0.25f, 0.125f, 0.125f, 0, 0, 0 };

TEST(a_perfect_chain_is_always_accepted)
{
    static const int32_t ids[] = { 0, 3, 2 };
    float logits[4 * V], q[3 * V];
    bool seen[V] = { false };
    struct sampling how = { .temperature = 1, .top_p = 1 };
    struct tree t;
    struct verdict v;
    chain_of(&t, 7, 3, ids);
    for (int i = 0; i < 4; i++) {
        logits_of(logits + i * V, some, V);
        if (i < 3)
            sample_distribution(logits + i * V, V, &how, q + i * V, scratch);
    }
    for (how.seed = 0; how.seed < 3000; how.seed++) {
        verify_rejection_chain(&v, &t, logits, q, V, &how, 17, room, scratch);
        CHECK(v.n == 4 && v.path[0] == 0 && v.path[1] == 1 && v.path[2] == 2 && v.path[3] == 3);
        CHECK_MSG(v.next >= 0 && v.next < V && some[v.next] > 0, "%d came out", (int)v.next);
        seen[v.next] = true;
    }
    CHECK(seen[0] && seen[2] && seen[3] && seen[4]); /* the token after them is drawn from p */
}

TEST(an_impossible_token_is_never_accepted)
{
    static const int32_t bad[] = { 1, V, -1, INT32_MAX };
    static const float q[V] = { 0, 1 };
    float logits[2 * V];
    struct sampling how = { .temperature = 1, .top_p = 1 };
    logits_of(logits, some, V);
    logits_of(logits + V, some, V);
    for (how.seed = 0; how.seed < 4000; how.seed++) {
        struct tree t;
        struct verdict v;
        chain_of(&t, 7, 1, &bad[how.seed % 4]);
        verify_rejection_chain(&v, &t, logits, q, V, &how, 0, room, scratch);
        CHECK(v.n == 1 && v.next >= 0 && v.next < V && some[v.next] > 0);
        verify_rejection_tree(&v, &t, logits, V, &how, 0, room, scratch);
        CHECK(v.n == 1 && v.next >= 0 && v.next < V && some[v.next] > 0);
    }
}

/* q above p everywhere, as only rounding or a broken drafter makes it: what is left is nothing, and
 * the token comes from p. */
TEST(an_empty_residual_falls_back_to_the_target)
{
    static const int32_t id = 0;
    static const float q[V] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    float logits[2 * V];
    int rejected = 0, count[V] = { 0 };
    struct sampling how = { .temperature = 1, .top_p = 1 };
    struct tree t;
    logits_of(logits, some, V);
    logits_of(logits + V, some, V);
    chain_of(&t, 7, 1, &id);
    for (how.seed = 0; how.seed < 4000; how.seed++) {
        struct verdict v;
        verify_rejection_chain(&v, &t, logits, q, V, &how, 0, room, scratch);
        CHECK(v.next >= 0 && v.next < V && some[v.next] > 0);
        rejected += v.n == 1;
        count[v.next] += v.n == 1;
    }
    CHECK_MSG(rejected > 1700 && rejected < 2300, "%d rejections", rejected);
    CHECK_MSG(abs(2 * count[0] - rejected) < 300, "%d of %d", count[0], rejected);
}

TEST(a_tree_of_all_that_is_possible_always_accepts)
{
    static const int32_t ids[] = { 1, 3, 4, 2, 0 }; /* the impossible one first */
    float logits[6 * V];
    int count[6] = { 0 };
    struct sampling how = { .temperature = 1, .top_p = 1 };
    struct tree t;
    tree_begin(&t, 7);
    for (int i = 0; i < 5; i++)
        tree_add(&t, 0, ids[i]);
    for (int i = 0; i < 6; i++)
        logits_of(logits + i * V, some, V);
    for (how.seed = 0; how.seed < 8000; how.seed++) {
        struct verdict v;
        verify_rejection_tree(&v, &t, logits, V, &how, 5, room, scratch);
        if (!CHECK(v.n == 2))
            return;
        count[v.path[1]]++;
    }
    for (int row = 1; row < 6; row++) {
        double p = some[ids[row - 1]];
        CHECK_MSG(fabs(count[row] - 8000 * p) <= 5 * sqrt(8000 * p * (1 - p)),
                  "row %d: %d times of %g", row, count[row], 8000 * p);
    }
}

/* Without temperature both rules are the greedy walk. */
TEST(rejection_without_temperature_is_greedy)
{
    static float logits[TREE_MAX * V], q[WINDOW * V];
    struct sampling how = { .temperature = 0, .top_p = 1 };
    struct rng r = { test_seed };
    int accepted = 0;
    make_world();
    for (int round = 0; round < 2000; round++) {
        struct tree t;
        struct verdict want, got;
        how.seed = rng_next(&r);
        if (round % 2) {
            random_tree(&t, 1 + round % TREE_MAX, V, &r);
            run_target(logits, &t);
            verify_rejection_tree(&got, &t, logits, V, &how, 9, room, scratch);
        } else {
            propose_chain(&t, q, (int32_t)(rng_next(&r) % V), &how, 9);
            run_target(logits, &t);
            verify_rejection_chain(&got, &t, logits, q, V, &how, 9, room, scratch);
        }
        verify_exact(&want, &t, logits, V, &how, 9, scratch);
        CHECK_EQ(got.n, want.n);
        CHECK(!memcmp(got.path, want.path, sizeof got.path[0] * (size_t)want.n));
        CHECK_EQ(got.next, want.next);
        accepted += want.n - 1;
    }
    CHECK(accepted > 500);
}

/* The same seed and position give the same verdict; others give others. */
TEST(verdicts_are_functions_of_seed_and_position)
{
    struct sampling how = { .temperature = 1, .top_p = 1 };
    int differ = 0;
    make_world();
    CHECK_EQ(verify_scratch(V), V);
    for (uint64_t i = 0; i < 500; i++) {
        int32_t a[TREE_MAX], b[TREE_MAX], c[TREE_MAX];
        enum rule rule = i % 2 ? RULE_CHAIN : RULE_TREE;
        int n, m;
        how.seed = i;
        n = play(a, 3, &how, i, rule);
        m = play(c, 3, &how, i + 1000, rule);
        CHECK_EQ(play(b, 3, &how, i, rule), n);
        CHECK(!memcmp(a, b, sizeof a[0] * (size_t)n));
        differ += n != m || memcmp(a, c, sizeof a[0] * (size_t)n) != 0;
    }
    CHECK_MSG(differ > 250, "only %d differ", differ);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
