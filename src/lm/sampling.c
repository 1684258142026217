/* Sampling by Gumbel-max: the argmax of logit / T + g, g = -log(-log u), has the distribution
 * softmax(logit / T). Drawing u from (seed, position, id) makes the token a pure function of the
 * logits, so a draft that guesses the same logits guesses the same token.
 *
 * Filters keep a prefix of the candidates in order of falling logit (lower id first among equals).
 * A whole sort of 150,000 entries would cost more than the model's own step; the candidates are
 * therefore taken by falling threshold until they must hold the prefix, and only those sorted. */
#include "lm/sampling.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

enum pv_status sampling_check(const struct sampling *s, struct pv_error *err)
{
    if (!(s->temperature >= 0) || s->temperature > 1e6f)
        return fail(err, PV_E_ARG, "temperature %g is not between 0 and 1000000",
                    (double)s->temperature);
    if (s->top_k < 0)
        return fail(err, PV_E_ARG, "top-k %d is negative", s->top_k);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return fail(err, PV_E_ARG, "top-p %g is not between 0 and 1", (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return fail(err, PV_E_ARG, "min-p %g is not between 0 and 1", (double)s->min_p);
    return PV_OK;
}

static int32_t argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best] || (x[best] != x[best] && x[i] == x[i]))
            best = i;
    return best;
}

static int by_falling_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* All candidates with logit >= floor. */
static int take_above(struct candidate *out, const float *logits, int n, float floor)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (logits[i] >= floor)
            out[m++] = (struct candidate){ logits[i], i };
    return m;
}

/* Sorted candidates that surely contain the top_k largest. */
static int take_top(struct candidate *out, const float *logits, int n, float top, int k,
                    float temperature)
{
    float width = 8 * (temperature > 1 ? temperature : 1);
    int m = take_above(out, logits, n, top - width);
    while (m < k && m < n && width < 1e30f) {
        width *= 2;
        m = take_above(out, logits, n, top - width);
    }
    if (m < k && m < n)
        m = take_above(out, logits, n, -INFINITY);
    qsort(out, (size_t)m, sizeof *out, by_falling_logit);
    return m < k ? m : k;
}

/* How many of the sorted candidates reach the share p of `total`; m + 1 when they do not. */
static int reach(const struct candidate *c, int m, double top, double t, double total, double p)
{
    double sum = 0;
    for (int i = 0; i < m; i++) {
        sum += exp((c[i].logit - top) / t);
        if (sum >= p * total)
            return i + 1;
    }
    return m + 1;
}

static double mass(const float *logits, int n, double top, double t)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (logits[i] == logits[i]) /* a NaN is no candidate */
            sum += exp((logits[i] - top) / t);
    return sum;
}

/* The nucleus of the whole vocabulary, sorted. */
static int take_nucleus(struct candidate *out, const float *logits, int n, float top,
                        const struct sampling *s)
{
    double total = mass(logits, n, top, s->temperature);
    for (float width = 8;; width *= 2) {
        int m = take_above(out, logits, n, top - width * s->temperature), keep;
        qsort(out, (size_t)m, sizeof *out, by_falling_logit);
        keep = reach(out, m, top, s->temperature, total, s->top_p);
        if (keep <= m)
            return keep;
        if (m == n || width > 1e6f)
            return m;
    }
}

/* Whether the token is the argmax and no noise has a say. */
static bool is_greedy(const struct sampling *s, float top)
{
    return s->temperature == 0 || s->top_k == 1 || !isfinite(top);
}

/* What the filters leave: always the first of the order by falling logit, at least one; without
 * top-k and top-p in order of ids. May hold -INFINITY, never NaN. `top` is the largest, finite. */
static int warp(struct candidate *out, const float *logits, int n, float top,
                const struct sampling *s)
{
    int m;
    if (s->top_k > 0 && s->top_k < n) {
        m = take_top(out, logits, n, top, s->top_k, s->temperature);
        if (s->top_p < 1) {
            double total = 0;
            for (int i = 0; i < m; i++)
                total += exp(((double)out[i].logit - top) / s->temperature);
            int keep = reach(out, m, top, s->temperature, total, s->top_p);
            m = keep < m ? keep : m;
        }
    } else if (s->top_p < 1) {
        m = take_nucleus(out, logits, n, top, s);
    } else {
        m = take_above(out, logits, n, -INFINITY);
    }
    if (s->min_p > 0) {
        /* p >= min_p * p_max, in logits. */
        float floor = top + s->temperature * logf(s->min_p);
        int kept = 0;
        for (int i = 0; i < m; i++)
            if (out[i].logit >= floor)
                out[kept++] = out[i];
        m = kept;
    }
    return m;
}

