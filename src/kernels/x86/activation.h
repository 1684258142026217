/* Activation functions on vectors: exponential, SiLU, the GELU variants. A template like
 * elementwise.h, for all files that apply them; each lane is computed independently, so all callers
 * get the same bits. */
#ifndef PV_KERNELS_X86_ACTIVATION_H
#define PV_KERNELS_X86_ACTIVATION_H

#include "kernels/x86/vec_x86.h"

/* exp(x) for x <= 0, within 2 units in the last place; exp(0) is 1. Below -87.3 the result is 0,
 * because the scale becomes 2^-127 = 0. x = n ln2 + r, |r| <= ln2 / 2; the polynomial is the Taylor
 * series of exp(r) up to r^7, whose first omitted term is below 2^-27. */
INLINE vec vec_exp(vec x)
{
    x = vec_max(x, vec_set(-104.0f));
    vec n = vec_round(vec_mul(x, vec_set(1.44269504f)));
    vec r = vec_fnma(n, vec_set(0.693145751953125f), x);
    r = vec_fnma(n, vec_set(1.42860677e-6f), r);
    vec p = vec_set(1.0f / 5040);
    p = vec_fma(p, r, vec_set(1.0f / 720));
    p = vec_fma(p, r, vec_set(1.0f / 120));
    p = vec_fma(p, r, vec_set(1.0f / 24));
    p = vec_fma(p, r, vec_set(1.0f / 6));
    p = vec_fma(p, r, vec_set(0.5f));
    p = vec_fma(p, r, vec_set(1.0f));
    p = vec_fma(p, r, vec_set(1.0f));
    return vec_scale2(p, n);
}

/* Clamp v to +-limit: beyond it the result does not change, and no denormals occur. */
INLINE vec within(vec v, float limit)
{
    return vec_max(vec_set(-limit), vec_min(vec_set(limit), v));
}

/* Up to so many vectors are processed together by an activation, a few operations at a time. One
 * after the other, their chains of dependent operations would fill the processor's scheduler. */
enum { ACT_MANY = 8 };

/* Set x to x / (1 + 2^(n + f)) for integral |n| <= 126, |f| <= 1/2; 2^f by a polynomial within
 * 2e-7. `count` is a compile-time constant. */
INLINE void logistic_many(vec *x, const vec *n, const vec *f, int count)
{
    vec p[ACT_MANY];
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        p[i] = vec_fma(vec_set(1.326470819e-3f), f[i], vec_set(9.671514665e-3f));
        p[i] = vec_fma(p[i], f[i], vec_set(5.550733812e-2f));
        p[i] = vec_fma(p[i], f[i], vec_set(2.402224205e-1f));
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        p[i] = vec_fma(p[i], f[i], vec_set(6.931469775e-1f));
        p[i] = vec_fma(p[i], f[i], vec_set(1.0f));
        p[i] = vec_add(vec_set(1.0f), vec_shift2(p[i], n[i]));
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        x[i] = vec_quotient(x[i], p[i]);
}

INLINE vec logistic(vec x, vec n, vec f)
{
    logistic_many(&x, &n, &f, 1);
    return x;
}

/* Set g to silu(g) * u. */
INLINE void silu_mul_many(vec *g, const vec *u, int count)
{
    const vec c = vec_set(-1.44269504f);
    vec n[ACT_MANY], f[ACT_MANY];
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        vec t = within(g[i], 87.3f);
        n[i] = vec_round(vec_mul(t, c));
        f[i] = vec_sub(vec_zero(), vec_fnma(t, c, n[i]));
    }
    logistic_many(g, n, f, count);
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        g[i] = vec_mul(g[i], u[i]);
}

INLINE vec silu_mul_one(vec g, vec u)
{
    silu_mul_many(&g, &u, 1);
    return g;
}

/* (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)); the constants are those of GELU's cubic times -2
 * log2(e). */
INLINE void gelu_tanh_many(vec *x, int count)
{
    vec n[ACT_MANY], f[ACT_MANY];
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        vec p = vec_fma(vec_mul(x[i], x[i]), vec_set(-0.102943240f), vec_set(-2.30220819f));
        f[i] = vec_mul(x[i], p);
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        vec v = within(f[i], 126);
        n[i] = vec_round(v);
        f[i] = vec_sub(v, n[i]);
    }
    logistic_many(x, n, f, count);
}

INLINE vec gelu_tanh_one(vec x)
{
    gelu_tanh_many(&x, 1);
    return x;
}

/* exp(-1.702 x) is 2^(c x). */
INLINE vec gelu_quick_one(vec x)
{
    vec t = within(x, 51.3f), c = vec_set(-2.45546696f), n = vec_round(vec_mul(t, c));
    return logistic(x, n, vec_sub(vec_zero(), vec_fnma(t, c, n)));
}

/* max(x, 0) - |x|/2 erfc(|x| / sqrt 2). erfc(y / sqrt 2) exp(y^2 / 2) is smooth and never far from
 * 1 / (1 + y): a polynomial of degree 9 in t = (y - 3) / (y + 3), fitted on 0..14 for the smallest
 * relative error (8e-9). Beyond 14 exp(-y^2 / 2) is 0. */
INLINE vec gelu_erf_one(vec x)
{
    const vec three = vec_set(3.0f);
    vec size = vec_abs(x), y = vec_min(size, vec_set(14.0f));
    vec t = vec_div(vec_sub(y, three), vec_add(y, three)), p = vec_set(1.07344167e-4f);
    p = vec_fma(p, t, vec_set(2.31087906e-4f));
    p = vec_fma(p, t, vec_set(-6.78970362e-4f));
    p = vec_fma(p, t, vec_set(-1.96751719e-3f));
    p = vec_fma(p, t, vec_set(5.80911245e-3f));
    p = vec_fma(p, t, vec_set(1.22641418e-2f));
    p = vec_fma(p, t, vec_set(-9.24265832e-2f));
    p = vec_fma(p, t, vec_set(2.46450067e-1f));
    p = vec_fma(p, t, vec_set(-4.12805229e-1f));
    p = vec_fma(p, t, vec_set(2.43027896e-1f));
    vec e = vec_exp(vec_mul(vec_mul(y, y), vec_set(-0.5f)));
    vec half = vec_mul(vec_mul(size, vec_set(0.5f)), vec_mul(p, e));
    return vec_sub(vec_max(x, vec_zero()), half);
}

#endif
