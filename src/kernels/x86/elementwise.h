/* The small operations over vectors of VEC floats: a template, compiled once per instruction
 * set. Sums use fixed lanes (element i in lane i mod VEC), so they depend on the
 * length alone. */
#ifndef PV_KERNELS_X86_ELEMENTWISE_H
#define PV_KERNELS_X86_ELEMENTWISE_H

#include "kernels/f8_codes.h"
#include "kernels/kernels.h"
#include "kernels/x86/activation.h"

#include <math.h>

static void rmsnorm_vec(float *y, const float *x, const float *w, int n, float eps)
{
    vec sum = vec_zero();
    int i = 0, rest = n % VEC;

    for (; i < n - rest; i += VEC) {
        vec v = vec_load(x + i);
        sum = vec_fma(v, v, sum);
    }
    if (rest) {
        vec v = vec_load_part(x + i, rest);
        sum = vec_fma(v, v, sum);
    }
    vec scale = vec_set(1.0f / sqrtf(vec_sum(sum) / (float)n + eps));
    for (i = 0; i < n - rest; i += VEC)
        vec_store(y + i, vec_mul(vec_load(w + i), vec_mul(vec_load(x + i), scale)));
    if (rest)
        vec_store_part(
            y + i, vec_mul(vec_load_part(w + i, rest), vec_mul(vec_load_part(x + i, rest), scale)),
            rest);
}

static void layernorm_vec(float *y, const float *x, const float *w, const float *b, int n,
                          float eps)
{
    vec sum = vec_zero(), squares = vec_zero();
    int i = 0, rest = n % VEC;

    for (; i < n - rest; i += VEC)
        sum = vec_add(sum, vec_load(x + i));
    if (rest)
        sum = vec_add(sum, vec_load_part(x + i, rest));
    vec mean = vec_set(vec_sum(sum) / (float)n);
    for (i = 0; i < n - rest; i += VEC) {
        vec v = vec_sub(vec_load(x + i), mean);
        squares = vec_fma(v, v, squares);
    }
    if (rest) {
        vec v = vec_keep(vec_sub(vec_load_part(x + i, rest), mean), rest, 0);
        squares = vec_fma(v, v, squares);
    }
    vec scale = vec_set(1.0f / sqrtf(vec_sum(squares) / (float)n + eps));
    for (i = 0; i < n - rest; i += VEC) {
        vec v = vec_mul(vec_sub(vec_load(x + i), mean), scale);
        vec_store(y + i, vec_fma(v, vec_load(w + i), vec_load(b + i)));
    }
    if (rest) {
        vec v = vec_mul(vec_sub(vec_load_part(x + i, rest), mean), scale);
        v = vec_fma(v, vec_load_part(w + i, rest), vec_load_part(b + i, rest));
        vec_store_part(y + i, v, rest);
    }
}

static void rope_vec(float *x, const float *cos, const float *sin, int d)
{
    int half = d / 2, j = 0, rest = half % VEC;
    float *hi = x + half;

    for (; j < half - rest; j += VEC) {
        vec a = vec_load(x + j), b = vec_load(hi + j), c = vec_load(cos + j), s = vec_load(sin + j);
        vec_store(x + j, vec_fnma(b, s, vec_mul(a, c)));
        vec_store(hi + j, vec_fma(a, s, vec_mul(b, c)));
    }
    if (rest) {
        vec a = vec_load_part(x + j, rest), b = vec_load_part(hi + j, rest);
        vec c = vec_load_part(cos + j, rest), s = vec_load_part(sin + j, rest);
        vec_store_part(x + j, vec_fnma(b, s, vec_mul(a, c)), rest);
        vec_store_part(hi + j, vec_fma(a, s, vec_mul(b, c)), rest);
    }
}

static void silu_mul_vec(float *g, const float *u, size_t n)
{
    size_t i = 0, rest = n % VEC;
    for (; i < n - rest; i += VEC)
        vec_store(g + i, silu_mul_one(vec_load(g + i), vec_load(u + i)));
    if (rest)
        vec_store_part(
            g + i, silu_mul_one(vec_load_part(g + i, (int)rest), vec_load_part(u + i, (int)rest)),
            (int)rest);
}

static void gelu_tanh_vec(float *x, size_t n)
{
    size_t i = 0, rest = n % VEC;
    for (; i < n - rest; i += VEC)
        vec_store(x + i, gelu_tanh_one(vec_load(x + i)));
    if (rest)
        vec_store_part(x + i, gelu_tanh_one(vec_load_part(x + i, (int)rest)), (int)rest);
}

static void gelu_erf_vec(float *x, size_t n)
{
    size_t i = 0, rest = n % VEC;
    for (; i < n - rest; i += VEC)
        vec_store(x + i, gelu_erf_one(vec_load(x + i)));
    if (rest)
        vec_store_part(x + i, gelu_erf_one(vec_load_part(x + i, (int)rest)), (int)rest);
}

