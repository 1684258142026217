/* `auto` on machines that exist only here: it must find what is best there, and never lose more
 * than a little to plain decoding. */
#include "base/rng.h"
#include "spec/pearl.h"
#include "spec/policy.h"
#include "test.h"

#include <math.h>

/* Times of a machine, and how often a drafted token is right. */
struct machine {
    double row1, row, token, tree, right;
    double start, several; /* of a chain, beside its tokens; of several rows, beside each of them */
};

static double verify_time(const struct machine *m, int rows)
{
    return m->row1 + m->row * (rows - 1) + (rows > 1 ? m->several : 0);
}

static double drawn(struct rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* Tokens accepted of a chain; a tree is a chain of 5 whose tokens are right more often. */
static int accept(const struct machine *m, struct rng *r, int window, bool tree)
{
    double right = tree ? 1 - (1 - m->right) * 0.7 : m->right;
    int n = 0;
    while (n < window && (double)(rng_next(r) >> 11) * 0x1p-53 < right)
        n++;
    return n;
}

static double seconds_for(const struct machine *m, int tokens, uint64_t seed, double noise)
{
    struct policy p;
    struct rng r = { seed };
    double total = 0;
    policy_open(&p, 26);
    while (tokens > 0) {
        struct policy_choice c = policy_next(&p);
        int window = c.kind == POLICY_CHAIN ? c.window : c.kind == POLICY_TREE ? 5 : 0;
        int rows = c.kind == POLICY_TREE ? 26 : window + 1;
        int n = accept(m, &r, window, c.kind == POLICY_TREE);
        double jitter = 1 + noise * ((double)(rng_next(&r) >> 11) * 0x1p-53 - 0.5);
        double draft = c.kind == POLICY_TREE ? m->tree : window * m->token;
        double verify = verify_time(m, rows) * jitter;
        policy_learn(&p, c, rows, c.kind == POLICY_TREE ? 25 : window, n, draft, verify);
        total += draft + verify;
        tokens -= n + 1;
    }
    return total;
}

/* The best rate of one fixed choice, by the formula. */
static double best_rate(const struct machine *m)
{
    double best = 1 / m->row1;
    for (int w = 1; w <= POLICY_MAX_WINDOW + 1; w++) {
        bool tree = w > POLICY_MAX_WINDOW;
        double right = tree ? 1 - (1 - m->right) * 0.7 : m->right, tokens = 1, all = 1;
        for (int d = 0; d < (tree ? 5 : w); d++) {
            all *= right;
            tokens += all;
        }
        double rate = tree ? tokens / (m->tree + verify_time(m, 26))
                           : tokens / (w * m->token + verify_time(m, w + 1));
        best = rate > best ? rate : best;
    }
    return best;
}

TEST(finds_what_is_best)
{
    static const struct machine machines[] = {
        { 1.0, 0.02, 0.1, 1.0, 0.8 },   /* rows nearly free: long chains or trees */
        { 1.0, 0.30, 0.1, 1.0, 0.8 },   /* rows dear: short chains */
        { 1.0, 0.05, 0.05, 0.3, 0.95 }, /* an excellent drafter */
        { 1.0, 0.05, 0.5, 3.0, 0.6 },   /* a slow one */
        { 1.0, 0.01, 0.02, 0.1, 0.5 },  /* a cheap one that errs */
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        double rate = 4000 / seconds_for(&machines[i], 4000, test_seed + i, 0.2);
        CHECK_MSG(rate > 0.9 * best_rate(&machines[i]), "machine %zu: %.2f of the best %.2f", i,
                  rate, best_rate(&machines[i]));
    }
}

/* A GPU: each number of rows, and each window, is slow when it comes for the first two times, and
 * these times are not believed. */
static double recorded_rate(const struct machine *m, int tokens, uint64_t seed, int fixed)
{
    struct policy p;
    struct rng r = { seed };
    int came[POLICY_MAX_WINDOW + 1] = { 0 }, told = 0;
    double total = 0;
    policy_open(&p, 0);
    policy_record(&p);
    while (told < tokens) {
        struct policy_choice c = policy_next(&p);
        int window = fixed >= 0 ? fixed : c.kind == POLICY_CHAIN ? c.window : 0;
        int n = accept(m, &r, window, false);
        double jitter = 1 + 0.1 * ((double)(rng_next(&r) >> 11) * 0x1p-53 - 0.5);
        double draft = window * m->token * jitter, verify = verify_time(m, window + 1) * jitter;
        bool slow = came[window]++ < 2;
        policy_learn(&p, c, window + 1, window, n, slow ? 0 : draft, slow ? 0 : verify);
        total += (slow ? 3 : 1) * (draft + verify);
        told += n + 1;
    }
    return told / total;
}

/* Times in ms of an H200 (doc/notes/cuda.md): nano, 7B with 0.5B and 32B with 7B. */
TEST(chains_of_a_gpu_are_within_a_little_of_the_best_window)
{
    static const struct machine machines[] = { { 0.17, 0.004, 0.035, 99, 0 },
                                               { 4.1, 0.024, 0.42, 99, 0 },
                                               { 18.4, 0.15, 3.9, 99, 0 } };
    enum { TOKENS = 20000 };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        for (double right = 0.6; right < 0.96; right += 0.05) {
            struct machine m = machines[i];
            double rate, best = 0;
            m.right = right;
            rate = recorded_rate(&m, TOKENS, 5, -1);
            for (int w = 0; w <= POLICY_MAX_WINDOW; w++) {
                double fixed = recorded_rate(&m, TOKENS, 5, w);
                best = fixed > best ? fixed : best;
            }
            CHECK_MSG(rate > 0.97 * best, "machine %zu, %.2f right: %.4f of the best", i, right,
                      rate / best);
            CHECK_MSG(rate > recorded_rate(&m, TOKENS, 5, 0), "machine %zu, %.2f right", i, right);
        }
}

/* Answers in a row on such a GPU, each of which begins with what the one before has learnt. Now and
 * then a step takes longer. After plain rounds the drafter has to read what they added. */
static double answers_rate(const struct machine *m, int answers, uint64_t seed, int fixed)
{
    enum { TOKENS = 200 };
    struct policy before = { 0 };
    struct rng r = { seed };
    double total = 0;
    int told = 0;
    for (int i = 0; i < answers; i++) {
        struct policy p;
        policy_open(&p, 0);
        policy_record(&p);
        policy_resume(&p, &before);
        for (int n = 0, missed = 0; n < TOKENS;) {
            struct policy_choice c = policy_next(&p);
            int window = fixed >= 0 ? fixed : c.kind == POLICY_CHAIN ? c.window : 0;
            int accepted = accept(m, &r, window, false);
            double slow = 1 + 0.1 * (drawn(&r) - 0.5) + (drawn(&r) < 0.02 ? 0.5 : 0);
            double read = 0.1 * m->token * missed;
            double draft = window > 0 ? (m->start + window * m->token + read) * slow : 0;
            double verify = verify_time(m, window + 1) * slow;
            policy_learn(&p, c, window + 1, window, accepted, draft, verify);
            missed = window > 0 ? 0 : missed + 1;
            n += accepted + 1;
            total += draft + verify;
            told += accepted + 1;
        }
        before = p;
    }
    return told / total;
}

/* From useless drafters to excellent ones: within 3 % of the best window, and never more than 2 %
 * slower than plain decoding. */
TEST(short_answers_begin_with_what_others_have_learnt)
{
    static const struct machine machines[] = { { 0.205, 0.008, 0.049, 99, 0 },
                                               { 4.1, 0.024, 0.42, 99, 0 },
                                               { 18.4, 0.15, 3.9, 99, 0 } };
    static const double right[] = { 0.02, 0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.89, 0.95 };
    enum { IN_A_ROW = 200 };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        for (size_t k = 0; k < sizeof right / sizeof *right; k++) {
            struct machine m = machines[i];
            double rate, plain, best = 0;
            m.right = right[k];
            rate = answers_rate(&m, IN_A_ROW, test_seed, -1);
            plain = answers_rate(&m, IN_A_ROW, test_seed, 0);
            for (int w = 0; w <= POLICY_MAX_WINDOW; w++) {
                double fixed = answers_rate(&m, IN_A_ROW, test_seed, w);
                best = fixed > best ? fixed : best;
            }
            CHECK_MSG(rate > 0.97 * best, "machine %zu, %.2f right: %.3f of the best", i, m.right,
                      rate / best);
            CHECK_MSG(rate > 0.98 * plain, "machine %zu, %.2f right: %.3f of plain", i, m.right,
                      rate / plain);
        }
}

/* nano on an H200 (bench/csv/gpu/h200-auto.txt): a chain is one step of the GPU, which costs as
 * much as a token more. A short chain is slower than a part of a long one. */
TEST(chains_have_a_cost_of_their_own)
{
    struct machine m = { 0.185, 0.0035, 0.039, 99, 0, 0.036, 0.022 };
    for (m.right = 0.2; m.right < 0.96; m.right += 0.05) {
        double rate = answers_rate(&m, 100, test_seed, -1), best = 0;
        for (int w = 0; w <= POLICY_MAX_WINDOW; w++) {
            double fixed = answers_rate(&m, 100, test_seed, w);
            best = fixed > best ? fixed : best;
        }
        CHECK_MSG(rate > 0.95 * best, "%.2f right: %.3f of the best", m.right, rate / best);
    }
}

/* The context of the next answer is longer: its first rounds scale all times. */
TEST(times_of_another_context_are_scaled)
{
    static const struct machine m = { 1.0, 0.05, 0.1, 99, 0.8 };
    struct policy_choice plain = { POLICY_PLAIN, 0 }, chain = { POLICY_CHAIN, 4 };
    struct policy before, p;
    policy_open(&before, 0);
    policy_record(&before);
    for (int i = 0; i < 20; i++) {
        policy_learn(&before, plain, 1, 0, 0, 0, m.row1);
        policy_learn(&before, chain, 5, 4, 3, 4 * m.token, verify_time(&m, 5));
    }
    CHECK(policy_drafts(&before));
    policy_open(&p, 0);
    policy_record(&p);
    CHECK(!policy_drafts(&p)); /* nothing is known */
    policy_resume(&p, &before);
    CHECK(policy_drafts(&p));
    policy_learn(&p, chain, 5, 4, 3, 0, 3 * verify_time(&m, 5));
    CHECK_MSG(fabs(p.verify_s[1] - 3 * before.verify_s[1]) < 1e-9, "%g", p.verify_s[1]);
    CHECK_MSG(fabs(p.token_s - 3 * before.token_s) < 1e-9, "%g", p.token_s);
    policy_open(&p, 8); /* other choices: nothing is taken over */
    policy_resume(&p, &before);
    CHECK(p.token_s == 0 && p.verify_s[1] == 0);
}

/* A single row that was slow once, and is never tried again: five rows have shown that it was an
 * outlier. */
TEST(more_rows_take_no_less_time)
{
    struct policy_choice plain = { POLICY_PLAIN, 0 }, chain = { POLICY_CHAIN, 4 };
    struct policy p;
    policy_open(&p, 0);
    policy_learn(&p, plain, 1, 0, 0, 0, 3);
    policy_learn(&p, chain, 5, 4, 0, 0.4, 1.1);
    CHECK(policy_rate(&p, plain) > 0.9);
}

/* A trial that lost is repeated after a longer time, also if the prompt had to be read for it. */
TEST(trials_become_rare)
{
    static const struct machine m = { 1.0, 0.3, 0.3, 99, 0 };
    for (int reads = 0; reads < 2; reads++) {
        struct policy p;
        int trials = 0, rounds = 0, last = 0, gap = 0;
        policy_open(&p, 0);
        for (int i = 0; i < 3000; i++) {
            struct policy_choice c = policy_next(&p);
            int window = c.window;
            if (i > 100 && window > 0) {
                if (i > last + 1) { /* else the trial goes on */
                    gap = i - last;
                    trials++;
                    if (reads)
                        policy_read_prompt(&p, 20);
                }
                rounds++;
                last = i;
            }
            policy_learn(&p, c, window + 1, window, 0, window * m.token,
                         verify_time(&m, window + 1));
        }
        CHECK_MSG(reads ? trials > 0 && trials <= 3 : trials > 3 && trials < 12, "%d trials",
                  trials);
        CHECK_MSG(gap > (reads ? 500 : 300), "the last after %d rounds", gap);
        CHECK_MSG(reads ? rounds >= 4 * trials : rounds == trials, "%d rounds of trials", rounds);
    }
}

/* Where drafts are worthless, short answers and long ones are at most a little slower than plain
 * decoding. */
TEST(gives_up_in_time)
{
    static const struct machine machines[] = {
        { 1.0, 0.3, 0.3, 3.0, 0.02 },
        { 1.0, 1.0, 0.1, 1.0, 0.5 },
        { 1.0, 0.1, 0.9, 9.0, 0.3 },
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        double slower = seconds_for(&machines[i], 1000, 9, 0.2) / 1000;
        CHECK_MSG(slower < 1.03, "machine %zu: %.3f times as long as plain", i, slower);
    }
}

/* A drafter that turns good in the middle is noticed. */
TEST(follows_a_change)
{
    struct machine m = { 1.0, 0.05, 0.1, 1.0, 0.05 };
    struct policy p;
    struct rng r = { 3 };
    double total = 0;
    int told = 0;
    policy_open(&p, 0);
    for (int i = 0; i < 3000; i++) {
        struct policy_choice c = policy_next(&p);
        int window = c.kind == POLICY_CHAIN ? c.window : 0, n;
        m.right = i < 600 ? 0.05 : 0.9;
        n = accept(&m, &r, window, false);
        policy_learn(&p, c, window + 1, window, n, window * m.token, verify_time(&m, window + 1));
        if (i >= 1500) {
            total += window * m.token + verify_time(&m, window + 1);
            told += n + 1;
        }
    }
    CHECK_MSG(told / total > 0.85 * best_rate(&(struct machine){ 1.0, 0.05, 0.1, 9.0, 0.9 }),
              "%.2f tokens a second", told / total);
}

/* Rounds without times are had until there are some; what they brought counts. */
TEST(times_that_were_not_measured_are_not_learnt)
{
    static const struct machine m = { 1.0, 0.05, 0.1, 0, 0.85 };
    struct policy_choice plain = { POLICY_PLAIN, 0 }, tree = { POLICY_TREE, 0 };
    struct policy p;
    policy_open(&p, 8);
    policy_fit(&p);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ((int)policy_next(&p).kind, POLICY_PLAIN);
        policy_learn(&p, plain, 1, 0, 0, 0, i < 3 ? 0 : m.row1);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQ((int)policy_next(&p).kind, POLICY_TREE);
        policy_learn(&p, tree, 6, 5, 0, 0, 0);
    }
    CHECK(p.tree_s == 0 && p.tree_verify_s == 0 && p.token_s == 0 && p.verify_s[6] == 0);
    CHECK(p.tree_tokens > 0 && p.right[1] / p.tried[1] < 0.5);
    policy_learn(&p, tree, 6, 5, 5, 5 * m.token, verify_time(&m, 6));
    CHECK(policy_rate(&p, plain) == 1 / m.row1 && p.token_s == m.token);
    CHECK(p.tree_verify_s == verify_time(&m, 6));
}

