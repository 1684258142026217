/* Stores spans in growing arrays. */
#include "engine/trace.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum { FIRST_SPANS = 256 };

void trace_begin(struct trace *t, bool on, double t0)
{
    t->on = on;
    t->t0 = t0;
    t->n = 0;
}

void trace_close(struct trace *t)
{
    mem_free(t->span);
    *t = (struct trace){ 0 };
}

static bool reserve(struct trace *t, size_t n)
{
    size_t cap = t->cap ? t->cap : FIRST_SPANS;
    struct pv_span *span;
    if (n > TRACE_MAX)
        return false;
    while (cap < n)
        cap *= 2;
    if (cap == t->cap)
        return true;
    span = mem_realloc(t->span, cap * sizeof *span);
    if (!span)
        return false;
    t->span = span;
    t->cap = cap;
    return true;
}

void trace_add(struct trace *t, enum pv_side side, const char *what, double begin, int rows)
{
    if (t->on)
        trace_add_until(t, side, what, begin, clock_now(), rows);
}

void trace_add_until(struct trace *t, enum pv_side side, const char *what, double begin, double end,
                     int rows)
{
    if (!t->on || !reserve(t, t->n + 1))
        return;
    t->span[t->n++] = (struct pv_span){
        .side = side, .what = what, .begin = begin - t->t0, .end = end - t->t0, .rows = rows
    };
}

void trace_add_verify(struct trace *t, double begin, int rows, int accepted)
{
    size_t n = t->n;
    trace_add(t, PV_SIDE_MODEL, "verify", begin, rows);
    if (t->n > n)
        t->span[n].accepted = accepted;
}

void trace_append(struct trace *t, const struct trace *other)
{
    if (other->n == 0 || !reserve(t, t->n + other->n))
        return;
    memcpy(t->span + t->n, other->span, other->n * sizeof *t->span);
    t->n += other->n;
}
