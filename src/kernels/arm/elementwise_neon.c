/* The small operations of the decoder with NEON. Sums use four vectors of four lanes, element i in
 * lane i mod 16, added up in one fixed order, so they depend only on the row. */
#include "kernels/arm/arm.h"
#include "tensor/half.h"

#include <arm_neon.h>
#include <math.h>

/* exp(x) for finite x: x = n ln 2 + r with |r| <= ln 2 / 2, then 2^n times a polynomial of degree 7
 * in r (Taylor; the first term left out is below 6e-9). exp(0) is exactly 1; below -87.3, where the
 * result would be subnormal, it is 0; above 88 it stays at e^88. */
static inline float32x4_t exp_neon(float32x4_t x)
{
    uint32x4_t normal = vcgeq_f32(x, vdupq_n_f32(-87.3f));
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-87.3f)), vdupq_n_f32(88.0f));
    /* Adding the product to 1.5 * 2^23 rounds it to an integer, which is in the low bits. */
    float32x4_t magic = vdupq_n_f32(0x1.8p23f);
    float32x4_t z = vfmaq_n_f32(magic, x, 0x1.715476p+0f), n = vsubq_f32(z, magic);
    /* ln 2 in two parts: the first has 11 low bits zero, so n * ln2_hi is exact. */
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1f));
    r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20f));
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    int32x4_t scale = vshlq_n_s32(vreinterpretq_s32_f32(z), 23);
    p = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), scale));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(p), normal));
}

/* 2^t for t <= 0, for softmax: 2^round(t) times a polynomial of degree 5 in the rest, fitted for
 * the smallest relative error (9e-8) with p(0) = 1. At the lower clamp the exponent field comes out
 * as zero and so does the result; just above it, where 2^t is subnormal, it is below 2^-126 too. */
static inline float32x4_t exp2_neon(float32x4_t t)
{
    float32x4_t magic = vdupq_n_f32(0x1.8p23f);
    t = vmaxq_f32(t, vdupq_n_f32(-127.0f));
    float32x4_t z = vaddq_f32(t, magic), r = vsubq_f32(t, vsubq_f32(z, magic));
    float32x4_t p = vdupq_n_f32(0x1.5bba14p-10f);
    p = vfmaq_f32(vdupq_n_f32(0x1.3cea88p-7f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.c6b752p-5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.ebf9bcp-3f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.62e42ap-1f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    int32x4_t scale = vshlq_n_s32(vreinterpretq_s32_f32(z), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), scale));
}

/* Load the last n < 4 floats of a row, with the given value in the other lanes; and store them. */
static inline float32x4_t load_tail(const float *x, int n, float rest)
{
    float lane[4] = { rest, rest, rest, rest };
    for (int i = 0; i < n; i++)
        lane[i] = x[i];
    return vld1q_f32(lane);
}

static inline void store_tail(float *y, float32x4_t v, int n)
{
    float lane[4];
    vst1q_f32(lane, v);
    for (int i = 0; i < n; i++)
        y[i] = lane[i];
}

static inline float sum16(const float32x4_t *s)
{
    float32x4_t v = vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3]));
    v = vpaddq_f32(v, v);
    return vgetq_lane_f32(v, 0) + vgetq_lane_f32(v, 1);
}

static void rmsnorm_neon(float *y, const float *x, const float *w, int n, float eps)
{
    float32x4_t s[4] = { vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0) };
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++) {
            float32x4_t v = vld1q_f32(x + i + 4 * j);
            s[j] = vfmaq_f32(s[j], v, v);
        }
    for (int j = 0; i < n; i += 4, j++) {
        float32x4_t v = i + 4 <= n ? vld1q_f32(x + i) : load_tail(x + i, n - i, 0);
        s[j] = vfmaq_f32(s[j], v, v);
    }
    float scale = 1.0f / sqrtf(sum16(s) / (float)n + eps);
    for (i = 0; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vmulq_f32(vld1q_f32(w + i), vmulq_n_f32(vld1q_f32(x + i), scale)));
    for (; i < n; i++)
        y[i] = w[i] * (x[i] * scale);
}

/* Sum over a row of x - mean, or of its square. */
static inline float row_sum(const float *x, int n, float mean, bool squared)
{
    float32x4_t s[4] = { vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0) };
    float32x4_t mean4 = vdupq_n_f32(mean);
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++) {
            float32x4_t v = vsubq_f32(vld1q_f32(x + i + 4 * j), mean4);
            s[j] = squared ? vfmaq_f32(s[j], v, v) : vaddq_f32(s[j], v);
        }
    for (int j = 0; i < n; i += 4, j++) {
        float32x4_t v = i + 4 <= n ? vld1q_f32(x + i) : load_tail(x + i, n - i, mean);
        v = vsubq_f32(v, mean4);
        s[j] = squared ? vfmaq_f32(s[j], v, v) : vaddq_f32(s[j], v);
    }
    return sum16(s);
}

