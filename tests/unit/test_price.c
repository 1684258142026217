/* Prices on machines that exist only here: the line of a pass's time is found again, and trees that
 * follow the prices bring nearly as much as the best fixed shape there, known in advance. */
#include "spec/price.h"

#include "fake_drafter.h"

/* Seconds of a pass: base + row * rows, of blocks of so many rows. */
struct machine {
    const char *name;
    double base, row, level, level_row;
    int block;
    double least; /* of the best rate */
};

static double pass_time(const struct machine *m, int rows)
{
    int n = m->block > 1 ? (rows + m->block - 1) / m->block * m->block : rows;
    return m->base + m->row * n;
}

static double draft_time(const struct machine *m, int steps, int rows)
{
    return m->level * steps + m->level_row * (rows - steps);
}

static double drawn(struct rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

static bool is_sane(const struct price *p)
{
    return p->row >= 0 && p->level >= 0 && p->level_row >= 0 && p->next >= 0 && p->next <= 1 &&
           p->trust > 0 && p->trust <= 2 && isfinite(p->row) && isfinite(p->level) &&
           isfinite(p->level_row);
}

/* ---- the book ---- */

/* A chain of n tokens of which `right` are accepted. */
static void learn_chain(struct price_book *b, int n, int right, float score, double draft_s,
                        double verify_s)
{
    float scores[TREE_MAX] = { 0 };
    struct verdict v = { .n = right + 1 };
    struct price paid;
    struct tree t;
    tree_begin(&t, 0);
    for (int i = 0; i < n; i++) {
        tree_add(&t, i, 7);
        scores[i + 1] = score * (float)(i + 1);
    }
    for (int i = 0; i <= right; i++)
        v.path[i] = i;
    paid = price_now(b);
    price_learn(b, &t, scores, &v, n > 0 || draft_s > 0 ? &paid : NULL, draft_s, verify_s);
}

TEST(before_anything_is_measured)
{
    struct price_book b = { 0 };
    struct price p = price_now(&b);
    CHECK(is_sane(&p));
    CHECK(p.row > 0 && p.row < 0.5 && p.level > 0 && p.level < 0.5); /* a tree is tried */
    CHECK(p.next > 0.5 && p.trust == 1);
}

/* Times that a coarse clock may show, outcomes of every kind, scores that are no numbers. */
TEST(prices_are_always_numbers)
{
    static const double times[] = { 0, 1e-300, 1e-9, 1e-3, 1, 1e9 };
    static const float scores[] = { 0, -0.1f, -40, -INFINITY, NAN, INFINITY };
    struct rng r = { test_seed };
    for (int i = 0; i < 300; i++) {
        struct price_book b = { 0 };
        for (int k = 0; k < 40; k++) {
            int n = (int)(rng_next(&r) % 17), right = (int)(rng_next(&r) % (uint64_t)(n + 1));
            struct price p;
            learn_chain(&b, n, right, scores[i < 150 ? rng_next(&r) % 6 : (uint64_t)i % 6],
                        times[i % 2 ? rng_next(&r) % 6 : (uint64_t)i / 2 % 6],
                        times[i % 2 ? rng_next(&r) % 6 : (uint64_t)i / 3 % 6]);
            p = price_now(&b);
            if (!CHECK_MSG(is_sane(&p), "row %g level %g next %g trust %g", p.row, p.level, p.next,
                           p.trust))
                return;
        }
    }
}

/* A clock that said 0 at first is believed when it says more. */
TEST(times_of_nothing_are_forgotten)
{
    struct price_book b = { 0 };
    struct price p;
    for (int i = 0; i < 5; i++)
        learn_chain(&b, 4, 2, -0.3f, 0, 0);
    for (int i = 0; i < 300; i++)
        learn_chain(&b, 1 + i % 8, 1, -0.3f, 0.2 * (1 + i % 8), 1 + 0.1 * (2 + i % 8));
    p = price_now(&b);
    CHECK_MSG(fabs(b.draft_s / b.levels - 0.2) < 0.01, "a level of %g", b.draft_s / b.levels);
    CHECK_MSG(fabs(p.row / p.level - 0.5) < 0.05, "a row of %g, a level of %g", p.row, p.level);
}

/* With noise and now and then a pause, the line is found: its prices are those of its true slope.
 */
TEST(the_line_is_found)
{
    static const double slopes[] = { 0, 0.005, 0.02, 0.1, 0.5, 2 };
    for (size_t k = 0; k < sizeof slopes / sizeof *slopes; k++) {
        struct price_book b = { 0 };
        struct rng r = { test_seed + k };
        double mean = 0, level = 0, clean_tokens = 0, clean_s = 0;
        for (int i = 0; i < 600; i++) {
            int n = 1 + (int)(rng_next(&r) % 16), right = (int)(rng_next(&r) % 4);
            double noise = 1 + 0.1 * (drawn(&r) - 0.5), pass = 1 + slopes[k] * (n + 1);
            double pause = rng_next(&r) % 50 == 0 ? 1000 : 1;
            struct price p;
            right = right < n ? right : n;
            learn_chain(&b, n, right, -0.3f, 0.1 * n * noise, pass * noise * pause);
            clean_tokens = 0.96 * clean_tokens + right + 1;
            clean_s = 0.96 * clean_s + 0.1 * n + pass;
            p = price_now(&b);
            if (i >= 100) {
                mean += p.row * clean_s / clean_tokens / 500;
                level += p.level * clean_s / clean_tokens / 500;
            }
        }
        /* A pause counts three times, so prices are a little off. */
        CHECK_MSG(fabs(mean - slopes[k]) < 0.1 * slopes[k] + 0.01, "%g for %g", mean, slopes[k]);
        CHECK_MSG(fabs(level - 0.1) < 0.015, "%g for a level of 0.1", level);
    }
}

/* The same trees on machines with cheap rows and with dear ones. */
TEST(cheap_rows_have_a_small_price)
{
    static const double rows[] = { 0, 0.01, 0.05, 0.2, 1 };
    double before = -1;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct price_book b = { 0 };
        struct price p;
        for (int i = 0; i < 60; i++)
            learn_chain(&b, 2 + i % 5, 2, -0.2f, 0.1, 1 + rows[k] * (3 + i % 5));
        p = price_now(&b);
        CHECK_MSG(p.row > before, "%g after %g", p.row, before);
        before = p.row;
        CHECK(k > 0 || p.row < 0.05);
        CHECK(k < 4 || p.row > 0.3);
    }
}