/* ---- fitted trees ---- */

/* A fitted tree is the best chain there is on this machine, or the root alone (0). */
static int fitted_window(const struct machine *m)
{
    double best = 1 / (m->row1 + m->token), all = 1, sum = 1;
    int window = 0;
    for (int w = 1; w <= POLICY_MAX_WINDOW; w++) {
        double rate;
        all *= m->right;
        sum += all;
        rate = sum / (w * m->token + verify_time(m, w + 1));
        window = rate > best ? w : window;
        best = rate > best ? rate : best;
    }
    return window;
}

/* Seconds for so many tokens, where a tree that is the root alone makes the drafter run once all
 * the same; `trees`: rounds with one. Without a policy every round has a tree. */
static double fitted_seconds(struct policy *p, const struct machine *m, int tokens, uint64_t seed,
                             int *trees)
{
    struct rng r = { seed };
    int window = fitted_window(m);
    double total = 0;
    while (tokens > 0) {
        struct policy_choice c = p ? policy_next(p) : (struct policy_choice){ POLICY_TREE, 0 };
        bool tree = c.kind == POLICY_TREE;
        int n = tree ? accept(m, &r, window, false) : 0, rows = tree ? window + 1 : 1;
        double draft = tree ? (window > 0 ? window : 1) * m->token : 0;
        CHECK(tree || c.kind == POLICY_PLAIN); /* never a chain */
        if (p)
            policy_learn(p, c, rows, tree ? window : 0, n, draft, verify_time(m, rows));
        total += draft + verify_time(m, rows);
        tokens -= n + 1;
        *trees += tree;
    }
    return total;
}

