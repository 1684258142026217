/* Sampling against a plain reference: sort everything, cut, add the same noise, take the largest.
 * Then what no reference can say: the drawn tokens follow the distribution, and depend on nothing
 * but the logits, the seed and the position. */
#include "lm/sampling.h"

#include "base/rng.h"
#include "test.h"

#include <math.h>

enum { MAX_N = 4096 };

static struct candidate scratch[MAX_N];

static const struct sampling plain = { .temperature = 1, .top_p = 1 };

static int32_t draw(const float *logits, int n, struct sampling s, uint64_t position)
{
    memset(scratch, 0xee, sizeof scratch); /* what it held before has no part in it */
    return sample_token(logits, n, &s, position, scratch);
}

/* ---- the reference ---- */

static int by_logit_then_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

static double share(const struct candidate *c, double top, double temperature)
{
    return exp((c->logit - top) / temperature);
}

/* The candidates that survive, best first. NaN is no candidate. */
static int survivors(struct candidate *out, const float *logits, int n, const struct sampling *s)
{
    int m = 0, kept = 0;
    double total = 0, sum = 0, top;
    for (int i = 0; i < n; i++)
        if (logits[i] == logits[i])
            out[m++] = (struct candidate){ logits[i], i };
    qsort(out, (size_t)m, sizeof *out, by_logit_then_id);
    top = out[0].logit;
    if (s->top_k > 0 && s->top_k < m)
        m = s->top_k;
    for (int i = 0; i < m; i++)
        total += share(&out[i], top, s->temperature);
    for (kept = 0; kept < m && (kept == 0 || s->top_p >= 1 || sum < s->top_p * total); kept++)
        sum += share(&out[kept], top, s->temperature);
    m = kept;
    for (kept = 0; kept < m && share(&out[kept], top, s->temperature) >= s->min_p; kept++)
        ;
    return kept;
}

static int32_t reference(const float *logits, int n, const struct sampling *s, uint64_t position)
{
    static struct candidate c[MAX_N];
    int m = survivors(c, logits, n, s), best = 0;
    double most = -INFINITY;
    if (s->temperature == 0)
        return c[0].id;
    for (int i = 0; i < m; i++) {
        double u = rng_uniform(s->seed, position, (uint64_t)c[i].id);
        double score = (double)c[i].logit / s->temperature - log(-log(u));
        if (score > most || (score == most && c[i].id < c[best].id)) {
            most = score;
            best = i;
        }
    }
    return c[best].id;
}

/* ---- logits of many kinds ---- */

enum { KINDS = 7 };

static void make_logits(float *x, int n, int kind, struct rng *r)
{
    for (int i = 0; i < n; i++) {
        float g = rng_normal(r);
        switch (kind) {
        case 0: /* as a model's */
            x[i] = 3 * g;
            break;
        case 1: /* many ties */
            x[i] = rintf(2 * g);
            break;
        case 2: /* all equal */
            x[i] = -4.25f;
            break;
        case 3: /* most ruled out */
            x[i] = rng_next(r) % 4 ? -INFINITY : g;
            break;
        case 4: /* far apart: one candidate after the other only */
            x[i] = 1e4f * g;
            break;
        case 5: /* one stands out */
            x[i] = i == n / 2 ? 20 : g;
            break;
        default: /* nearly flat, at a large offset */
            x[i] = 300 + 0.01f * g;
        }
    }
    if (kind == 3)
        x[rng_next(r) % (uint64_t)n] = 0.5f; /* never all of them */
}

