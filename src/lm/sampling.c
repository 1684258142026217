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

static int32_t gumbel_max(const struct candidate *c, int m, const struct sampling *s,
                          uint64_t position)
{
    double best = -INFINITY;
    int32_t id = c[0].id;
    for (int i = 0; i < m; i++) {
        double u = rng_uniform(s->seed, position, (uint64_t)c[i].id);
        double score = (double)c[i].logit / s->temperature - log(-log(u));
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
    float top_logit = logits[top];
    int m;
    if (s->temperature == 0 || s->top_k == 1 || !isfinite(top_logit))
        return top;
    if (s->top_k > 0 && s->top_k < n) {
        m = take_top(scratch, logits, n, top_logit, s->top_k, s->temperature);
        if (s->top_p < 1) {
            double total = 0;
            for (int i = 0; i < m; i++)
                total += exp(((double)scratch[i].logit - top_logit) / s->temperature);
            int keep = reach(scratch, m, top_logit, s->temperature, total, s->top_p);
            m = keep < m ? keep : m;
        }
    } else if (s->top_p < 1) {
        m = take_nucleus(scratch, logits, n, top_logit, s);
    } else {
        m = take_above(scratch, logits, n, -INFINITY);
    }
    if (s->min_p > 0) {
        /* p >= min_p * p_max, in logits. */
        float floor = top_logit + s->temperature * logf(s->min_p);
        int kept = 0;
        for (int i = 0; i < m; i++)
            if (scratch[i].logit >= floor)
                scratch[kept++] = scratch[i];
        m = kept;
    }
    return gumbel_max(scratch, m, s, position);
}