TEST(fitted_trees_come_first_and_in_the_place_of_chains)
{
    static const struct machine m = { 1.0, 0.05, 0.1, 0, 0.85 };
    struct policy p;
    struct policy_choice c;
    int trees = 0;
    double s;
    policy_open(&p, 8);
    policy_fit(&p);
    c = policy_next(&p);
    CHECK_EQ(c.kind, POLICY_PLAIN);
    policy_learn(&p, c, 1, 0, 0, 0, m.row1);
    CHECK_EQ(policy_next(&p).kind, POLICY_TREE);
    s = fitted_seconds(&p, &m, 4000, test_seed, &trees);
    CHECK_MSG(4000 / s > 0.95 * best_rate(&(struct machine){ 1.0, 0.05, 0.1, 99, 0.85 }),
              "%.2f tokens a second", 4000 / s);
    CHECK(trees > 500);
}

/* Whether the drafter is slow, wrong, or rows are dear: plain decoding, but for a trial now and
 * then. A tree that is the root alone says so as well. */
TEST(hopeless_fitted_trees_are_given_up)
{
    static const struct machine machines[] = {
        { 1.0, 0.3, 0.3, 0, 0.02 },
        { 1.0, 1.0, 0.1, 0, 0.5 },
        { 1.0, 0.1, 0.9, 0, 0.3 },
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        struct policy p;
        int trees = 0;
        double slower;
        policy_open(&p, 8);
        policy_fit(&p);
        slower = fitted_seconds(&p, &machines[i], 1000, test_seed, &trees) / 1000;
        CHECK_MSG(slower < 1.03, "machine %zu: %.3f times as long as plain", i, slower);
        CHECK_MSG(trees < 150, "machine %zu: %d trees", i, trees);
    }
}

