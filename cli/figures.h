/* The figures of a run, as sums over clips or medians over repeats, and quantities derived from
 * them. doc/bench.md explains each. */
#ifndef PV_CLI_FIGURES_H
#define PV_CLI_FIGURES_H

#include "base/buf.h"
#include "prevue/prevue.h"

enum figure {
    FIG_TOKENS,
    FIG_DECODED, /* tokens without the first, which the prefill gives */
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
    FIG_DRAFT_VISION_S, /* if it is known separately from vision_s */
    FIG_DRAFT_PREFILL_S,
    FIG_DRAFT_S,
    FIG_VERIFY_S,
    FIG_DECODE_S,
    FIG_COLD_S,     /* wall time of a run in a new session; 0: there was none */
    FIG_PEAK_BYTES, /* of that run; the largest, not a sum */
    FIG_RUNS,       /* accepted tokens between two rejections form a run */
    FIG_RUN_TOKENS,
    FIG_PARALLEL_ROUNDS,
    FIG_STARTUP_TOKENS,
    FIG_WASTED,
    FIG_LONGEST_RUN, /* the longest, not a sum */
    FIG_WAIT_S,
    FIG_WINDOW,
    FIG_DRAFT_THREADS,
    FIG_DRAFT_ROWS,
    FIG_DRAFT_SLOTS,
    FIG_SCORED,     /* answers to multiple-choice questions whose right option is known */
    FIG_RIGHT,      /* how many of these chose it */
    FIG_LOSSY,      /* lossy answers */
    FIG_SAME_TEXT,  /* how many of these equal the answer of plain decoding */
    FIG_COMPARED,   /* tokens of the longer of the two answers */
    FIG_AGREED,     /* tokens of their longest common subsequence */
    FIG_VIDEO_KEPT, /* pv_stats.video_kept */
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
double agreement(const struct figures *f);     /* of lossy answers with the lossless ones */
double total_seconds(const struct figures *f); /* from opening the video to the last token */
/* Compared with plain decoding: the ratio of tokens per second (not of seconds, because answers
 * with simulated or rejection acceptance have other lengths), and the ratio of the times from
 * opening the video to the last token. */
double decode_speedup(const struct figures *mine, const struct figures *plain);
double total_speedup(const struct figures *mine, const struct figures *plain);

/* Adds "parallel":{...}, a member of a JSON object; f: sums over `clips` clips. */
void parallel_json(struct buf *b, const struct figures *f, double clips);
/* a / b; 0 if b is not positive. */
double quotient(double a, double b);

#endif
