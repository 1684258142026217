/* Samples and their order statistics. Medians are used, because other load on a shared machine only
 * makes runs slower, sometimes by a lot. */
#include "speed.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double seconds_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void samples_add(struct samples *x, double seconds)
{
    if (x->n < MAX_SAMPLES)
        x->s[x->n++] = seconds;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_at(const struct samples *x, double part)
{
    double sorted[MAX_SAMPLES], at = part * (x->n - 1);
    int below = (int)at;
    memcpy(sorted, x->s, sizeof *sorted * (size_t)x->n);
    qsort(sorted, (size_t)x->n, sizeof *sorted, compare);
    if (below + 1 >= x->n)
        return sorted[x->n - 1];
    return sorted[below] + (at - below) * (sorted[below + 1] - sorted[below]);
}

const char *test_name(enum test_kind kind)
{
    static const char *const names[] = { "decode", "verify", "prefill" };
    return names[kind];
}
