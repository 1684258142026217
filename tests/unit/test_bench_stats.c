/* Statistics of a benchmark on invented figures whose answers are known. */
#include "bench_stats.h"

#include "base/rng.h"
#include "test.h"

#include <math.h>

static bool near(double a, double b, double within)
{
    return fabs(a - b) <= within;
}

static double accepted(const struct figures *mine, const struct figures *plain)
{
    (void)plain;
    return accepted_per_pass(mine);
}

/* A clip of 10 rounds that accepted `n` tokens in all. */
static struct figures clip_of(double n)
{
    struct figures f = { { 0 } };
    f.v[FIG_ROUNDS] = 10;
    f.v[FIG_ACCEPTED] = n;
    return f;
}

TEST(equal_clips_leave_no_doubt)
{
    struct bench_stats s = { 0 };
    struct interval i;
    struct figures cells[2] = { clip_of(0), clip_of(42) };

    for (int c = 0; c < 30; c++)
        CHECK(stats_add(&s, cells, 2));
    CHECK(stats_interval(&s, 1, accepted, &i));
    CHECK_MSG(i.value == 4.2 && i.low == i.high && near(i.low, 4.2, 1e-12), "%g (%g to %g)",
              i.value, i.low, i.high);
    stats_clear(&s);
}

/* Noise of deviation 10 tokens in 10 rounds on 100 clips: the mean's deviation is 0.1, so the
 * interval is about 0.39 wide and holds the true mean. */
TEST(interval_has_the_width_of_the_noise)
{
    struct bench_stats s = { 0 };
    struct rng rng = { .state = 7 };
    struct interval i;

    for (int c = 0; c < 100; c++) {
        struct figures cells[2] = { clip_of(0), clip_of(30 + 10 * (double)rng_normal(&rng)) };
        CHECK(stats_add(&s, cells, 2));
    }
    CHECK(stats_interval(&s, 1, accepted, &i));
    CHECK_MSG(i.low < i.value && i.value < i.high, "%g is outside of %g to %g", i.value, i.low,
              i.high);
    CHECK_MSG(i.high - i.low > 0.3 && i.high - i.low < 0.5, "%g to %g", i.low, i.high);
    CHECK_MSG(i.low < 3 && i.high > 3, "%g to %g", i.low, i.high);
    stats_clear(&s);
}

/* Two methods that share the noise of the clips and differ by half a token: each alone is in
 * doubt by more than that, their difference by nothing. */
TEST(differences_are_paired)
{
    struct bench_stats s = { 0 };
    struct rng rng = { .state = 3 };
    struct interval one, other;

    for (int c = 0; c < 50; c++) {
        double n = 30 + 20 * (double)rng_normal(&rng);
        struct figures cells[3] = { clip_of(0), clip_of(n), clip_of(n + 5) };
        CHECK(stats_add(&s, cells, 3));
    }
    CHECK(stats_interval(&s, 1, accepted, &one));
    CHECK_MSG(one.high - one.low > 0.5, "%g to %g", one.low, one.high);
    CHECK(stats_difference(&s, 2, 1, accepted, &other));
    CHECK_MSG(near(other.value, 0.5, 1e-9) && near(other.low, 0.5, 1e-9) &&
                  near(other.high, 0.5, 1e-9),
              "%g (%g to %g)", other.value, other.low, other.high);
    stats_clear(&s);
}

TEST(long_answers_weigh_more)
{
    struct bench_stats s = { 0 };
    struct figures plain = { { 0 } }, brief = { { 0 } }, full = { { 0 } };
    struct interval i;

    brief.v[FIG_ROUNDS] = 1;
    full.v[FIG_ROUNDS] = 9;
    full.v[FIG_ACCEPTED] = 45;
    CHECK(stats_add(&s, (struct figures[]){ plain, brief }, 2));
    CHECK(stats_add(&s, (struct figures[]){ plain, full }, 2));
    CHECK(stats_interval(&s, 1, accepted, &i));
    CHECK_MSG(near(i.value, 4.5, 1e-12), "%g", i.value);
    CHECK_MSG(i.low == 0 && i.high == 5, "%g to %g", i.low, i.high);
    stats_clear(&s);
}

TEST(rounds_are_told_by_number_and_place)
{
    static const int accepted_by_round[] = { 5, 0, 2, 2 }; /* tokens 1-6, 7, 8-10, 11-13 */
    struct acceptance_profile p = { { 0 } };

    profile_add(&p, accepted_by_round, 4);
    profile_add(&p, accepted_by_round, 2);
    CHECK_MSG(p.round_sum[0] == 10 && p.round_n[0] == 2 && p.round_n[2] == 1 && p.round_n[4] == 0,
              "first %g of %g", p.round_sum[0], p.round_n[0]);
    /* Of 14 tokens the rounds begin behind 1, 7, 8 and 11; of 8 behind 1 and 7. */
    CHECK_MSG(p.part_sum[0] == 5 && p.part_sum[5] == 2 && p.part_n[5] == 2 && p.part_sum[7] == 2 &&
                  p.part_sum[1] == 5 && p.part_n[8] == 1 && p.part_sum[8] == 0,
              "parts: %g %g %g %g", p.part_sum[0], p.part_sum[1], p.part_sum[5], p.part_sum[7]);
}

/* Sums whose prediction can be worked out by hand: T_p 10 ms, T_q 1 ms, 100 rounds of 4 tokens. */
static struct figures drafted(double right)
{
    struct figures f = { { 0 } };
    f.v[FIG_ROUNDS] = 100;
    f.v[FIG_PROPOSED] = f.v[FIG_DRAFT_ROWS] = 400;
    f.v[FIG_DRAFT_S] = 0.4;
    f.v[FIG_VERIFY_S] = 1.2;
    f.v[FIG_ACCEPTED] = right;
    f.v[FIG_REJECTIONS] = right < 400 ? right : 0; /* acceptance 1/2, or 1 */
    return f;
}

TEST(closed_forms_predict)
{
    struct figures plain = { { 0 } }, half = drafted(90), all = drafted(400);
    double chain, parallel, tree;

    plain.v[FIG_DECODED] = 100;
    plain.v[FIG_DECODE_S] = 1;
    CHECK_MSG(near(step_ratio(&half, &plain), 10, 1e-9), "c is %g", step_ratio(&half, &plain));
    /* (1 - 1/32) / (1/2) = 1.9375 tokens in 16 ms against 10 ms each */
    chain = predicted_speedup(ROUND_CHAIN, &half, &plain);
    CHECK_MSG(near(chain, 1.9375 * 10 / 16, 1e-9), "%g", chain);
    /* (1 - 1/16) / (1/2 (3/2 - 1/16)) = 1.304 tokens in max(4, 12) ms */
    parallel = predicted_speedup(ROUND_PARALLEL, &half, &plain);
    CHECK_MSG(near(parallel, 0.9375 / (0.5 * 1.4375) * 10 / 12, 1e-9), "%g", parallel);
    tree = predicted_speedup(ROUND_TREE, &half, &plain);
    CHECK_MSG(near(tree, 1.9 * 10 / 16, 1e-9), "%g", tree);
    chain = predicted_speedup(ROUND_CHAIN, &all, &plain);
    CHECK_MSG(near(chain, 5.0 * 10 / 16, 1e-3), "%g", chain);
    CHECK_MSG(predicted_speedup(ROUND_CHAIN, &plain, &plain) == 0, "plain decoding drafts nothing");
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
