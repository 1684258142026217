/* Tables and JSON of bench's statistics. Which quantities there are is one table; all of them are
 * quotients of sums over clips. */
#include "bench_intervals.h"

#include <stdio.h>
#include <string.h>

enum { TITLE_SIZE = LABEL_SIZE + 16, CELL_SIZE = 40, MEAN_WIDTH = 18, DIFFERENCE_WIDTH = 21 };

static double accepted_of(const struct figures *mine, const struct figures *plain)
{
    (void)plain;
    return accepted_per_pass(mine);
}

static double tokens_of(const struct figures *mine, const struct figures *plain)
{
    (void)plain;
    return tokens_per_pass(mine);
}

static double acceptance_of(const struct figures *mine, const struct figures *plain)
{
    (void)plain;
    return acceptance(mine);
}

static double run_of(const struct figures *mine, const struct figures *plain)
{
    (void)plain;
    return mean_run(mine);
}

static double accuracy_of(const struct figures *mine, const struct figures *plain)
{
    (void)plain;
    return quotient(mine->v[FIG_RIGHT], mine->v[FIG_SCORED]);
}

static double agreement_of(const struct figures *mine, const struct figures *plain)
{
    (void)plain;
    return agreement(mine);
}

static const struct quantity {
    const char *name, *upper, *lower; /* in JSON; the two lines of its heading, NULL: JSON only */
    stats_fn *fn;
} quantities[] = {
    { "accepted_per_pass", "accepted", "/pass", accepted_of },
    { "tokens_per_pass", NULL, NULL, tokens_of },
    { "acceptance", NULL, NULL, acceptance_of },
    { "mean_run", NULL, NULL, run_of },
    { "decode_speedup", "decode", "speed-up", decode_speedup },
    { "total_speedup", "total", "speed-up", total_speedup },
    { "accuracy", "right", "option", accuracy_of },
    { "c", NULL, NULL, step_ratio },
    { "agreement", NULL, NULL, agreement_of },
};
enum { N_QUANTITIES = sizeof quantities / sizeof *quantities };

static struct figures sums_of(const struct bench_stats *s, int k)
{
    struct figures sum = { { 0 } };
    for (int i = 0; i < s->clips; i++)
        figures_add(&sum, &s->cell[(size_t)i * (size_t)s->methods + (size_t)k]);
    return sum;
}

static double prediction(const struct bench_stats *s, const struct contenders *who, int k)
{
    const struct pv_method *m = &who->items[k].method;
    struct figures mine = sums_of(s, k), plain = sums_of(s, 0);
    bool parallel = mine.v[FIG_PARALLEL_ROUNDS] > 0;
    bool chain = m->shape == PV_SHAPE_CHAIN && !m->automatic;
    return predicted_speedup(parallel ? ROUND_PARALLEL
                             : chain  ? ROUND_CHAIN
                                      : ROUND_TREE,
                             &mine, &plain);
}

static bool drafts(const struct contender *c)
{
    return c->method.drafter != PV_DRAFT_NONE;
}

void profiles_add(struct bench_profile *p, const struct contenders *who,
                  const struct trial_result *r)
{
    for (int k = 0; k < who->n; k++)
        if (drafts(&who->items[k]))
            profile_add(&p->of[k], r->rounds[k].accepted, r->rounds[k].n);
}

/* ---- tables ---- */

static int title_width(const struct contenders *who)
{
    char title[TITLE_SIZE];
    size_t width = strlen("difference from ar");
    for (int k = 0; k < who->n; k++) {
        contender_title(title, sizeof title, &who->items[k]);
        width = strlen(title) > width ? strlen(title) : width;
    }
    return (int)width;
}

static void print_title(struct buf *b, const struct contender *c, int width)
{
    char title[TITLE_SIZE];
    contender_title(title, sizeof title, c);
    buf_printf(b, "%-*s", width, title);
}

/* Which quantities a table has: accuracy only where something was scored. */
static bool shown(const struct quantity *q, const struct figures *plain)
{
    return q->upper && (q->fn != accuracy_of || plain->v[FIG_SCORED] > 0);
}

static void print_interval(struct buf *b, const struct interval *i, bool sign)
{
    char cell[CELL_SIZE];
    snprintf(cell, sizeof cell, sign ? "%+.2f (%+.2f %+.2f)" : "%.2f (%.2f-%.2f)", i->value, i->low,
             i->high);
    buf_printf(b, "%*s", sign ? DIFFERENCE_WIDTH : MEAN_WIDTH, cell);
}

static void print_heading(struct buf *b, const char *first, int width, int cell,
                          const struct figures *plain, const char *upper, const char *lower)
{
    buf_printf(b, "%-*s", width, "");
    for (int q = 0; q < N_QUANTITIES; q++)
        if (shown(&quantities[q], plain))
            buf_printf(b, "%*s", cell, quantities[q].upper);
    buf_printf(b, "%s\n%-*s", upper, width, first);
    for (int q = 0; q < N_QUANTITIES; q++)
        if (shown(&quantities[q], plain))
            buf_printf(b, "%*s", cell, quantities[q].lower);
    buf_printf(b, "%s\n", lower);
}