/* An unlucky first tree does not end drafting for the answer. */
TEST(fitted_trees_survive_a_bad_start)
{
    struct machine m = { 1.0, 0.1, 0.1, 99, 0.85 };
    struct policy p;
    int trees = 0;
    policy_open(&p, 8);
    policy_fit(&p);
    policy_learn(&p, policy_next(&p), 1, 0, 0, 0, m.row1);
    CHECK_EQ((int)policy_next(&p).kind, POLICY_TREE);
    policy_learn(&p, (struct policy_choice){ POLICY_TREE, 0 }, 6, 5, 0, 5 * m.token,
                 verify_time(&m, 6));
    fitted_seconds(&p, &m, 200, test_seed, &trees);
    CHECK_MSG(trees > 20, "%d trees in 200 tokens", trees);
}

/* Nor does one that was grown deep before prices were known: where drafting is dear beside a plain
 * token, all that it drafted has to count for it. How fast an answer of 400 tokens is depends on
 * its draws (one in twenty misses 95 % of the expected rate however it is drafted), so each is
 * compared with trees in all rounds and the same draws. */
TEST(fitted_trees_survive_a_deep_start)
{
    static const struct machine m = { 0.19, 0.007, 0.115, 99, 0.97 }; /* nano on an H200 */
    enum { SEEDS = 200, TOKENS = 400 };
    int behind = 0, few = 0;
    double total = 0;
    for (uint64_t i = 0; i < SEEDS; i++) {
        struct policy p;
        int trees = 0, all_trees = 0;
        double s, always = fitted_seconds(NULL, &m, TOKENS, test_seed + i, &all_trees);
        policy_open(&p, 8);
        policy_fit(&p);
        policy_learn(&p, policy_next(&p), 1, 0, 0, 0, m.row1);
        CHECK_EQ((int)policy_next(&p).kind, POLICY_TREE);
        policy_learn(&p, (struct policy_choice){ POLICY_TREE, 0 }, 17, 16, 16, 16 * m.token,
                     verify_time(&m, 17));
        s = fitted_seconds(&p, &m, TOKENS, test_seed + i, &trees);
        behind += s > 1.03 * always;
        few += trees <= 20;
        total += s;
    }
    CHECK_MSG(behind <= SEEDS / 100, "%d of %d answers are more than 3 %% slower than with trees",
              behind, SEEDS);
    CHECK_MSG(few == 0, "%d of %d answers have at most 20 trees", few, SEEDS);
    CHECK_MSG(SEEDS * TOKENS / total > 0.98 * best_rate(&m), "%.3f of the expected rate",
              SEEDS * TOKENS / total / best_rate(&m));
}

