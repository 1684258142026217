/* The noise of sampling: fixed for ever, uniform, and with every input bit reaching every output
 * bit. All inputs are fixed, so a bound of five or six standard deviations never fails by luck. */
#include "base/rng.h"
#include "test.h"

#include <math.h>

/* These numbers decide the text a seed gives. If this fails, the hash changed: change it back. */
TEST(values_are_fixed)
{
    CHECK_MSG(rng_bits(0, 0, 0) == 0x88cdd9fcdbf32862u, "%016llx",
              (unsigned long long)rng_bits(0, 0, 0));
    CHECK_MSG(rng_bits(1, 2, 3) == 0x1a3ed09cc981dce9u, "%016llx",
              (unsigned long long)rng_bits(1, 2, 3));
    CHECK_MSG(rng_bits(UINT64_MAX, 40000, 151935) == 0xd115afdbdfd832f0u, "%016llx",
              (unsigned long long)rng_bits(UINT64_MAX, 40000, 151935));
}

static uint64_t flip(int input, int b, uint64_t seed, uint64_t position, uint64_t index)
{
    uint64_t m = (uint64_t)1 << b;
    return rng_bits(seed ^ (input == 0 ? m : 0), position ^ (input == 1 ? m : 0),
                    index ^ (input == 2 ? m : 0));
}

/* Flip each bit of each coordinate: each output bit must change half of the time. The inputs are
 * small counters, as in use, not random words. */
TEST(avalanche)
{
    enum { TRIALS = 1024 };
    double worst = 0;
    for (int input = 0; input < 3; input++) {
        for (int b = 0; b < 64; b++) {
            int changed[64] = { 0 };
            for (uint64_t t = 0; t < TRIALS; t++) {
                uint64_t d =
                    flip(input, b, t % 4, t / 4 % 16, t / 64) ^ rng_bits(t % 4, t / 4 % 16, t / 64);
                for (int o = 0; o < 64; o++)
                    changed[o] += (int)(d >> o & 1);
            }
            for (int o = 0; o < 64; o++) {
                /* Standard deviations from one half; 12288 counters, so 6 is generous. */
                double z = fabs(changed[o] - TRIALS / 2.0) / sqrt(TRIALS / 4.0);
                worst = z > worst ? z : worst;
            }
        }
    }
    CHECK_MSG(worst < 6, "an output bit is %.1f deviations from even", worst);
}

/* Chi-square of 256 cells along each coordinate; the mean is 255, the deviation 22.6. */
TEST(uniform_along_each_coordinate)
{
    enum { CELLS = 256, N = 1 << 16 };
    for (int input = 0; input < 3; input++) {
        int count[CELLS] = { 0 };
        double chi = 0;
        for (uint64_t i = 0; i < N; i++) {
            double u = rng_uniform(input == 0 ? i : 7, input == 1 ? i : 9, input == 2 ? i : 11);
            CHECK(u > 0 && u < 1);
            count[(int)(u * CELLS)]++;
        }
        for (int c = 0; c < CELLS; c++) {
            double d = count[c] - (double)N / CELLS;
            chi += d * d / ((double)N / CELLS);
        }
        CHECK_MSG(chi > 255 - 5 * 22.6 && chi < 255 + 5 * 22.6, "coordinate %d: chi-square %.1f",
                  input, chi);
    }
}

/* Values at neighbouring coordinates must not be correlated: Gumbel noise of two positions or two
 * ids that moved together would bias the text. */
TEST(neighbours_are_independent)
{
    enum { N = 1 << 16 };
    for (int input = 0; input < 3; input++) {
        double sum = 0;
        for (uint64_t i = 0; i < N; i++) {
            double a = rng_uniform(5, i, 17) - 0.5;
            double b = rng_uniform(5 + (input == 0), i + (input == 1), 17 + (input == 2)) - 0.5;
            sum += a * b;
        }
        /* The variance of a product of two uniforms is 1/144. */
        CHECK_MSG(fabs(sum) < 5 * sqrt(N / 144.0), "coordinate %d: correlation sum %.2f", input,
                  sum);
    }
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* 64-bit values of 40000 triples: a collision by luck has probability below 1e-10. */
TEST(no_collisions_on_a_grid)
{
    enum { N = 40000 };
    uint64_t *all = malloc(N * sizeof *all);
    if (!CHECK(all))
        return;
    for (uint64_t i = 0; i < N; i++)
        all[i] = rng_bits(i % 20, i / 20 % 40, i / 800);
    qsort(all, N, sizeof *all, compare_u64);
    for (int i = 1; i < N; i++)
        CHECK(all[i] != all[i - 1]);
    free(all);
}

TEST(sequential_floats)
{
    enum { N = 1 << 16 };
    struct rng r = { test_seed }, again = { test_seed };
    double sum = 0, sq = 0;
    for (int i = 0; i < N; i++) {
        float x = rng_float(&r);
        CHECK(x >= -1 && x < 1);
        CHECK(x == rng_float(&again));
        sum += x;
        sq += (double)x * x;
    }
    CHECK_MSG(fabs(sum / N) < 0.02, "mean %g", sum / N);
    CHECK_MSG(fabs(sq / N - 1.0 / 3) < 0.02, "mean square %g", sq / N);
}

TEST(sequential_normals)
{
    enum { N = 1 << 16 };
    struct rng r = { test_seed };
    double sum = 0, sq = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        double x = rng_normal(&r);
        CHECK(isfinite(x));
        sum += x;
        sq += x * x;
        fourth += x * x * x * x;
    }
    CHECK_MSG(fabs(sum / N) < 0.03, "mean %g", sum / N);
    CHECK_MSG(fabs(sq / N - 1) < 0.04, "variance %g", sq / N);
    CHECK_MSG(fabs(fourth / N - 3) < 0.3, "fourth moment %g", fourth / N);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