TEST(tokens_equal_the_reference)
{
    static const int sizes[] = { 1, 2, 7, 64, 1000, MAX_N };
    static const int ks[] = { 0, 1, 2, 20, 1000, 100000 };
    static const float ps[] = { 1, 0.999f, 0.9f, 0.5f, 0.01f };
    static const float mins[] = { 0, 0.05f, 1 };
    static const float temperatures[] = { 0.05f, 0.7f, 1, 3, 1000 };
    static float x[MAX_N];
    struct rng r = { test_seed };
    for (int round = 0; round < 4000; round++) {
        int n = sizes[rng_next(&r) % 6], kind = round % KINDS;
        struct sampling s = { .temperature = temperatures[rng_next(&r) % 5],
                              .top_k = ks[rng_next(&r) % 6],
                              .top_p = ps[rng_next(&r) % 5],
                              .min_p = mins[rng_next(&r) % 3],
                              .seed = rng_next(&r) };
        uint64_t position = rng_next(&r) % 100000;
        make_logits(x, n, kind, &r);
        int32_t got = draw(x, n, s, position), want = reference(x, n, &s, position);
        if (!CHECK_MSG(got == want,
                       "kind %d, n %d, T %g, k %d, p %g, min-p %g: %d (%g), the reference has %d "
                       "(%g)",
                       kind, n, (double)s.temperature, s.top_k, (double)s.top_p, (double)s.min_p,
                       (int)got, (double)x[got], (int)want, (double)x[want]))
            return;
    }
}

/* Which ids can come out at all: with the noise of thousands of positions every survivor of a few
 * near-equal candidates shows itself, and nobody else does. */
static void check_support(const float *logits, int n, struct sampling s, const char *what)
{
    struct candidate keep[64];
    bool seen[64] = { false };
    int m = survivors(keep, logits, n, &s), count = 0;
    for (uint64_t position = 0; position < 6000; position++)
        seen[draw(logits, n, s, position)] = true;
    for (int i = 0; i < n; i++)
        count += seen[i];
    CHECK_MSG(count == m, "%s: %d ids came out, %d should", what, count, m);
    for (int i = 0; i < m; i++)
        CHECK_MSG(seen[keep[i].id], "%s: id %d never came out", what, (int)keep[i].id);
}

TEST(exactly_the_survivors_come_out)
{
    static const float steps[] = { 1, 0.75f, 0.5f, 0.5f, 0.5f, 0.25f, 0, -0.25f, -0.25f, -0.5f };
    static const float equal[10] = { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 };
    static const float masked[] = { -INFINITY, 1, -INFINITY, 1, 0, NAN, 0.5f, 1, -INFINITY, 0 };
    const float *const all[] = { steps, equal, masked };
    for (int i = 0; i < 3; i++) {
        struct sampling s = plain;
        char what[32];
        snprintf(what, sizeof what, "logits %d", i);
        if (i != 2) /* the reference counts ids of probability 0 as survivors */
            check_support(all[i], 10, s, what);
        for (s.top_k = 2; s.top_k <= 5; s.top_k++)
            check_support(all[i], 10, s, what);
        s.top_k = 0;
        for (s.top_p = 0.1f; s.top_p < 0.95f; s.top_p += 0.1f)
            check_support(all[i], 10, s, what);
        s.top_k = 6;
        s.top_p = 0.6f;
        check_support(all[i], 10, s, what);
        s = plain;
        for (s.min_p = 0.3f; s.min_p < 1; s.min_p += 0.15f)
            check_support(all[i], 10, s, what);
        s.min_p = 0.4f;
        s.top_p = 0.8f;
        s.temperature = 2;
        check_support(all[i], 10, s, what);
    }
}

/* ---- greedy ---- */

TEST(greedy_takes_the_lowest_id_of_the_largest)
{
    static const float x[] = { 1, 5, NAN, 5, -2, 5 };
    static const float first[] = { NAN, NAN, -3, NAN, -3 };
    static const float low[] = { -INFINITY, -INFINITY, NAN };
    static const float high[] = { 0, INFINITY, 7, INFINITY };
    static const float all[] = { NAN, NAN };
    struct sampling s = { .temperature = 0, .top_p = 1 };
    CHECK_EQ(draw(x, 6, s, 0), 1);
    CHECK_EQ(draw(first, 5, s, 0), 2);
    CHECK_EQ(draw(low, 3, s, 0), 0);
    CHECK_EQ(draw(high, 4, s, 0), 1);
    CHECK(draw(all, 2, s, 0) >= 0 && draw(all, 2, s, 0) < 2); /* a valid id, whatever */
    s.top_k = 3;
    s.top_p = 0.5f;
    s.min_p = 0.9f;
    CHECK_EQ(draw(x, 6, s, 9), 1);
    s = plain;
    s.top_k = 1; /* one candidate: greedy at any temperature */
    for (uint64_t position = 0; position < 50; position++)
        CHECK_EQ(draw(x, 6, s, position), 1);
    s.temperature = 0;
    s.top_k = 0;
    CHECK_EQ(draw(x, 1, s, 0), 0);
}

