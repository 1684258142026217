/* What both sides did when, in the form that chrome://tracing and Perfetto open. */
#ifndef PV_CLI_BENCH_TRACE_H
#define PV_CLI_BENCH_TRACE_H

#include "base/buf.h"
#include "trial.h"

/* "model", "drafter" */
const char *side_name(enum pv_side side);

/* Events of one clip, each method a process and each of its sides a thread; separated by commas, so
 * that those of several clips can follow each other in one array. *processes counts them. */
void trace_events(struct buf *b, const char *clip, const struct contenders *who,
                  const struct trial_result *r, int *processes);

#endif
