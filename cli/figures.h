/* The figures of a run, summed over clips or taken as medians over repeats, and what is worked out
 * from them. doc/bench.md says what each means. */
#ifndef PV_CLI_FIGURES_H
#define PV_CLI_FIGURES_H

#include "base/buf.h"
#include "prevue/prevue.h"

enum figure {
    FIG_TOKENS,
    FIG_DECODED, /* tokens but the first, which comes out of the prefill */
    FIG_PASSES,
    FIG_ROUNDS,
    FIG_PROPOSED,
    FIG_ACCEPTED,
    FIG_REJECTIONS,
    FIG_PROMPT_TOKENS,
    FIG_VIDEO_TOKENS,
    FIG_DRAFT_VIDEO_TOKENS,
    FIG_VIDEO_S,
    FIG_VISION_S,
    FIG_PREFILL_S,
    FIG_VIEW_S,
    FIG_DRAFT_VISION_S, /* where it can be told from vision_s */
    FIG_DRAFT_PREFILL_S,
    FIG_DRAFT_S,
    FIG_VERIFY_S,
    FIG_DECODE_S,
    FIG_COLD_S,     /* of a run of its own, by the clock; 0: there was none */
    FIG_PEAK_BYTES, /* of that run; no sum: the most */
    FIG_RUNS,       /* between two rejections, and */
    FIG_RUN_TOKENS,
    FIG_PARALLEL_ROUNDS,
    FIG_STARTUP_TOKENS,
    FIG_WASTED,
    FIG_LONGEST_RUN, /* no sum: the longest */
    FIG_WAIT_S,
    FIG_WINDOW,
    FIG_DRAFT_THREADS,
    FIG_DRAFT_ROWS,
    FIG_DRAFT_SLOTS,
    FIG_SCORED, /* answers to questions whose right option is known, and those that chose it */
    FIG_RIGHT,
    N_FIGURES
};

struct figures {
    double v[N_FIGURES];
};

struct figures figures_of(const struct pv_stats *st);
void figures_add(struct figures *sum, const struct figures *f);
double median(double *values, int n); /* sorts them */

double accepted_per_pass(const struct figures *f); /* without the model's own token */
double tokens_per_pass(const struct figures *f);   /* with it */
double mean_run(const struct figures *f);
double acceptance(const struct figures *f);
double tokens_per_second(const struct figures *f);
double total_seconds(const struct figures *f); /* from opening the video to the last token */
/* "parallel":{...}: a member of a JSON object; sums over so many clips. */
void parallel_json(struct buf *b, const struct figures *f, double clips);
/* 0 when b is not above it. */
double quotient(double a, double b);

#endif