TEST(nan_and_minus_infinity_are_never_chosen)
{
    static float x[64];
    struct rng r = { 5 };
    for (int i = 0; i < 64; i++)
        x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? -INFINITY : 0.1f * rng_normal(&r);
    for (int kind = 0; kind < 5; kind++) {
        struct sampling s = plain;
        s.temperature = 50;
        s.top_k = kind == 1 ? 60 : kind == 2 ? 10 : 0;
        s.top_p = kind == 3 ? 0.99f : 1;
        s.min_p = kind == 4 ? 0.01f : 0;
        for (uint64_t position = 0; position < 3000; position++) {
            int32_t id = draw(x, 64, s, position);
            if (!CHECK_MSG(id % 3 == 2, "kind %d chose %d", kind, (int)id))
                break;
        }
    }
}

/* NaN among the logits does not switch a filter off. */
TEST(nan_leaves_the_nucleus_as_it_is)
{
    static const float x[] = { 3, 2, NAN, 1, 0, 2.5f };
    struct sampling s = plain;
    s.top_p = 0.6f; /* 3 has 0.44 of it, 2.5 brings 0.71 */
    for (uint64_t position = 0; position < 2000; position++) {
        int32_t id = draw(x, 6, s, position);
        if (!CHECK_MSG(id == 0 || id == 5, "%d came out", (int)id))
            break;
    }
}

/* ---- distribution ---- */

static double chi_square(const float *logits, int n, struct sampling s, int draws)
{
    struct candidate keep[64];
    int m = survivors(keep, logits, n, &s), count[64] = { 0 };
    double total = 0, chi = 0;
    for (int i = 0; i < draws; i++)
        count[draw(logits, n, s, (uint64_t)i)]++;
    for (int i = 0; i < m; i++)
        total += share(&keep[i], keep[0].logit, s.temperature);
    for (int i = 0; i < m; i++) {
        double want = draws * share(&keep[i], keep[0].logit, s.temperature) / total;
        chi += (count[keep[i].id] - want) * (count[keep[i].id] - want) / want;
    }
    return chi;
}

/* Chi-square over 20,000 draws. With m survivors it has m - 1 degrees of freedom: mean m - 1,
 * deviation sqrt(2 (m - 1)); the seeds are fixed, so the bound of five deviations is met or not
 * once and for all. */
TEST(draws_follow_the_distribution)
{
    static const float x[] = { 0, 0.5f, 1, 1.5f, 2, -0.5f, -1, 1, 1, 0.25f, 0.75f, 2.5f };
    const struct sampling ways[] = {
        { .temperature = 1, .top_p = 1, .seed = 1 },
        { .temperature = 0.6f, .top_p = 1, .seed = 2 },
        { .temperature = 2, .top_p = 1, .seed = 3 },
        { .temperature = 1, .top_k = 5, .top_p = 1, .seed = 4 },
        { .temperature = 1, .top_p = 0.7f, .seed = 5 },
        { .temperature = 1.5f, .top_p = 1, .min_p = 0.2f, .seed = 6 },
        { .temperature = 1, .top_k = 8, .top_p = 0.9f, .min_p = 0.1f, .seed = UINT64_MAX },
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct candidate keep[64];
        int free_degrees = survivors(keep, x, 12, &ways[i]) - 1;
        double chi = chi_square(x, 12, ways[i], 20000);
        CHECK_MSG(chi < free_degrees + 5 * sqrt(2.0 * free_degrees),
                  "way %zu: chi-square %.1f with %d degrees of freedom", i, chi, free_degrees);
    }
}