static void layernorm_neon(float *y, const float *x, const float *w, const float *b, int n,
                           float eps)
{
    float mean = row_sum(x, n, 0, false) / (float)n;
    float scale = 1.0f / sqrtf(row_sum(x, n, mean, true) / (float)n + eps);
    float32x4_t mean4 = vdupq_n_f32(mean);
    int i;
    for (i = 0; i + 4 <= n; i += 4) {
        float32x4_t v = vmulq_n_f32(vsubq_f32(vld1q_f32(x + i), mean4), scale);
        vst1q_f32(y + i, vfmaq_f32(vld1q_f32(b + i), v, vld1q_f32(w + i)));
    }
    if (i < n) {
        float32x4_t v = vmulq_n_f32(vsubq_f32(load_tail(x + i, n - i, 0), mean4), scale);
        v = vfmaq_f32(load_tail(b + i, n - i, 0), v, load_tail(w + i, n - i, 0));
        store_tail(y + i, v, n - i);
    }
}

static void rope_neon(float *x, const float *cos, const float *sin, int d)
{
    int half = d / 2, j = 0;
    for (; j + 4 <= half; j += 4) {
        float32x4_t a = vld1q_f32(x + j), b = vld1q_f32(x + j + half);
        float32x4_t c = vld1q_f32(cos + j), s = vld1q_f32(sin + j);
        vst1q_f32(x + j, vsubq_f32(vmulq_f32(a, c), vmulq_f32(b, s)));
        vst1q_f32(x + j + half, vaddq_f32(vmulq_f32(b, c), vmulq_f32(a, s)));
    }
    for (; j < half; j++) {
        float a = x[j], b = x[j + half];
        x[j] = a * cos[j] - b * sin[j];
        x[j + half] = b * cos[j] + a * sin[j];
    }
}

static inline float32x4_t silu(float32x4_t g)
{
    return vdivq_f32(g, vaddq_f32(vdupq_n_f32(1.0f), exp_neon(vnegq_f32(g))));
}

static void silu_mul_neon(float *g, const float *u, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(g + i, vmulq_f32(silu(vld1q_f32(g + i)), vld1q_f32(u + i)));
    if (i < n) {
        int rest = (int)(n - i);
        float32x4_t v = vmulq_f32(silu(load_tail(g + i, rest, 0)), load_tail(u + i, rest, 0));
        store_tail(g + i, v, rest);
    }
}

/* x / (1 + exp(-2u)), which is x (1 + tanh(u)) / 2. */
static inline float32x4_t gelu_tanh_one(float32x4_t x)
{
    float32x4_t cube = vmulq_f32(vmulq_f32(x, x), vmulq_n_f32(x, 0.044715f));
    float32x4_t u = vmulq_n_f32(vaddq_f32(x, cube), -1.5957691216f);
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), exp_neon(u)));
}

/* max(x, 0) - |x|/2 erfc(|x| / sqrt 2). erfc(y / sqrt 2) exp(y^2 / 2) is smooth and never far from
 * 1 / (1 + y): a polynomial of degree 9 in t = (y - 3) / (y + 3), fitted on 0..14 for the smallest
 * relative error (8e-9). Beyond 14 exp(-y^2 / 2) is 0. */
static inline float32x4_t gelu_erf_one(float32x4_t x)
{
    static const float c[] = { 2.31087906e-4f, -6.78970362e-4f, -1.96751719e-3f,
                               5.80911245e-3f, 1.22641418e-2f,  -9.24265832e-2f,
                               2.46450067e-1f, -4.12805229e-1f, 2.43027896e-1f };
    float32x4_t size = vabsq_f32(x), y = vminq_f32(size, vdupq_n_f32(14.0f));
    float32x4_t three = vdupq_n_f32(3.0f), p = vdupq_n_f32(1.07344167e-4f);
    float32x4_t t = vdivq_f32(vsubq_f32(y, three), vaddq_f32(y, three));
    for (int i = 0; i < 9; i++)
        p = vfmaq_f32(vdupq_n_f32(c[i]), p, t);
    float32x4_t e = exp_neon(vmulq_n_f32(vmulq_f32(y, y), -0.5f));
    float32x4_t half = vmulq_f32(vmulq_n_f32(size, 0.5f), vmulq_f32(p, e));
    return vsubq_f32(vmaxq_f32(x, vdupq_n_f32(0)), half);
}

static inline float32x4_t gelu_quick_one(float32x4_t x)
{
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), exp_neon(vmulq_n_f32(x, -1.702f))));
}

static void gelu_quick_neon(float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(x + i, gelu_quick_one(vld1q_f32(x + i)));
    if (i < n)
        store_tail(x + i, gelu_quick_one(load_tail(x + i, (int)(n - i), 0)), (int)(n - i));
}

static void gelu_tanh_neon(float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(x + i, gelu_tanh_one(vld1q_f32(x + i)));
    if (i < n)
        store_tail(x + i, gelu_tanh_one(load_tail(x + i, (int)(n - i), 0)), (int)(n - i));
}

static void gelu_erf_neon(float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(x + i, gelu_erf_one(vld1q_f32(x + i)));
    if (i < n)
        store_tail(x + i, gelu_erf_one(load_tail(x + i, (int)(n - i), 0)), (int)(n - i));
}

