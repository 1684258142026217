/* Traces: spans of time in which the model or the drafter of a session worked. Each side writes its
 * own trace. */
#ifndef PV_ENGINE_TRACE_H
#define PV_ENGINE_TRACE_H

#include "base/status.h"

enum { TRACE_MAX = 1 << 16 }; /* spans; later ones are dropped */

struct trace {
    bool on;
    double t0; /* clock_now() of time 0 */
    struct pv_span *span;
    size_t n, cap;
};

/* Start a new trace; earlier spans are dropped. */
void trace_begin(struct trace *t, bool on, double t0);
void trace_close(struct trace *t);
/* Add a span that began at clock_now() = `begin` and ends now; dropped if memory is missing. */
void trace_add(struct trace *t, enum pv_side side, const char *what, double begin, int rows);
/* The same for a verification of `rows` rows in which `accepted` drafted tokens were right. */
void trace_add_verify(struct trace *t, double begin, int rows, int accepted);
/* Add a span from `begin` to `end`. */
void trace_add_until(struct trace *t, enum pv_side side, const char *what, double begin, double end,
                     int rows);
/* Appends the spans of another. */
void trace_append(struct trace *t, const struct trace *other);

#endif
