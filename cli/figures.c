/* Figures of runs. The papers count accepted tokens in four ways; all of them are computed here,
 * from the same counts. */
#include "figures.h"

#include <stdlib.h>

/* Tokens between two rejections, those that replace a rejected one not counted. In the serial
 * schedule all other tokens of the rounds; in the parallel one the engine keeps the books, because
 * there a rejection may be that of a window's first token, which no round's own count shows. Where
 * both took turns (auto) they count as serial. */
static void count_runs(struct figures *f, const struct pv_stats *st)
{
    bool parallel = st->parallel_rounds > 0 && st->parallel_rounds == st->rounds;
    int64_t tokens = st->runs > 0 ? st->run_tokens : st->longest_run;
    f->v[FIG_RUNS] = (double)(parallel ? st->runs : st->rejections);
    f->v[FIG_RUN_TOKENS] = (double)(parallel ? tokens : st->accepted + st->rounds - st->rejections);
}

struct figures figures_of(const struct pv_stats *st)
{
    struct figures f = { .v = {
                             [FIG_TOKENS] = (double)st->tokens,
                             [FIG_DECODED] = (double)(st->tokens > 1 ? st->tokens - 1 : 0),
                             [FIG_PASSES] = (double)st->passes,
                             [FIG_ROUNDS] = (double)st->rounds,
                             [FIG_PROPOSED] = (double)st->proposed,
                             [FIG_ACCEPTED] = (double)st->accepted,
                             [FIG_REJECTIONS] = (double)st->rejections,
                             [FIG_PROMPT_TOKENS] = (double)st->prompt_tokens,
                             [FIG_VIDEO_TOKENS] = (double)st->video_tokens,
                             [FIG_DRAFT_VIDEO_TOKENS] = (double)st->draft_video_tokens,
                             [FIG_VIDEO_S] = st->video_s,
                             [FIG_VISION_S] = st->vision_s,
                             [FIG_PREFILL_S] = st->prefill_s,
                             [FIG_VIEW_S] = st->view_s,
                             [FIG_DRAFT_PREFILL_S] = st->draft_prefill_s,
                             [FIG_DRAFT_S] = st->draft_s,
                             [FIG_VERIFY_S] = st->verify_s,
                             [FIG_DECODE_S] = st->decode_s,
                             [FIG_PARALLEL_ROUNDS] = (double)st->parallel_rounds,
                             [FIG_STARTUP_TOKENS] = (double)st->startup_tokens,
                             [FIG_WASTED] = (double)st->wasted,
                             [FIG_LONGEST_RUN] = (double)st->longest_run,
                             [FIG_WAIT_S] = st->wait_s,
                             [FIG_WINDOW] = st->window,
                             [FIG_DRAFT_THREADS] = st->draft_threads,
                             [FIG_DRAFT_ROWS] = (double)st->draft_rows,
                             [FIG_DRAFT_SLOTS] = (double)st->draft_slots,
                             [FIG_VIDEO_KEPT] = st->video_kept,
                         } };
    count_runs(&f, st);
    return f;
}

void figures_add(struct figures *sum, const struct figures *f)
{
    static const enum figure largest[] = { FIG_LONGEST_RUN, FIG_PEAK_BYTES };
    struct figures before = *sum;
    for (int i = 0; i < N_FIGURES; i++)
        sum->v[i] += f->v[i];
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++) {
        enum figure at = largest[i];
        sum->v[at] = f->v[at] > before.v[at] ? f->v[at] : before.v[at];
    }
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double quotient(double a, double b)
{
    return b > 0 ? a / b : 0;
}

double accepted_per_pass(const struct figures *f)
{
    return quotient(f->v[FIG_ACCEPTED], f->v[FIG_ROUNDS]);
}

double tokens_per_pass(const struct figures *f)
{
    return quotient(f->v[FIG_TOKENS], f->v[FIG_PASSES]);
}

double mean_run(const struct figures *f)
{
    return f->v[FIG_RUN_TOKENS] / (f->v[FIG_RUNS] > 1 ? f->v[FIG_RUNS] : 1);
}

double acceptance(const struct figures *f)
{
    return quotient(f->v[FIG_ACCEPTED], f->v[FIG_ACCEPTED] + f->v[FIG_REJECTIONS]);
}

double tokens_per_second(const struct figures *f)
{
    return quotient(f->v[FIG_DECODED], f->v[FIG_DECODE_S]);
}

double agreement(const struct figures *f)
{
    return quotient(f->v[FIG_AGREED], f->v[FIG_COMPARED]);
}

double total_seconds(const struct figures *f)
{
    if (f->v[FIG_COLD_S] > 0)
        return f->v[FIG_COLD_S];
    return f->v[FIG_VIDEO_S] + f->v[FIG_VISION_S] + f->v[FIG_PREFILL_S] + f->v[FIG_VIEW_S] +
           f->v[FIG_DRAFT_VISION_S] + f->v[FIG_DRAFT_PREFILL_S] + f->v[FIG_DECODE_S];
}

double decode_speedup(const struct figures *mine, const struct figures *plain)
{
    return quotient(tokens_per_second(mine), tokens_per_second(plain));
}

double total_speedup(const struct figures *mine, const struct figures *plain)
{
    return quotient(total_seconds(plain), total_seconds(mine));
}

void parallel_json(struct buf *b, const struct figures *f, double clips)
{
    buf_printf(b,
               "\"parallel\":{\"rounds\":%.12g,\"window\":%.6g,\"draft_threads\":%.6g,"
               "\"startup_tokens\":%.12g,\"wasted\":%.12g,\"runs\":%.12g,\"longest_run\":%.12g,"
               "\"wait\":%.6f}",
               f->v[FIG_PARALLEL_ROUNDS], f->v[FIG_WINDOW] / clips, f->v[FIG_DRAFT_THREADS] / clips,
               f->v[FIG_STARTUP_TOKENS], f->v[FIG_WASTED], f->v[FIG_RUNS], f->v[FIG_LONGEST_RUN],
               f->v[FIG_WAIT_S]);
}