TEST(a_wrong_distribution_would_be_noticed)
{
    static const float x[] = { 0, 0.5f, 1, 1.5f }, other[] = { 0.2f, 0.5f, 1, 1.5f };
    struct sampling s = plain;
    int count[4] = { 0 };
    double chi = 0, total = 0;
    for (uint64_t i = 0; i < 20000; i++)
        count[draw(other, 4, s, i)]++;
    for (int i = 0; i < 4; i++)
        total += exp(x[i]);
    for (int i = 0; i < 4; i++) {
        double want = 20000 * exp(x[i]) / total;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    CHECK_MSG(chi > 3 + 5 * sqrt(6.0), "chi-square %.1f", chi);
}

/* ---- a function of logits, seed and position ---- */

TEST(same_seed_and_position_same_token)
{
    static float x[512];
    static int32_t forward[300];
    struct rng r = { 77 };
    struct sampling s = { .temperature = 1.2f, .top_k = 100, .top_p = 0.95f, .seed = 42 };
    int differ_by_seed = 0, differ_by_position = 0;
    make_logits(x, 512, 0, &r);
    for (int i = 0; i < 300; i++)
        forward[i] = draw(x, 512, s, (uint64_t)i);
    for (int i = 299; i >= 0; i--) /* backwards, with other calls between */
        CHECK_EQ(draw(x, 512, s, (uint64_t)i), forward[i]);
    for (int i = 0; i < 300; i++) {
        struct sampling other = s;
        other.seed = 43;
        differ_by_seed += draw(x, 512, other, (uint64_t)i) != forward[i];
        differ_by_position += i > 0 && forward[i] != forward[i - 1];
    }
    CHECK(differ_by_seed > 150);
    CHECK(differ_by_position > 150);
}

/* The token of an id's own noise: removing others that did not win changes nothing. */
TEST(losers_have_no_influence)
{
    static float x[256];
    struct rng r = { 6 };
    struct sampling s = plain;
    make_logits(x, 256, 0, &r);
    for (uint64_t position = 0; position < 100; position++) {
        int32_t id = draw(x, 256, s, position);
        float kept[256];
        for (int i = 0; i < 256; i++)
            kept[i] = i == id || i % 5 == 0 ? x[i] : -INFINITY;
        CHECK_EQ(draw(kept, 256, s, position), id);
    }
}

/* ---- the best k ---- */

static double noisy(const struct candidate *c, const struct sampling *s, uint64_t position)
{
    double u = rng_uniform(s->seed, position, (uint64_t)c->id);
    return (double)c->logit / s->temperature - log(-log(u));
}

/* Everything sorted; the survivors taken out one after the other, then the rest as they lie. */
static int reference_top(const float *logits, int n, const struct sampling *s, uint64_t position,
                         int k, int32_t *ids)
{
    static struct candidate c[MAX_N], all[MAX_N];
    struct sampling no_filter = { .temperature = 1, .top_p = 1 };
    int m = s->temperature == 0 ? 0 : survivors(c, logits, n, s), count = 0, possible;
    possible = survivors(all, logits, n, &no_filter);
    while (possible > 0 && all[possible - 1].logit == -INFINITY)
        possible--;
    m = m < possible ? m : possible;
    for (int left = m; left > 0 && count < k; left--) {
        int best = 0;
        for (int i = 1; i < left; i++) {
            double a = noisy(&c[i], s, position), b = noisy(&c[best], s, position);
            if (a > b || (a == b && c[i].id < c[best].id))
                best = i;
        }
        ids[count++] = c[best].id;
        c[best] = c[left - 1];
    }
    for (int i = m; i < possible && count < k; i++)
        ids[count++] = all[i].id;
    return count;
}

static void check_top(const float *x, int n, struct sampling s, uint64_t position, int k)
{
    int32_t got[SAMPLE_TOP_MAX], want[SAMPLE_TOP_MAX];
    int n_got = sample_top(x, n, &s, position, k, got, scratch), n_want;
    n_want = reference_top(x, n, &s, position, k, want);
    CHECK_MSG(n_got == n_want, "n %d, k %d, T %g: %d tokens, %d expected", n, k,
              (double)s.temperature, n_got, n_want);
    CHECK_EQ(got[0], draw(x, n, s, position));
    for (int i = 0; i < n_got && i < n_want; i++)
        if (!CHECK_MSG(got[i] == want[i],
                       "n %d, k %d, T %g, top-k %d, top-p %g, min-p %g: token %d is %d (%g), the "
                       "reference has %d (%g)",
                       n, k, (double)s.temperature, s.top_k, (double)s.top_p, (double)s.min_p, i,
                       (int)got[i], (double)x[got[i]], (int)want[i], (double)x[want[i]]))
            break;
}

TEST(the_best_k_equal_the_reference)
{
    static const int sizes[] = { 1, 2, 7, 64, 300, 1000 };
    static const int ks[] = { 1, 2, 4, 10, 63, SAMPLE_TOP_MAX };
    static const int top_ks[] = { 0, 0, 1, 2, 20, 1000 };
    static const float ps[] = { 1, 1, 0.9f, 0.5f, 0.01f };
    static const float mins[] = { 0, 0, 0.05f, 1 };
    static const float temperatures[] = { 0, 0.05f, 0.7f, 1, 3, 1000 };
    static float x[MAX_N];
    struct rng r = { test_seed };
    for (int round = 0; round < 1500 && !test_bad_checks; round++) {
        int n = sizes[rng_next(&r) % 6], k = ks[rng_next(&r) % 6];
        struct sampling s = { .temperature = temperatures[rng_next(&r) % 6],
                              .top_k = top_ks[rng_next(&r) % 6],
                              .top_p = ps[rng_next(&r) % 5],
                              .min_p = mins[rng_next(&r) % 4],
                              .seed = rng_next(&r) };
        make_logits(x, n, round % KINDS, &r);
        if (round % 5 == 0 && n > 2 && x[n / 3] < 0.5f) /* a NaN, but not in the only one's place */
            x[n / 3] = NAN;
        check_top(x, n, s, rng_next(&r) % 100000, k);
    }
}

TEST(the_best_k_of_hardly_any)
{
    static const float x[] = { NAN, 2, -INFINITY, 2, 5, -INFINITY };
    static const float none[] = { NAN, -INFINITY, -INFINITY };
    static const float high[] = { 0, INFINITY, 7, INFINITY };
    int32_t ids[8] = { 0 };
    struct sampling s = { .temperature = 0, .top_p = 1 };
    CHECK_EQ(sample_top(x, 6, &s, 0, 5, ids, scratch), 3);
    CHECK(ids[0] == 4 && ids[1] == 1 && ids[2] == 3);
    CHECK_EQ(sample_top(x, 6, &s, 0, 0, ids, scratch), 0);
    CHECK_EQ(sample_top(high, 4, &s, 0, 3, ids, scratch), 3);
    CHECK(ids[0] == 1 && ids[1] == 3 && ids[2] == 2);
    CHECK_EQ(sample_top(none, 3, &s, 0, 4, ids, scratch), 1);
    CHECK_EQ(ids[0], draw(none, 3, s, 0));
    s.temperature = 0.8f;
    CHECK_EQ(sample_top(none, 3, &s, 0, 4, ids, scratch), 1);
    CHECK_EQ(ids[0], draw(none, 3, s, 0));
    s.top_k = 1; /* the rest by logit, at any temperature */
    for (uint64_t position = 0; position < 20; position++) {
        CHECK_EQ(sample_top(x, 6, &s, position, 8, ids, scratch), 3);
        CHECK(ids[0] == 4 && ids[1] == 1 && ids[2] == 3);
    }
}

/* The second is what the first would be without the first, as long as a filter says nothing. */
TEST(the_second_best_is_the_best_of_the_others)
{
    static float x[200];
    struct rng r = { 9 };
    make_logits(x, 200, 0, &r);
    for (uint64_t position = 0; position < 200; position++) {
        float y[200];
        int32_t ids[3];
        memcpy(y, x, sizeof y);
        CHECK_EQ(sample_top(x, 200, &plain, position, 3, ids, scratch), 3);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(ids[i], draw(y, 200, plain, position));
            y[ids[i]] = -INFINITY;
        }
    }
}