static double gumbel(const struct candidate *c, const struct sampling *s, uint64_t position)
{
    double u = rng_uniform(s->seed, position, (uint64_t)c->id);
    return (double)c->logit / s->temperature - log(-log(u));
}

static int32_t gumbel_max(const struct candidate *c, int m, const struct sampling *s,
                          uint64_t position)
{
    double best = -INFINITY;
    int32_t id = c[0].id;
    for (int i = 0; i < m; i++) {
        double score = gumbel(&c[i], s, position);
        if (score > best || (score == best && c[i].id < id)) {
            best = score;
            id = c[i].id;
        }
    }
    return id;
}

int32_t sample_token(const float *logits, int n, const struct sampling *s, uint64_t position,
                     struct candidate *scratch)
{
    int32_t top = argmax(logits, n);
    if (is_greedy(s, logits[top]))
        return top;
    return gumbel_max(scratch, warp(scratch, logits, n, logits[top], s), s, position);
}

/* The best k seen so far, best first, the lower id first among equals. */
struct ranking {
    int n, k;
    double score[SAMPLE_TOP_MAX];
    int32_t id[SAMPLE_TOP_MAX];
};

static void ranking_add(struct ranking *r, double score, int32_t id)
{
    int i = r->n < r->k ? r->n++ : r->k - 1;
    for (; i > 0 && (score > r->score[i - 1] || (score == r->score[i - 1] && id < r->id[i - 1]));
         i--) {
        r->score[i] = r->score[i - 1];
        r->id[i] = r->id[i - 1];
    }
    r->score[i] = score;
    r->id[i] = id;
}

/* Whether it would be among the k. */
static bool ranking_wants(const struct ranking *r, double score, int32_t id)
{
    int last = r->k - 1;
    return r->n < r->k || score > r->score[last] || (score == r->score[last] && id < r->id[last]);
}

static void rank_by_logit(struct ranking *r, const float *logits, int n)
{
    float floor = -INFINITY; /* ids rise, so an equal logit comes too late */
    for (int i = 0; i < n; i++)
        if (logits[i] > floor) {
            ranking_add(r, logits[i], i);
            if (r->n == r->k)
                floor = (float)r->score[r->k - 1];
        }
}

static void rank_by_noise(struct ranking *r, const struct candidate *c, int m,
                          const struct sampling *s, uint64_t position)
{
    for (int i = 0; i < m; i++)
        if (c[i].logit > -INFINITY) {
            double score = gumbel(&c[i], s, position);
            if (ranking_wants(r, score, c[i].id))
                ranking_add(r, score, c[i].id);
        }
}

int sample_top(const float *logits, int n, const struct sampling *s, uint64_t position, int k,
               int32_t *ids, struct candidate *scratch)
{
    int32_t top = argmax(logits, n);
    struct ranking drawn = { .k = k < SAMPLE_TOP_MAX ? k : SAMPLE_TOP_MAX }, rest = drawn;
    if (k <= 0)
        return 0;
    if (!is_greedy(s, logits[top]))
        rank_by_noise(&drawn, scratch, warp(scratch, logits, n, logits[top], s), s, position);
    if (drawn.n < drawn.k) /* all that were left are drawn: they are the first of the rest */
        rank_by_logit(&rest, logits, n);
    for (int i = 0; i < drawn.n; i++)
        ids[i] = drawn.id[i];
    for (int i = drawn.n; i < rest.n; i++)
        ids[i] = rest.id[i];
    if (drawn.n == 0 && rest.n == 0) {
        ids[0] = top; /* nothing is possible; this is what sample_token says */
        return 1;
    }
    return drawn.n > rest.n ? drawn.n : rest.n;
}

void sample_distribution(const float *logits, int n, const struct sampling *s, float *p,
                         struct candidate *scratch)
{
    int32_t top = argmax(logits, n);
    double total = 0;
    int m;
    for (int i = 0; i < n; i++)
        p[i] = 0;
    if (is_greedy(s, logits[top])) {
        p[top] = 1;
        return;
    }
    m = warp(scratch, logits, n, logits[top], s);
    for (int i = 0; i < m; i++)
        total += exp(((double)scratch[i].logit - logits[top]) / s->temperature);
    for (int i = 0; i < m; i++)
        p[scratch[i].id] =
            (float)(exp(((double)scratch[i].logit - logits[top]) / s->temperature) / total);
}
