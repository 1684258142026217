/* Figures of runs. The papers count accepted tokens in four ways; all of them come from the same
 * counts, here and nowhere else. */
#include "figures.h"

#include <stdlib.h>

struct figures figures_of(const struct pv_stats *st)
{
    return (struct figures){ .v = {
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
                             } };
}

void figures_add(struct figures *sum, const struct figures *f)
{
    for (int i = 0; i < N_FIGURES; i++)
        sum->v[i] += f->v[i];
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
    double rejections = f->v[FIG_REJECTIONS];
    return (f->v[FIG_ACCEPTED] + f->v[FIG_ROUNDS] - rejections) / (rejections > 1 ? rejections : 1);
}

double acceptance(const struct figures *f)
{
    return quotient(f->v[FIG_ACCEPTED], f->v[FIG_ACCEPTED] + f->v[FIG_REJECTIONS]);
}

double tokens_per_second(const struct figures *f)
{
    return quotient(f->v[FIG_DECODED], f->v[FIG_DECODE_S]);
}

double total_seconds(const struct figures *f)
{
    return f->v[FIG_VIDEO_S] + f->v[FIG_VISION_S] + f->v[FIG_PREFILL_S] + f->v[FIG_VIEW_S] +
           f->v[FIG_DRAFT_VISION_S] + f->v[FIG_DRAFT_PREFILL_S] + f->v[FIG_DECODE_S];
}