TEST(distributions_equal_the_reference)
{
    static const int ks[] = { 0, 1, 3, 20 };
    static const float ps[] = { 1, 0.9f, 0.5f, 0 };
    static const float mins[] = { 0, 0.1f, 1 };
    static const float temperatures[] = { 0, 0.3f, 1, 2.5f };
    static float x[MAX_N], p[MAX_N];
    static struct candidate c[MAX_N];
    struct rng r = { test_seed };
    for (int round = 0; round < 600 && !test_bad_checks; round++) {
        int n = 1 + (int)(rng_next(&r) % 200), m;
        struct sampling s = { .temperature = temperatures[rng_next(&r) % 4],
                              .top_k = ks[rng_next(&r) % 4],
                              .top_p = ps[rng_next(&r) % 4],
                              .min_p = mins[rng_next(&r) % 3] };
        double total = 0, sum = 0;
        make_logits(x, n, round % KINDS, &r);
        memset(p, 0xee, sizeof p);
        sample_distribution(x, n, &s, p, scratch);
        m = s.temperature == 0 ? 1 : survivors(c, x, n, &s);
        if (s.temperature == 0)
            c[0] = (struct candidate){ 0, draw(x, n, s, 0) };
        for (int i = 0; i < m; i++)
            total += s.temperature == 0 ? 1 : share(&c[i], c[0].logit, s.temperature);
        for (int i = 0; i < n; i++)
            sum += p[i];
        CHECK_MSG(fabs(sum - 1) < 1e-5, "n %d: the sum is %g", n, sum);
        for (int i = 0; i < m; i++) {
            double want = s.temperature == 0 ? 1 : share(&c[i], c[0].logit, s.temperature) / total;
            CHECK_MSG(fabs(p[c[i].id] - want) < 1e-6, "n %d, id %d: %g, the reference has %g", n,
                      (int)c[i].id, (double)p[c[i].id], want);
            p[c[i].id] = 0;
        }
        for (int i = 0; i < n; i++)
            CHECK_MSG(p[i] == 0, "n %d: id %d has %g", n, i, (double)p[i]);
    }
}