static void add_neon(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), vld1q_f32(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

static void to_f16_neon(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u16(y + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
    for (; i < n; i++)
        y[i] = f16_from_f32(x[i]);
}

static void to_bf16_neon(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        float32x4_t v = vld1q_f32(x + i);
        uint32x4_t u = vreinterpretq_u32_f32(v);
        uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
        uint16x4_t rounded = vshrn_n_u32(vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
        uint16x4_t quiet = vorr_u16(vshrn_n_u32(u, 16), vdup_n_u16(64));
        vst1_u16(y + i, vbsl_u16(vmovn_u32(vceqq_f32(v, v)), rounded, quiet));
    }
    for (; i < n; i++)
        y[i] = bf16_from_f32(x[i]);
}

/* Lanes below n keep their value, the others become `rest`. */
static inline float32x4_t keep_lanes(float32x4_t v, int n, float rest)
{
    static const int32_t lane[4] = { 0, 1, 2, 3 };
    return vbslq_f32(vcltq_s32(vld1q_s32(lane), vdupq_n_s32(n)), v, vdupq_n_f32(rest));
}

/* The largest of s[0 .. limit - 1]; whole vectors may be read. */
static inline float largest(const float *s, int limit)
{
    float32x4_t top[4];
    int i = 0;
    for (int j = 0; j < 4; j++)
        top[j] = vdupq_n_f32(s[0]);
    for (; i + 16 <= limit; i += 16)
        for (int j = 0; j < 4; j++)
            top[j] = vmaxq_f32(top[j], vld1q_f32(s + i + 4 * j));
    for (; i < limit; i += 4)
        top[0] = vmaxq_f32(top[0], keep_lanes(vld1q_f32(s + i), limit - i, s[0]));
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(top[0], top[1]), vmaxq_f32(top[2], top[3])));
}

float softmax_neon(float *p, const float *s, int n, int limit, float scale, float *max)
{
    float32x4_t sum[4] = { vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0) };
    float top = largest(s, limit), log2_scale = scale * 0x1.715476p+0f;
    float32x4_t top_all = vdupq_n_f32(top);
    int i;
    for (i = 0; i + 16 <= limit; i += 16)
        for (int j = 0; j < 4; j++) {
            float32x4_t v = vsubq_f32(vld1q_f32(s + i + 4 * j), top_all);
            v = exp2_neon(vmulq_n_f32(v, log2_scale));
            vst1q_f32(p + i + 4 * j, v);
            sum[j] = vaddq_f32(sum[j], v);
        }
    for (int j = 0; i < limit; i += 4, j++) {
        float32x4_t v = vsubq_f32(keep_lanes(vld1q_f32(s + i), limit - i, top), top_all);
        v = keep_lanes(exp2_neon(vmulq_n_f32(v, log2_scale)), limit - i, 0);
        vst1q_f32(p + i, v);
        sum[j] = vaddq_f32(sum[j], v);
    }
    for (; i < n; i += 4)
        vst1q_f32(p + i, vdupq_n_f32(0));
    *max = scale * top;
    return sum16(sum);
}

static void scale_add_neon(float *acc, float a, const float *x, float b, int n)
{
    int i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(acc + i,
                  vaddq_f32(vmulq_n_f32(vld1q_f32(acc + i), a), vmulq_n_f32(vld1q_f32(x + i), b)));
    for (; i < n; i++)
        acc[i] = acc[i] * a + x[i] * b;
}

/* Finds the largest value by FMAXNM, which ignores NaN, then the first index with this value. */
static int argmax_neon(const float *x, int n)
{
    float32x4_t top4[4];
    int i = 0;
    for (int j = 0; j < 4; j++)
        top4[j] = vdupq_n_f32(-INFINITY);
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++)
            top4[j] = vmaxnmq_f32(top4[j], vld1q_f32(x + i + 4 * j));
    for (int j = 0; i < n; i += 4, j++)
        top4[j] = vmaxnmq_f32(top4[j],
                              i + 4 <= n ? vld1q_f32(x + i) : load_tail(x + i, n - i, -INFINITY));
    float top =
        vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(top4[0], top4[1]), vmaxnmq_f32(top4[2], top4[3])));
    for (i = 0; i + 4 <= n; i += 4)
        if (vmaxvq_u32(vceqq_f32(vld1q_f32(x + i), vdupq_n_f32(top))))
            break;
    for (; i < n; i++)
        if (x[i] == top)
            return i;
    return 0;
}

void elementwise_init_neon(struct kernels *k)
{
    k->rmsnorm = rmsnorm_neon;
    k->layernorm = layernorm_neon;
    k->rope = rope_neon;
    k->silu_mul = silu_mul_neon;
    k->gelu[GELU_TANH] = gelu_tanh_neon;
    k->gelu[GELU_ERF] = gelu_erf_neon;
    k->gelu[GELU_QUICK] = gelu_quick_neon;
    k->add = add_neon;
    k->to_f16 = to_f16_neon;
    k->to_bf16 = to_bf16_neon;
    k->softmax = softmax_neon;
    k->scale_add = scale_add_neon;
    k->argmax = argmax_neon;
}