/* One row number alone says nothing about the line: the guess holds it, between nothing and all. */
TEST(one_number_of_rows)
{
    struct price_book b = { 0 };
    struct price p;
    for (int i = 0; i < 100; i++)
        learn_chain(&b, 7, 3, -0.2f, 0.1, 2);
    p = price_now(&b);
    CHECK_MSG(p.row * 2.1 / 4 > 0.05 && p.row * 2.1 / 4 < 0.2, "a row of %g", p.row * 2.1 / 4);
}

TEST(trust_and_next_follow_what_came_true)
{
    struct price_book b = { 0 };
    struct price p;
    for (int i = 0; i < 200; i++)
        learn_chain(&b, 4, 0, -0.05f, 0.1, 1); /* sure and wrong */
    p = price_now(&b);
    CHECK_MSG(p.trust < 0.15 && p.next < 0.3, "trust %g, next %g", p.trust, p.next);
    for (int i = 0; i < 200; i++)
        learn_chain(&b, 4, 4, -0.05f, 0.1, 1); /* right to the end: no token was wrong */
    p = price_now(&b);
    CHECK_MSG(p.trust > 0.95 && p.next > 0.9, "trust %g, next %g", p.trust, p.next);
    for (int i = 0; i < 200; i++)
        learn_chain(&b, 4, 3, -0.5f, 0.1, 1); /* better than it says */
    p = price_now(&b);
    CHECK_MSG(p.trust > 1.2 && p.next < 0.85, "trust %g, next %g", p.trust, p.next);
    for (int i = 0; i < 400; i++)
        learn_chain(&b, 0, 0, 0, 0, 1); /* not asked for long: hope comes back, and no more */
    p = price_now(&b);
    CHECK_MSG(fabs(p.trust - 1) < 0.01 && fabs(p.next - 0.8) < 0.01, "trust %g, next %g", p.trust,
              p.next);
    CHECK(is_sane(&p) && fabs(p.level - 0.025) < 1e-3);
}

/* Beside others a second costs what all of them lose by it, whatever this answer's own times were;
 * what is not known stays. */
TEST(shared_steps_cost_what_all_lose)
{
    struct price_book b = { 0 };
    struct price own, p;
    for (int i = 0; i < 50; i++)
        learn_chain(&b, 4, 2, -0.2f, 0.1, 1);
    own = price_now(&b);
    p = price_shared(&b, 0.002, 0.0005, 150);
    CHECK(fabs(p.row - 0.3) < 1e-9 && fabs(p.level - 0.075) < 1e-9);
    CHECK(p.next == own.next && p.trust == own.trust && p.level_row < p.level);
    p = price_shared(&b, 0.002, 0, 150);
    CHECK(fabs(p.row - 0.3) < 1e-9 && p.level == own.level);
    p = price_shared(&b, 0, 0, 0);
    CHECK(p.row == own.row && p.level == own.level && p.level_row == own.level_row);
}

/* ---- trees that follow the prices ---- */

enum { TOKENS = 1000, N_CHAINS = 12, N_FIXED = N_CHAINS + 4 };

/* What a fixed shape did: machines differ only in what that takes. */
struct played {
    int rounds, tokens, rows[TREE_MAX + 1]; /* rounds by rows */
    int steps, drafted;
};

static void fixed_shape(struct shape *s, int i)
{
    static const int trees[][3] = { { 30, 3, 8 }, { 60, 7, 10 }, { 16, 7, 2 }, { 12, 3, 4 } };
    const int *x = trees[i < N_CHAINS ? 0 : i - N_CHAINS];
    if (i < N_CHAINS) /* a chain: one node of each level */
        shape_dynamic(s, i + 2, i, 1, NULL);
    else
        shape_dynamic(s, x[0], x[1], x[2], NULL);
}

