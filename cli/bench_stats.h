/* What the figures of a benchmark say beyond its clips: means with 95 % intervals, differences of
 * methods on the same clips, accepted tokens by round and by place in the answer, and what the
 * closed form predicts. */
#ifndef PV_CLI_BENCH_STATS_H
#define PV_CLI_BENCH_STATS_H

#include "figures.h"

enum { STATS_RESAMPLES = 1000, STATS_ROUNDS = 8, STATS_PARTS = 10 };

/* The figures of every clip and method. All zero: empty. */
struct bench_stats {
    struct figures *cell; /* [clips, methods], owned */
    int clips, cap, methods;
};

struct interval {
    double value, low, high; /* 95 % of resampled sets of clips give low to high */
};

/* A quantity of a method, from its sums over clips and those of plain decoding. */
typedef double stats_fn(const struct figures *mine, const struct figures *plain);

/* One more clip: the figures of `methods` methods, plain decoding first. False: out of memory. */
bool stats_add(struct bench_stats *s, const struct figures *cells, int methods);
void stats_clear(struct bench_stats *s);

/* Percentile bootstrap over clips: sums over as many clips drawn with replacement. The draws are
 * the same at every call, so that differences are paired. False: out of memory. */
bool stats_interval(const struct bench_stats *s, int method, stats_fn *fn, struct interval *out);
/* Method a less method b. */
bool stats_difference(const struct bench_stats *s, int a, int b, stats_fn *fn,
                      struct interval *out);

/* Accepted tokens of verifications: of the first rounds of the answers, and of tenths of them. */
struct acceptance_profile {
    double round_sum[STATS_ROUNDS], round_n[STATS_ROUNDS];
    double part_sum[STATS_PARTS], part_n[STATS_PARTS];
};
/* One more answer: what each of its n verifications accepted. */
void profile_add(struct acceptance_profile *p, const int *accepted, int n);

/* How a method's rounds go, for the closed form. */
enum round_form { ROUND_CHAIN, ROUND_TREE, ROUND_PARALLEL };
/* The speed-up of decoding that the closed form gives for the acceptance and the times of steps in
 * these sums; 0: nothing was drafted. */
double predicted_speedup(enum round_form form, const struct figures *mine,
                         const struct figures *plain);
/* c = T_p / T_q: the time of the model's pass over one row to that of one of the drafter's. */
double step_ratio(const struct figures *mine, const struct figures *plain);

/* Against plain decoding: tokens a second (and not seconds: answers of simulated and of rejecting
 * methods have other lengths), and seconds from opening the video to the last token. */
double decode_speedup(const struct figures *mine, const struct figures *plain);
double total_speedup(const struct figures *mine, const struct figures *plain);

#endif
