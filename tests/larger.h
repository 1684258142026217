/* The larger of two numbers, for loops that look for the worst error. fmax() will not do there, for
 * two reasons. It passes over NaN, so an error that is NaN would go unseen; here NaN stays. And
 * gcc 12 for aarch64 stops with an internal error (vect_transform_reduction) when it vectorises
 * certain loops that reduce with fmax(). */
#ifndef PV_TESTS_LARGER_H
#define PV_TESTS_LARGER_H

#include <math.h>

static inline double larger(double a, double b)
{
    return b <= a || isnan(a) ? a : b;
}

#endif