static void play_fixed(struct invented d, int i, struct played *out)
{
    struct shape s;
    fixed_shape(&s, i);
    *out = (struct played){ 0 };
    while (out->tokens < TOKENS) {
        struct tree t;
        struct verdict v;
        invented_grow(&d, &s, NULL, 32, 500, &t, NULL);
        invented_judge(&d, &t, &v);
        out->tokens += v.n;
        out->rounds++;
        out->rows[t.n]++;
        out->steps += d.steps;
        out->drafted += d.rows;
    }
}

static double rate_of(const struct played *p, const struct machine *m)
{
    double s = draft_time(m, p->steps, p->drafted);
    for (int n = 1; n <= TREE_MAX; n++)
        s += p->rows[n] * pass_time(m, n);
    return p->tokens / s;
}

/* What is measured is not what a pass takes. */
enum trouble {
    NO_TROUBLE,
    NOISE,     /* and now and then a long pause */
    COLD,      /* the first passes are slow */
    RECORDING, /* the first of each number of rows are: they are made ready to be played again */
    N_TROUBLES
};

static double measured(enum trouble what, struct rng *r, int round, int seen)
{
    switch (what) {
    case NOISE:
        return (1 + 0.2 * (drawn(r) - 0.5)) * (rng_next(r) % 40 == 0 ? 20 : 1);
    case COLD:
        return round < 2 ? 15 : 1;
    case RECORDING:
        return seen == 0 ? 2 : seen == 1 ? 4 : 1;
    default:
        return 1;
    }
}

/* Tokens a second of fitted trees, from the first round on, without what troubles the clock. */
static double play_fitted(struct invented d, const struct machine *m, enum trouble what,
                          double *rows)
{
    struct price_book b = { 0 };
    struct rng r = { test_seed };
    struct shape s;
    double total = 0;
    int tokens = 0, rounds = 0, seen[TREE_MAX + 1] = { 0 };
    shape_fitted(&s, 60, 15, 8, NULL); /* room for nearly all of the fixed ones */
    *rows = 0;
    while (tokens < TOKENS) {
        struct price p = price_now(&b);
        double verify, draft, factor;
        float scores[TREE_MAX] = { 0 };
        struct tree t;
        struct verdict v;
        bool drafts = price_pays(&b);
        if (drafts)
            invented_grow(&d, &s, &p, 32, 500, &t, scores);
        else
            tree_begin(&t, 0);
        invented_judge(&d, &t, &v);
        draft = drafts ? draft_time(m, d.steps, d.rows) : 0;
        verify = pass_time(m, t.n);
        total += draft + verify;
        factor = measured(what, &r, rounds, seen[t.n]++);
        price_learn(&b, &t, scores, &v, drafts ? &p : NULL, draft * factor, verify * factor);
        tokens += v.n;
        *rows += t.n;
        rounds++;
    }
    *rows /= rounds;
    return tokens / total;
}

static const struct machine machines[] = {
    { "rows for nothing", 1, 0, 0.02, 0, 1, 0.95 },
    { "cheap rows", 1, 0.01, 0.05, 0.005, 1, 0.95 },
    { "rows in blocks of 8", 1, 0.03, 0.05, 0.005, 8, 0.95 },
    { "a middling machine", 1, 0.06, 0.06, 0.01, 1, 0.95 },
    { "dear rows", 0.9, 0.2, 0.05, 0.01, 1, 0.95 },
    { "a slow drafter", 1, 0.05, 0.4, 0.05, 1, 0.95 },
    /* Plain decoding is best: now and then drafts are tried. */
    { "rows as dear as a pass", 0, 1, 0.03, 0.02, 1, 0.85 },
};

static const struct invented drafters[] = {
    { .sure = 0.9, .honest = 1 },
    { .sure = 0.8, .honest = 0.8 }, /* says too much */
    { .sure = 0.1, .honest = 0.9 },
    { .sure = 0.9, .honest = 0.02 }, /* sure and wrong: plain decoding is best nearly everywhere */
};

/* Of the best rate; what is measured wrongly at first is believed for a while. */
static const double tolerable[N_TROUBLES] = { 0.95, 0.95, 0.9, 0.7 };

TEST(fitted_trees_find_what_is_best)
{
    for (size_t k = 0; k < sizeof drafters / sizeof *drafters; k++) {
        static struct played fixed[N_FIXED];
        struct invented d = drafters[k];
        d.seed = test_seed + k;
        for (int i = 0; i < N_FIXED; i++)
            play_fixed(d, i, &fixed[i]);
        for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
            const struct machine *m = &machines[i];
            double best = 1 / pass_time(m, 1), rows;
            for (int n = 0; n < N_FIXED; n++)
                best = fmax(best, rate_of(&fixed[n], m));
            for (int what = NO_TROUBLE; what < N_TROUBLES; what++) {
                double rate = play_fitted(d, m, (enum trouble)what, &rows);
                CHECK_MSG(rate > fmin(m->least, tolerable[what]) * best,
                          "drafter %zu, %s, trouble %d: %.3f of the best, %.1f rows", k, m->name,
                          what, rate / best, rows);
            }
        }
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
