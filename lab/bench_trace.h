/* Writes the timelines of model and drafter in the format of chrome://tracing and Perfetto. */
#ifndef PV_LAB_BENCH_TRACE_H
#define PV_LAB_BENCH_TRACE_H

#include "base/buf.h"
#include "trial.h"

/* "model", "drafter" */
const char *side_name(enum pv_side side);

/* Adds the events of one clip, separated by commas, so that several clips can share one array. Each
 * method becomes a process and each of its sides a thread. *processes counts the methods. */
void trace_events(struct buf *b, const char *clip, const struct contenders *who,
                  const struct trial_result *r, int *processes);

#endif