static void gelu_quick_vec(float *x, size_t n)
{
    size_t i = 0, rest = n % VEC;
    for (; i < n - rest; i += VEC)
        vec_store(x + i, gelu_quick_one(vec_load(x + i)));
    if (rest)
        vec_store_part(x + i, gelu_quick_one(vec_load_part(x + i, (int)rest)), (int)rest);
}

static void add_vec(float *y, const float *x, size_t n)
{
    size_t i = 0, rest = n % VEC;
    for (; i < n - rest; i += VEC)
        vec_store(y + i, vec_add(vec_load(y + i), vec_load(x + i)));
    if (rest)
        vec_store_part(y + i,
                       vec_add(vec_load_part(y + i, (int)rest), vec_load_part(x + i, (int)rest)),
                       (int)rest);
}

static void to_f16_vec(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0, rest = n % VEC;
    uint16_t part[VEC];
    for (; i < n - rest; i += VEC)
        vec_store_f16(y + i, vec_load(x + i));
    if (rest) {
        vec_store_f16(part, vec_load_part(x + i, (int)rest));
        memcpy(y + i, part, sizeof *y * rest);
    }
}

static void to_bf16_vec(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0, rest = n % VEC;
    uint16_t part[VEC];
    for (; i < n - rest; i += VEC)
        vec_store_bf16(y + i, vec_load(x + i));
    if (rest) {
        vec_store_bf16(part, vec_load_part(x + i, (int)rest));
        memcpy(y + i, part, sizeof *y * rest);
    }
}

static float softmax_vec(float *p, const float *s, int n, int limit, float scale, float *max)
{
    int whole = limit / VEC * VEC, rest = limit - whole, i;
    vec high = vec_set(-INFINITY), sum = vec_zero(), factor = vec_set(scale);

    for (i = 0; i < whole; i += VEC)
        high = vec_max(high, vec_load(s + i));
    if (rest)
        high = vec_max(high, vec_keep(vec_load_part(s + i, rest), rest, -INFINITY));
    float top = vec_top(high);
    high = vec_set(top);
    for (i = 0; i < whole; i += VEC) {
        vec e = vec_exp(vec_mul(factor, vec_sub(vec_load(s + i), high)));
        vec_store(p + i, e);
        sum = vec_add(sum, e);
    }
    if (rest) {
        vec e = vec_exp(vec_mul(factor, vec_sub(vec_load_part(s + i, rest), high)));
        e = vec_keep(e, rest, 0);
        vec_store(p + i, e); /* n is a multiple of 64, so this stays inside p */
        sum = vec_add(sum, e);
        i += VEC;
    }
    for (; i < n; i += VEC)
        vec_store(p + i, vec_zero());
    *max = scale * top;
    return vec_sum(sum);
}

static void scale_add_vec(float *acc, float a, const float *x, float b, int n)
{
    vec va = vec_set(a), vb = vec_set(b);
    int i = 0, rest = n % VEC;
    for (; i < n - rest; i += VEC)
        vec_store(acc + i, vec_fma(vec_load(acc + i), va, vec_mul(vec_load(x + i), vb)));
    if (rest)
        vec_store_part(
            acc + i,
            vec_fma(vec_load_part(acc + i, rest), va, vec_mul(vec_load_part(x + i, rest), vb)),
            rest);
}

/* First find the largest value, then its first position: both passes are fast, and the first need
 * not handle ties. vec_max(NaN, m) is m, so NaN is ignored. */
static int argmax_vec(const float *x, int n)
{
    int whole = n / VEC * VEC, rest = n - whole, i;
    vec high = vec_set(-INFINITY);

    for (i = 0; i < whole; i += VEC)
        high = vec_max(vec_load(x + i), high);
    if (rest)
        high = vec_max(vec_keep(vec_load_part(x + i, rest), rest, -INFINITY), high);
    high = vec_set(vec_top(high));
    for (i = 0; i < whole; i += VEC) {
        unsigned at = vec_equal(vec_load(x + i), high);
        if (at)
            return i + __builtin_ctz(at);
    }
    if (rest) {
        unsigned at = vec_equal(vec_load_part(x + i, rest), high) & ((1u << rest) - 1);
        if (at)
            return i + __builtin_ctz(at);
    }
    return 0; /* NaN everywhere */
}

static void f8_to_bf16_vec(uint16_t *y, const uint8_t *codes, const float *factors, int n)
{
    f8_to_bf16(y, codes, factors, n);
}

static void elementwise_init(struct kernels *k)
{
    k->rmsnorm = rmsnorm_vec;
    k->layernorm = layernorm_vec;
    k->rope = rope_vec;
    k->silu_mul = silu_mul_vec;
    k->gelu[GELU_TANH] = gelu_tanh_vec;
    k->gelu[GELU_ERF] = gelu_erf_vec;
    k->gelu[GELU_QUICK] = gelu_quick_vec;
    k->add = add_vec;
    k->to_f16 = to_f16_vec;
    k->to_bf16 = to_bf16_vec;
    k->f8_to_bf16 = f8_to_bf16_vec;
    k->softmax = softmax_vec;
    k->scale_add = scale_add_vec;
    k->argmax = argmax_vec;
}

#endif
