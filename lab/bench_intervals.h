/* Prints the statistics of a benchmark with several clips, as tables and as JSON. */
#ifndef PV_LAB_BENCH_INTERVALS_H
#define PV_LAB_BENCH_INTERVALS_H

#include "bench_stats.h"
#include "trial.h"

struct bench_profile {
    struct acceptance_profile of[MAX_CONTENDERS];
};

void profiles_add(struct bench_profile *p, const struct contenders *who,
                  const struct trial_result *r);
/* Tables of means with their confidence intervals, of differences from the first method with a
 * drafter, and of accepted tokens by round and by position in the answer. */
void intervals_table(struct buf *b, const struct bench_stats *s, const struct bench_profile *p,
                     const struct contenders *who);
/* "statistics":{...}: a member of a JSON object. */
void intervals_json(struct buf *b, const struct bench_stats *s, const struct bench_profile *p,
                    const struct contenders *who);

#endif