static void print_means(struct buf *b, const struct bench_stats *s, const struct contenders *who,
                        int width)
{
    struct figures plain = sums_of(s, 0);
    struct interval i;

    print_heading(b, "95 % intervals", width, MEAN_WIDTH, &plain, " predic-          peak",
                  "    ted     c    MiB");
    for (int k = 0; k < who->n; k++) {
        struct figures mine = sums_of(s, k);
        print_title(b, &who->items[k], width);
        for (int q = 0; q < N_QUANTITIES; q++) {
            if (shown(&quantities[q], &plain) && stats_interval(s, k, quantities[q].fn, &i))
                print_interval(b, &i, false);
        }
        if (drafts(&who->items[k]))
            buf_printf(b, " %6.2fx %5.1f", prediction(s, who, k), step_ratio(&mine, &plain));
        else
            buf_printf(b, " %7s %5s", "-", "-");
        if (mine.v[FIG_PEAK_BYTES] > 0)
            buf_printf(b, " %6.0f\n", mine.v[FIG_PEAK_BYTES] / (1 << 20));
        else
            buf_printf(b, " %6s\n", "-");
    }
}

static void print_differences(struct buf *b, const struct bench_stats *s,
                              const struct contenders *who, int width)
{
    struct figures plain = sums_of(s, 0);
    struct interval i;
    char first[TITLE_SIZE + 32];

    if (who->n < 3)
        return;
    snprintf(first, sizeof first, "less %s", who->items[1].label);
    buf_puts(b, "\n");
    print_heading(b, first, width, DIFFERENCE_WIDTH, &plain, "", "");
    for (int k = 2; k < who->n; k++) {
        print_title(b, &who->items[k], width);
        for (int q = 0; q < N_QUANTITIES; q++)
            if (shown(&quantities[q], &plain) && stats_difference(s, k, 1, quantities[q].fn, &i))
                print_interval(b, &i, true);
        buf_puts(b, "\n");
    }
}

static void print_profile(struct buf *b, const struct bench_profile *p,
                          const struct contenders *who, int width, bool parts)
{
    int n = parts ? STATS_PARTS : STATS_ROUNDS;

    buf_printf(b, "\n%-*s", width, parts ? "accepted by tenth" : "accepted by round");
    for (int i = 0; i < n; i++)
        buf_printf(b, " %5d", i + 1);
    buf_puts(b, "\n");
    for (int k = 1; k < who->n; k++) {
        const struct acceptance_profile *of = &p->of[k];
        print_title(b, &who->items[k], width);
        for (int i = 0; i < n; i++)
            buf_printf(b, " %5.2f",
                       parts ? quotient(of->part_sum[i], of->part_n[i])
                             : quotient(of->round_sum[i], of->round_n[i]));
        buf_puts(b, "\n");
    }
}

void intervals_table(struct buf *b, const struct bench_stats *s, const struct bench_profile *p,
                     const struct contenders *who)
{
    int width = title_width(who);
    print_means(b, s, who, width);
    print_differences(b, s, who, width);
    if (who->n > 1) {
        print_profile(b, p, who, width, false);
        print_profile(b, p, who, width, true);
    }
}

/* ---- JSON ---- */

static void interval_json(struct buf *b, const char *name, const struct interval *i)
{
    buf_printf(b, ",\"%s\":{\"value\":%.6g,\"low\":%.6g,\"high\":%.6g}", name, i->value, i->low,
               i->high);
}

static void means_json(struct buf *b, const char *name, const double *sum, const double *n,
                       int count)
{
    buf_printf(b, ",\"%s\":[", name);
    for (int i = 0; i < count; i++)
        buf_printf(b, "%s%.6g", i ? "," : "", quotient(sum[i], n[i]));
    buf_puts(b, "]");
}

static void method_statistics(struct buf *b, const struct bench_stats *s,
                              const struct acceptance_profile *p, const struct contenders *who,
                              int k)
{
    const struct contender *c = &who->items[k];
    struct figures mine = sums_of(s, k);
    struct interval i;

    method_json(b, &c->method, c->label);
    for (int q = 0; q < N_QUANTITIES; q++) {
        bool told = (quantities[q].fn != accuracy_of || mine.v[FIG_SCORED] > 0) &&
                    (quantities[q].fn != agreement_of || mine.v[FIG_LOSSY] > 0);
        if (told && stats_interval(s, k, quantities[q].fn, &i))
            interval_json(b, quantities[q].name, &i);
    }
    if (k > 1 && stats_difference(s, k, 1, accepted_of, &i))
        interval_json(b, "accepted_per_pass_difference", &i);
    if (k > 1 && stats_difference(s, k, 1, decode_speedup, &i))
        interval_json(b, "decode_speedup_difference", &i);
    if (mine.v[FIG_PEAK_BYTES] > 0)
        buf_printf(b, ",\"peak_bytes\":%.12g", mine.v[FIG_PEAK_BYTES]);
    if (!drafts(c))
        return;
    buf_printf(b, ",\"predicted_speedup\":%.6g", prediction(s, who, k));
    means_json(b, "accepted_by_round", p->round_sum, p->round_n, STATS_ROUNDS);
    means_json(b, "accepted_by_tenth", p->part_sum, p->part_n, STATS_PARTS);
}

void intervals_json(struct buf *b, const struct bench_stats *s, const struct bench_profile *p,
                    const struct contenders *who)
{
    buf_printf(b, "\"statistics\":{\"clips\":%d,\"resamples\":%d,\"methods\":[", s->clips,
               (int)STATS_RESAMPLES);
    for (int k = 0; k < who->n; k++) {
        buf_puts(b, k ? ",\n{" : "{");
        method_statistics(b, s, &p->of[k], who, k);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}");
}
