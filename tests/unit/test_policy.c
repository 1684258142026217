/* `auto` on machines that exist only here: it must find what is best there, and never lose more
 * than a little to plain decoding. */
#include "base/rng.h"
#include "spec/policy.h"
#include "test.h"

/* Times of a machine, and how often a drafted token is right. */
struct machine {
    double row1, row, token, tree, right;
};

static double verify_time(const struct machine *m, int rows)
{
    return m->row1 + m->row * (rows - 1);
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
        double rate = 4000 / seconds_for(&machines[i], 4000, 5 + i, 0.2);
        CHECK_MSG(rate > 0.9 * best_rate(&machines[i]), "machine %zu: %.2f of the best %.2f", i,
                  rate, best_rate(&machines[i]));
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

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
