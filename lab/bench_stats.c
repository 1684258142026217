/* Statistics over clips. A figure of several clips is a ratio of sums, so its interval is that of
 * the ratio when clips are resampled. It says how much the figure would change with other clips of
 * the same kind, and nothing about other models or machines. */
#include "bench_stats.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DRAW_SEED 24u
#define TAIL 0.025 /* of the resamples beyond either end of an interval */
#define NEARLY_ONE 0.999999

bool stats_add(struct bench_stats *s, const struct figures *cells, int methods)
{
    if (s->clips == s->cap) {
        int cap = s->cap ? 2 * s->cap : 16;
        struct figures *more =
            mem_realloc(s->cell, (size_t)cap * (size_t)methods * sizeof *s->cell);
        if (!more)
            return false;
        s->cell = more;
        s->cap = cap;
    }
    s->methods = methods;
    memcpy(s->cell + (size_t)s->clips * (size_t)methods, cells, (size_t)methods * sizeof *cells);
    s->clips++;
    return true;
}

void stats_clear(struct bench_stats *s)
{
    mem_free(s->cell);
    *s = (struct bench_stats){ 0 };
}

/* ---- intervals ---- */

static const struct figures *cell(const struct bench_stats *s, int clip, int method)
{
    return &s->cell[(size_t)clip * (size_t)s->methods + (size_t)method];
}

/* The sums of a method over the clips of resample r; r -1: over all clips, once each. */
static struct figures sums(const struct bench_stats *s, int method, int r)
{
    struct figures sum = { { 0 } };
    for (int i = 0; i < s->clips; i++) {
        uint64_t drawn = r < 0 ? (uint64_t)i
                               : rng_bits(DRAW_SEED, (uint64_t)r, (uint64_t)i) % (uint64_t)s->clips;
        figures_add(&sum, cell(s, (int)drawn, method));
    }
    return sum;
}

static double quantity(const struct bench_stats *s, int method, int r, stats_fn *fn)
{
    struct figures mine = sums(s, method, r), plain = sums(s, 0, r);
    return fn(&mine, &plain);
}

/* Of method a, less that of b where b is one (-1: none). */
static double contrast(const struct bench_stats *s, int a, int b, int r, stats_fn *fn)
{
    return quantity(s, a, r, fn) - (b < 0 ? 0 : quantity(s, b, r, fn));
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

bool stats_difference(const struct bench_stats *s, int a, int b, stats_fn *fn, struct interval *out)
{
    double *values = mem_alloc(STATS_RESAMPLES * sizeof *values);
    int tail = (int)(TAIL * STATS_RESAMPLES);

    if (!values)
        return false;
    for (int r = 0; r < STATS_RESAMPLES; r++)
        values[r] = contrast(s, a, b, r, fn);
    qsort(values, STATS_RESAMPLES, sizeof *values, ascending);
    *out = (struct interval){ .value = contrast(s, a, b, -1, fn),
                              .low = values[tail],
                              .high = values[STATS_RESAMPLES - 1 - tail] };
    mem_free(values);
    return true;
}

bool stats_interval(const struct bench_stats *s, int method, stats_fn *fn, struct interval *out)
{
    return stats_difference(s, method, -1, fn, out);
}

/* ---- by round and by place ---- */

void profile_add(struct acceptance_profile *p, const int *accepted, int n)
{
    int tokens = 1, at = 1; /* the first token comes out of the prefill */
    for (int i = 0; i < n; i++)
        tokens += accepted[i] + 1;
    for (int i = 0; i < n; i++) {
        int part = (int)((long long)at * STATS_PARTS / tokens);
        if (i < STATS_ROUNDS) {
            p->round_sum[i] += accepted[i];
            p->round_n[i]++;
        }
        p->part_sum[part] += accepted[i];
        p->part_n[part]++;
        at += accepted[i] + 1;
    }
}

/* ---- the closed form ---- */

double step_ratio(const struct figures *mine, const struct figures *plain)
{
    double step = quotient(plain->v[FIG_DECODE_S], plain->v[FIG_DECODED]);
    return quotient(step, quotient(mine->v[FIG_DRAFT_S], mine->v[FIG_DRAFT_ROWS]));
}

/* Tokens of a round whose chain has g tokens, each right with probability a. Parallel: no token of
 * the model's own, but a round that was all right hands the next one its first token. */
static double chain_tokens(double a, double g, bool parallel)
{
    a = a < NEARLY_ONE ? a : NEARLY_ONE;
    if (parallel)
        return (1 - pow(a, g)) / ((1 - a) * (1 + a - pow(a, g)));
    return (1 - pow(a, g + 1)) / (1 - a);
}

double predicted_speedup(enum round_form form, const struct figures *mine,
                         const struct figures *plain)
{
    double rounds = mine->v[FIG_ROUNDS], step, draft, verify, g, tokens;

    if (!(rounds > 0) || !(mine->v[FIG_PROPOSED] > 0))
        return 0;
    step = quotient(plain->v[FIG_DECODE_S], plain->v[FIG_DECODED]);
    draft = mine->v[FIG_DRAFT_S] / rounds;
    verify = mine->v[FIG_VERIFY_S] / rounds;
    g = mine->v[FIG_PROPOSED] / rounds;
    switch (form) {
    case ROUND_CHAIN:
        tokens = chain_tokens(acceptance(mine), g, false);
        return quotient(tokens * step, draft + verify);
    case ROUND_PARALLEL:
        tokens = chain_tokens(acceptance(mine), g > 1 ? g : 1, true);
        return quotient(tokens * step, draft > verify ? draft : verify);
    case ROUND_TREE:
        break;
    }
    return quotient((1 + accepted_per_pass(mine)) * step, draft + verify);
}
