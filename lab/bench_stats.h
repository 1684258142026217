/* Statistics of a benchmark over several clips: means with 95 % confidence intervals, paired
 * differences of methods, accepted tokens by round and by position in the answer, and the speed-up
 * that a closed formula predicts. */
#ifndef PV_LAB_BENCH_STATS_H
#define PV_LAB_BENCH_STATS_H

#include "figures.h"

enum { STATS_RESAMPLES = 1000, STATS_ROUNDS = 8, STATS_PARTS = 10 };

/* The figures of every clip and method. All zero: empty. */
struct bench_stats {
    struct figures *cell; /* [clips, methods], owned */
    int clips, cap, methods;
};

struct interval {
    double value, low, high; /* low..high contains 95 % of the resampled sets of clips */
};

/* A quantity of a method, from its sums over clips and those of plain decoding. */
typedef double stats_fn(const struct figures *mine, const struct figures *plain);

/* Add a clip: the figures of `methods` methods, plain decoding first. False: out of memory. */
bool stats_add(struct bench_stats *s, const struct figures *cells, int methods);
void stats_clear(struct bench_stats *s);

/* Percentile bootstrap over clips: sums over as many clips drawn with replacement. The draws are
 * the same at every call, so that differences are paired. False: out of memory. */
bool stats_interval(const struct bench_stats *s, int method, stats_fn *fn, struct interval *out);
/* The same for the difference, method a minus method b. */
bool stats_difference(const struct bench_stats *s, int a, int b, stats_fn *fn,
                      struct interval *out);

/* Accepted tokens per verification: for the first rounds of the answers, and for each tenth. */
struct acceptance_profile {
    double round_sum[STATS_ROUNDS], round_n[STATS_ROUNDS];
    double part_sum[STATS_PARTS], part_n[STATS_PARTS];
};
/* Add an answer: the tokens that each of its n verifications accepted. */
void profile_add(struct acceptance_profile *p, const int *accepted, int n);

/* The kind of a method's rounds, for the closed formula. */
enum round_form { ROUND_CHAIN, ROUND_TREE, ROUND_PARALLEL };
/* The speed-up of decoding that the closed formula predicts from the acceptance and the step times
 * in these sums; 0: nothing was drafted. */
double predicted_speedup(enum round_form form, const struct figures *mine,
                         const struct figures *plain);
/* c = T_p / T_q: the time of the model's pass over one row divided by that of the drafter's. */
double step_ratio(const struct figures *mine, const struct figures *plain);

#endif
