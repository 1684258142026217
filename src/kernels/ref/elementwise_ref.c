/* The small operations of the decoder in plain C, written as the formulas in kernels.h. */
#include "kernels/f8_codes.h"
#include "kernels/kernels.h"
#include "tensor/half.h"

#include <math.h>

static void rmsnorm_ref(float *y, const float *x, const float *w, int n, float eps)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    float scale = 1.0f / sqrtf(sum / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = w[i] * (x[i] * scale);
}

static void layernorm_ref(float *y, const float *x, const float *w, const float *b, int n,
                          float eps)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    float mean = (float)(sum / n);
    for (int i = 0; i < n; i++)
        squares += (double)(x[i] - mean) * (double)(x[i] - mean);
    float scale = 1.0f / sqrtf((float)(squares / n) + eps);
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale * w[i] + b[i];
}

static void rope_ref(float *x, const float *cos, const float *sin, int d)
{
    int half = d / 2;
    for (int j = 0; j < half; j++) {
        float a = x[j], b = x[j + half];
        x[j] = a * cos[j] - b * sin[j];
        x[j + half] = b * cos[j] + a * sin[j];
    }
}

static void silu_mul_ref(float *g, const float *u, size_t n)
{
    for (size_t i = 0; i < n; i++)
        g[i] = g[i] / (1.0f + expf(-g[i])) * u[i];
}

/* 1 + tanh(u) is computed as 2 / (1 + exp(-2u)), and 1 + erf(u) as erfc(-u): this loses no digits
 * for u < 0. */
static void gelu_tanh_ref(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = x[i], u = 0.79788456080286535588 * (v + 0.044715 * v * v * v);
        x[i] = (float)(v / (1 + exp(-2 * u)));
    }
}

static void gelu_erf_ref(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(0.5 * x[i] * erfc(-0.70710678118654752440 * x[i]));
}

static void gelu_quick_ref(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(x[i] / (1 + exp(-1.702 * x[i])));
}

static void add_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void to_f16_ref(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f16_from_f32(x[i]);
}

static void f8_to_bf16_ref(uint16_t *y, const uint8_t *codes, const float *factors, int n)
{
    f8_to_bf16(y, codes, factors, n);
}

static void to_bf16_ref(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_from_f32(x[i]);
}

static float softmax_ref(float *p, const float *s, int n, int limit, float scale, float *max)
{
    float top = s[0], sum = 0;
    for (int i = 1; i < limit; i++)
        top = s[i] > top ? s[i] : top;
    for (int i = 0; i < limit; i++) {
        p[i] = expf(scale * (s[i] - top));
        sum += p[i];
    }
    for (int i = limit; i < n; i++)
        p[i] = 0;
    *max = scale * top;
    return sum;
}

static void scale_add_ref(float *acc, float a, const float *x, float b, int n)
{
    for (int i = 0; i < n; i++)
        acc[i] = acc[i] * a + x[i] * b;
}

static int argmax_ref(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best] || (x[best] != x[best] && x[i] == x[i]))
            best = i;
    return best;
}

void kernels_init_ref(struct kernels *k)
{
    *k = (struct kernels){
        .name = "ref",
        .rmsnorm = rmsnorm_ref,
        .layernorm = layernorm_ref,
        .rope = rope_ref,
        .silu_mul = silu_mul_ref,
        .gelu = { [GELU_TANH] = gelu_tanh_ref,
                  [GELU_ERF] = gelu_erf_ref,
                  [GELU_QUICK] = gelu_quick_ref },
        .add = add_ref,
        .to_f16 = to_f16_ref,
        .to_bf16 = to_bf16_ref,
        .f8_to_bf16 = f8_to_bf16_ref,
        .softmax = softmax_ref,
        .scale_add = scale_add_ref,
        .argmax = argmax_ref,
        .route = route_ref,
    };
    for (int t = 0; t < DTYPE_COUNT; t++)
        k->matmul[t] = k->matmul_any[t] = &matmul_ref[t];
}