/* Trees that bring nothing any more are left, and are found again when they do. */
TEST(fitted_trees_follow_a_change)
{
    static const double right[] = { 0.9, 0.02, 0.9 };
    struct policy p;
    policy_open(&p, 8);
    policy_fit(&p);
    for (int part = 0; part < 6; part++) { /* two for each: to learn, and to have learnt */
        struct machine m = { 1.0, 0.05, 0.3, 99, right[part / 2] };
        int trees = 0;
        double rate = 2000 / fitted_seconds(&p, &m, 2000, test_seed, &trees);
        if (part % 2 == 1)
            CHECK_MSG(rate > 0.95 * best_rate(&m), "part %d: %.2f of %.2f", part, rate,
                      best_rate(&m));
    }
}

/* ---- the parallel schedule ---- */

enum { MAX_PARALLEL = 12, ANSWERS = 32 };

/* One answer on a machine whose two sides slow each other down by `share` while both run: 0 with
 * resources of their own, 1 where they share all. */
struct answer {
    const struct machine *m;
    double share, noise;
    struct rng r;
    struct pearl books;
    int right;       /* pending tokens that are right, up to the first that is not */
    double total;    /* seconds */
    int told;        /* tokens */
    int in_parallel; /* rounds */
};

/* The round ends when both are done, or when the target finds that the draft is lost. */
static struct policy_round parallel_round(struct answer *a, int window)
{
    struct policy_round o = { .rows = pearl_rows(&a->books), .drafted = window };
    double work = verify_time(a->m, o.rows) * (1 + a->noise * (drawn(&a->r) - 0.5));
    double draft = window * a->m->token, slow = 1 + a->share;
    double first = (work < draft ? work : draft) * slow;
    int pending = a->books.pending, good = 0;
    bool lost = a->right < pending;
    while (good < window && drawn(&a->r) < a->m->right)
        good++;
    o.target_s = work < draft ? first : first + work - draft;
    if ((lost || good == 0) && work < draft) { /* stopped with what it has */
        o.drafted = (int)(work / a->m->token);
        o.draft_s = o.drafted * a->m->token * slow;
    } else {
        o.draft_s = work < draft ? first + draft - work : first;
    }
    o.wall_s = o.target_s > o.draft_s ? o.target_s : o.draft_s;
    o.tested = pearl_tested(&a->books, o.drafted);
    o.accepted = lost ? a->right : pending + (o.drafted > 0 && good > 0);
    a->told += pearl_end(&a->books, o.drafted, o.accepted).verified;
    a->right = good > 0 ? good - 1 : 0;
    if (a->right > a->books.pending)
        a->right = a->books.pending;
    a->total += o.wall_s;
    a->in_parallel++;
    return o;
}

