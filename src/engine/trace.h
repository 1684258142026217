/* Spans of time: what a side of a session did when. Each side writes a trace of its own. */
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

/* Forgets what there was. */
void trace_begin(struct trace *t, bool on, double t0);
void trace_close(struct trace *t);
/* Something that began at clock_now() = `begin` and ends now. Without memory it is not noted. */
void trace_add(struct trace *t, enum pv_side side, const char *what, double begin, int rows);
/* A verification of `rows` rows; `accepted` drafted tokens were right. */
void trace_add_verify(struct trace *t, double begin, int rows, int accepted);
/* Something that was done from `begin` to `end`. */
void trace_add_until(struct trace *t, enum pv_side side, const char *what, double begin, double end,
                     int rows);
/* Appends the spans of another. */
void trace_append(struct trace *t, const struct trace *other);

#endif