/* ---- parameters ---- */

static void refuse(struct sampling s, const char *word)
{
    struct pv_error err = { 0 };
    CHECK_EQ(sampling_check(&s, &err), PV_E_ARG);
    CHECK_MSG(err.code == PV_E_ARG && strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text,
              word);
}

TEST(parameters_without_meaning_are_refused)
{
    struct sampling s = plain;
    CHECK_EQ(sampling_check(&s, NULL), PV_OK);
    s = (struct sampling){ .temperature = 0, .top_k = 0, .top_p = 1e-6f, .min_p = 1 };
    CHECK_EQ(sampling_check(&s, NULL), PV_OK);
    refuse((struct sampling){ .temperature = -0.1f, .top_p = 1 }, "temperature -0.1");
    refuse((struct sampling){ .temperature = NAN, .top_p = 1 }, "temperature");
    refuse((struct sampling){ .temperature = INFINITY, .top_p = 1 }, "temperature inf");
    refuse((struct sampling){ .top_k = -1, .top_p = 1 }, "top-k -1");
    refuse((struct sampling){ .top_p = -0.5f }, "top-p -0.5");
    refuse((struct sampling){ .top_p = 1.5f }, "top-p 1.5");
    refuse((struct sampling){ .top_p = NAN }, "top-p");
    refuse((struct sampling){ .top_p = 1, .min_p = -1 }, "min-p -1");
    refuse((struct sampling){ .top_p = 1, .min_p = 2 }, "min-p 2");
    refuse((struct sampling){ .top_p = 1, .min_p = NAN }, "min-p");
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