/* A round of another kind; after the parallel schedule, one that verifies what is pending. */
static void serial_round(struct answer *a, struct policy *p, struct policy_choice c)
{
    bool tree = c.kind == POLICY_TREE, drain = a->books.pending > 0;
    int window = drain ? 0 : c.kind == POLICY_CHAIN ? c.window : tree ? 5 : 0;
    int rows = drain ? pearl_rows(&a->books) : tree ? 26 : window + 1;
    int n = drain ? a->right : accept(a->m, &a->r, window, tree);
    double draft = drain ? 0 : tree ? a->m->tree : window * a->m->token;
    double verify = verify_time(a->m, rows) * (1 + a->noise * (drawn(&a->r) - 0.5));
    policy_learn(p, c, rows, drain ? 0 : tree ? 25 : window, n, draft, verify);
    a->total += draft + verify;
    a->told += n + 1;
    pearl_begin(&a->books, 100, 99, 0);
    a->right = 0;
}

static void play_round(struct answer *a, struct policy *p, struct policy_choice c)
{
    if (c.kind == POLICY_PARALLEL) {
        struct policy_round o = parallel_round(a, c.window);
        policy_learn_parallel(p, &o);
    } else {
        serial_round(a, p, c);
    }
}

/* Tokens a second of `auto`, or with fixed > 0 of the parallel schedule with that window. */
static double tokens_a_second(struct answer *a, int tokens, uint64_t seed, int fixed)
{
    struct policy p;
    a->r.state = seed;
    a->total = 0;
    a->right = a->told = a->in_parallel = 0;
    pearl_begin(&a->books, 100, 99, 0);
    policy_open(&p, 26);
    policy_allow_parallel(&p, MAX_PARALLEL);
    while (a->told < tokens) {
        struct policy_choice c = { POLICY_PARALLEL, fixed };
        play_round(a, &p, fixed > 0 ? c : policy_next(&p));
    }
    return a->told / a->total;
}

static double best_parallel_rate(struct answer *a)
{
    double best = 0;
    for (int g = 1; g <= MAX_PARALLEL; g++) {
        double rate = tokens_a_second(a, 50000, 77, g);
        best = rate > best ? rate : best;
    }
    return best;
}

TEST(finds_whether_parallel_is_best)
{
    static const struct {
        struct machine m;
        double share;
        enum policy_kind best; /* PLAIN, PARALLEL, or CHAIN for any serial drafting */
    } cases[] = {
        { { 1.0, 0.02, 0.2, 2.0, 0.85 }, 0, POLICY_PARALLEL }, /* resources of their own */
        { { 1.0, 0.02, 0.11, 1.1, 0.9 }, 0, POLICY_PARALLEL },
        { { 1.0, 0.05, 0.5, 5.0, 0.8 }, 0, POLICY_PARALLEL },
        { { 1.0, 0.02, 0.2, 2.0, 0.85 }, 0.15, POLICY_PARALLEL },
        { { 1.0, 0.02, 0.2, 2.0, 0.85 }, 1, POLICY_CHAIN }, /* one machine for both */
        { { 1.0, 0.05, 0.1, 1.0, 0.8 }, 1, POLICY_CHAIN },
        { { 1.0, 0.05, 0.5, 5.0, 0.85 }, 1.2, POLICY_CHAIN },
        { { 1.0, 0.02, 0.2, 2.0, 0.85 }, 9, POLICY_CHAIN }, /* worse than one after the other */
        { { 1.0, 0.3, 0.3, 3.0, 0.02 }, 1, POLICY_PLAIN },  /* a useless drafter */
        { { 1.0, 0.3, 0.3, 3.0, 0.02 }, 0.3, POLICY_PLAIN },
        { { 1.0, 0.1, 0.9, 9.0, 0.3 }, 1, POLICY_PLAIN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer a = { .m = &cases[i].m, .share = cases[i].share, .noise = 0.2 };
        double serial = best_rate(&cases[i].m), both = best_parallel_rate(&a);
        double best = serial > both ? serial : both, mean = 0;
        for (int k = 0; k < ANSWERS; k++)
            mean += tokens_a_second(&a, 4000, test_seed + 1000 * (uint64_t)k, 0) / best / ANSWERS;
        CHECK_MSG(mean > 0.97, "machine %zu: %.3f of the best %.3f", i, mean, best);
        CHECK_EQ(both > serial, cases[i].best == POLICY_PARALLEL);
        CHECK_EQ(1 / cases[i].m.row1 >= best, cases[i].best == POLICY_PLAIN);
    }
}

TEST(parallel_only_where_there_is_one)
{
    static const struct machine m = { 1.0, 0.02, 0.3, 3.0, 0.85 };
    struct answer a = { .m = &m, .r = { test_seed } };
    struct policy p;
    pearl_begin(&a.books, 100, 99, 0);
    policy_open(&p, 26);
    CHECK_EQ(policy_rate(&p, (struct policy_choice){ POLICY_PARALLEL, 4 }), 0.0);
    while (a.told < 1000)
        play_round(&a, &p, policy_next(&p));
    CHECK_EQ(a.in_parallel, 0);
    policy_allow_parallel(&p, 3);
    for (int i = 0; i < 500; i++) {
        struct policy_choice c = policy_next(&p);
        CHECK(c.kind != POLICY_PARALLEL || (c.window >= 1 && c.window <= 3));
        play_round(&a, &p, c);
    }
    CHECK(a.in_parallel > 400);
    policy_allow_parallel(&p, 0);
    CHECK(policy_next(&p).kind != POLICY_PARALLEL);
}

/* Short answers: where plain decoding is best, trying the parallel schedule costs next to nothing;
 * where the two sides starve each other it is given up at once. */
TEST(trying_parallel_is_cheap)
{
    static const struct {
        struct machine m;
        double share, least; /* of plain decoding's rate */
    } cases[] = {
        { { 1.0, 0.3, 0.3, 3.0, 0.02 }, 1, 0.97 },
        { { 1.0, 1.0, 0.1, 1.0, 0.5 }, 1, 0.97 },
        { { 1.0, 0.1, 0.9, 9.0, 0.3 }, 9, 0.97 },
        { { 1.0, 0.02, 0.2, 2.0, 0.85 }, 9, 1.5 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer a = { .m = &cases[i].m, .share = cases[i].share, .noise = 0.2 };
        double mean = 0;
        for (int k = 0; k < ANSWERS; k++)
            mean += tokens_a_second(&a, 1000, test_seed + 1000 * (uint64_t)k, 0) / ANSWERS;
        CHECK_MSG(mean > cases[i].least, "machine %zu: %.3f of plain decoding", i, mean);
    }
}

/* A drafter that makes nothing beside the target, though it does alone. */
TEST(leaves_a_parallel_drafter_that_makes_nothing)
{
    static const struct machine m = { 1.0, 0.02, 0.2, 2.0, 0.85 };
    struct answer a = { .m = &m, .r = { test_seed } };
    struct policy p;
    int in_vain = 0;
    policy_open(&p, 26);
    policy_allow_parallel(&p, MAX_PARALLEL);
    for (int i = 0; i < 500; i++) {
        struct policy_choice c = policy_next(&p);
        pearl_begin(&a.books, 100, 99, 0);
        if (c.kind == POLICY_PARALLEL) {
            policy_learn_parallel(&p, &(struct policy_round){ 1, 0, 0, 0, 0, 1.0, 1.0 });
            in_vain++;
        } else {
            serial_round(&a, &p, c);
        }
    }
    CHECK_MSG(in_vain > 0 && in_vain < 30, "%d rounds of 500", in_vain);
}

/* Somebody else's work comes to the machine, and goes again. */
TEST(follows_a_change_of_the_machine)
{
    static const struct machine m = { 1.0, 0.02, 0.2, 2.0, 0.85 };
    static const double shares[] = { 0, 1, 0 };
    struct answer a = { .m = &m, .noise = 0.2, .r = { test_seed } };
    struct policy p;
    pearl_begin(&a.books, 100, 99, 0);
    policy_open(&p, 26);
    policy_allow_parallel(&p, MAX_PARALLEL);
    for (int part = 0; part < 6; part++) { /* two for each share: to learn, and to have learnt */
        struct answer begin = a;
        a.share = shares[part / 2];
        while (a.told < begin.told + 4000)
            play_round(&a, &p, policy_next(&p));
        if (part % 2 == 1) {
            int rounds = a.in_parallel - begin.in_parallel;
            double rate = (a.told - begin.told) / (a.total - begin.total);
            double best = part == 3 ? best_rate(&m) : 2.4;
            CHECK_MSG(rate > 0.9 * best, "part %d: %.2f of %.2f", part, rate, best);
            CHECK_MSG(part == 3 ? rounds < 50 : rounds > 1000, "part %d: %d rounds", part, rounds);
        }
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
