/* Proof of the small operations: norms, rotations, activations, roundings, softmax, argmax.
 * Vectors end at an unreadable page and have lengths with every kind of tail. */
#include "check.h"

#include "larger.h"
#include "tensor/half.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int lengths[] = { 1,  2,  3,  4,  5,  7,  8,   9,   12,  15,   16,  17,
                               24, 31, 32, 33, 63, 64, 127, 128, 250, 1001, 4864 };
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

/* A fenced vector of n floats, normal times `size`. */
static float *vector_open(struct check *c, struct fence *f, int n, float size)
{
    fence_open(f, sizeof(float) * (size_t)n, sizeof(float));
    float *v = f->p;
    for (int i = 0; i < n; i++)
        v[i] = size * rng_normal(&c->rng);
    return v;
}

static void vector_close(struct check *c, struct fence *f)
{
    if (!fence_whole(f))
        check_fail(c, "wrote outside a vector of %zu bytes", f->size);
    fence_close(f);
}

static void expect(struct check *c, int n, int i, double got, double exact, double tol)
{
    if (!(fabs(got - exact) <= tol))
        check_fail(c, "n=%d: [%d] is %.9g, not %.9g +- %.3g", n, i, got, exact, tol);
}

static void check_rmsnorm(struct check *c)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        struct fence fx, fw, fy;
        int n = lengths[l];
        float *x = vector_open(c, &fx, n, l % 2 ? 1e-3f : 3), *w = vector_open(c, &fw, n, 1);
        float *y = vector_open(c, &fy, n, 1), eps = 1e-6f;
        double sum = 0;

        for (int i = 0; i < n; i++)
            sum += (double)x[i] * x[i];
        double scale = 1 / sqrt(sum / n + eps), tol = (8 + sqrt(n)) * FLT_EPSILON;
        c->k.rmsnorm(y, x, w, n, eps);
        for (int i = 0; i < n; i++)
            expect(c, n, i, y[i], w[i] * (x[i] * scale), tol * fabs(w[i] * (x[i] * scale)));
        c->k.rmsnorm(x, x, w, n, eps);
        if (memcmp(x, y, fx.size))
            check_fail(c, "n=%d: in place gives other bits", n);
        vector_close(c, &fx);
        vector_close(c, &fw);
        vector_close(c, &fy);
    }
}

/* Rows whose mean is far larger than what varies, too: the mean must go first. */
static void check_layernorm(struct check *c)
{
    for (int l = 0; l < 2 * N_LENGTHS; l++) {
        struct fence fx, fw, fb, fy;
        int n = lengths[l / 2];
        float *x = vector_open(c, &fx, n, l % 2 ? 1e-2f : 3), *w = vector_open(c, &fw, n, 1);
        float *b = vector_open(c, &fb, n, 1), *y = vector_open(c, &fy, n, 1), eps = 1e-6f;
        double sum = 0, squares = 0, most = 0;

        for (int i = 0; i < n; i++) {
            x[i] += l % 2 ? 5 : 0;
            sum += x[i];
            most = larger(most, fabs(x[i]));
        }
        for (int i = 0; i < n; i++)
            squares += (x[i] - sum / n) * (x[i] - sum / n);
        double scale = 1 / sqrt(squares / n + eps), unit = (8 + sqrt(n)) * FLT_EPSILON;
        c->k.layernorm(y, x, w, b, n, eps);
        for (int i = 0; i < n; i++) {
            double v = (x[i] - sum / n) * scale, off = most * scale + fabs(v);
            expect(c, n, i, y[i], v * w[i] + b[i], unit * (off * fabs(w[i]) + fabs(b[i])));
        }
        c->k.layernorm(x, x, w, b, n, eps);
        if (memcmp(x, y, fx.size))
            check_fail(c, "n=%d: in place gives other bits", n);
        vector_close(c, &fx);
        vector_close(c, &fw);
        vector_close(c, &fb);
        vector_close(c, &fy);
    }
}

static void check_rope(struct check *c)
{
    static const int dims[] = { 2, 4, 6, 8, 16, 20, 32, 64, 80, 96, 128, 130, 256 };
    for (size_t l = 0; l < sizeof dims / sizeof dims[0]; l++) {
        struct fence fx, fc, fs;
        int d = dims[l], half = d / 2;
        float *x = vector_open(c, &fx, d, 2), was[256];
        float *co = vector_open(c, &fc, half, 1), *si = vector_open(c, &fs, half, 1);

        memcpy(was, x, fx.size);
        c->k.rope(x, co, si, d);
        for (int j = 0; j < half; j++) {
            double a = was[j], b = was[j + half];
            double ac = a * co[j], bs = b * si[j], bc = b * co[j], as = a * si[j];
            expect(c, d, j, x[j], ac - bs, 2 * FLT_EPSILON * (fabs(ac) + fabs(bs)));
            expect(c, d, j + half, x[j + half], bc + as, 2 * FLT_EPSILON * (fabs(bc) + fabs(as)));
        }
        vector_close(c, &fx);
        vector_close(c, &fc);
        vector_close(c, &fs);
    }
}

static void check_silu_mul(struct check *c)
{
    static const float ends[] = { 0, -0.0f, 1e-30f, -1e-30f, 20, -20, 88, -88, -104, -1000, 1e30f };
    for (int l = 0; l < N_LENGTHS; l++) {
        struct fence fg, fu;
        int n = lengths[l];
        float *g = vector_open(c, &fg, n, l % 2 ? 1 : 12), *u = vector_open(c, &fu, n, 1);

        for (int i = 0; l % 3 == 0 && i < n; i++)
            g[i] = ends[(size_t)i % (sizeof ends / sizeof ends[0])];
        float *was = malloc(fg.size);
        memcpy(was, g, fg.size);
        c->k.silu_mul(g, u, (size_t)n);
        for (int i = 0; i < n; i++) {
            double exact = was[i] / (1 + exp(-(double)was[i])) * u[i];
            expect(c, n, i, g[i], exact, 1e-6 * fabs(exact) + 1e-35 * (1 + fabs(u[i])));
        }
        for (int i = 0; i < n; i++) { /* each element by itself: the same bits */
            float one = was[i];
            c->k.silu_mul(&one, u + i, 1);
            if (memcmp(&one, g + i, sizeof one))
                check_fail(c, "n=%d: [%d] alone gives other bits", n, i);
        }
        free(was);
        vector_close(c, &fg);
        vector_close(c, &fu);
    }
}

static double gelu_exact(double x, enum gelu_kind kind)
{
    if (kind == GELU_ERF)
        return 0.5 * x * erfc(-x / sqrt(2));
    if (kind == GELU_QUICK)
        return x / (1 + exp(-1.702 * x));
    return x / (1 + exp(-2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* Large and small values, the whole range where the function bends, and each element by itself. */
static void check_gelu_of(struct check *c, enum gelu_kind kind)
{
    static const float ends[] = { 0,  -0.0f, 1e-30f, -1e-30f, 7,    -7,    13.9f, -13.9f,
                                  14, -14,   15,     -15,     1e5f, -1e5f, 1e30f, -1e30f };
    enum { N_ENDS = sizeof ends / sizeof ends[0] };
    for (int l = 0; l < N_LENGTHS; l++) {
        struct fence f;
        int n = lengths[l];
        float *x = vector_open(c, &f, n, l % 2 ? 1 : 4), *was = malloc(f.size);

        for (int i = 0; i < n; i++)
            if (l % 3 == 0)
                x[i] = ends[(size_t)i % N_ENDS];
            else if (n > 1000)
                x[i] = -8 + 16 * (float)i / (float)n;
        memcpy(was, x, f.size);
        c->k.gelu[kind](x, (size_t)n);
        for (int i = 0; i < n; i++) {
            double exact = gelu_exact(was[i], kind);
            expect(c, n, i, x[i], exact, 3e-7 * fabs(exact) + 6e-8 * fmin(1, fabs(was[i])) + 1e-37);
            c->k.gelu[kind](was + i, 1);
            if (memcmp(was + i, x + i, sizeof *x))
                check_fail(c, "n=%d: [%d] alone gives other bits", n, i);
        }
        free(was);
        vector_close(c, &f);
    }
}

static void check_gelu_tanh(struct check *c)
{
    check_gelu_of(c, GELU_TANH);
}

static void check_gelu_erf(struct check *c)
{
    check_gelu_of(c, GELU_ERF);
}

static void check_gelu_quick(struct check *c)
{
    check_gelu_of(c, GELU_QUICK);
}

static void check_sums(struct check *c, bool scaled)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        struct fence fy, fx;
        int n = lengths[l];
        float *y = vector_open(c, &fy, n, 1), *x = vector_open(c, &fx, n, 1);
        float a = scaled ? rng_float(&c->rng) : 1, b = scaled ? rng_float(&c->rng) : 1;
        float *was = malloc(fy.size);

        memcpy(was, y, fy.size);
        if (scaled)
            c->k.scale_add(y, a, x, b, n);
        else
            c->k.add(y, x, (size_t)n);
        for (int i = 0; i < n; i++) {
            double ya = (double)was[i] * a, xb = (double)x[i] * b;
            if (scaled)
                expect(c, n, i, y[i], ya + xb, 2 * FLT_EPSILON * (fabs(ya) + fabs(xb)));
            else if (y[i] != was[i] + x[i])
                check_fail(c, "n=%d: [%d] is %.9g + %.9g = %.9g", n, i, was[i], x[i], y[i]);
        }
        if (scaled) /* each element by itself: the same bits */
            for (int i = 0; i < n; i++) {
                c->k.scale_add(was + i, a, x + i, b, 1);
                if (memcmp(was + i, y + i, sizeof *y))
                    check_fail(c, "n=%d: [%d] alone gives other bits", n, i);
            }
        free(was);
        vector_close(c, &fy);
        vector_close(c, &fx);
    }
}

static void check_add(struct check *c)
{
    check_sums(c, false);
}

static void check_scale_add(struct check *c)
{
    check_sums(c, true);
}

/* Every f16 and bf16 value, its neighbours and the ties between, NaN and infinity included. */
static void check_rounding(struct check *c, bool bf16)
{
    enum { AROUND = 7 };
    for (uint32_t h = 0; h < 0x10000; h += c->quick ? 5 : 1) {
        float x[AROUND + 1], base = bf16 ? bf16_to_f32((uint16_t)h) : f16_to_f32((uint16_t)h);
        uint32_t half_ulp = bf16 ? 0x8000 : 0x1000, u = f32_bits(base);
        uint16_t got[AROUND + 1];
        uint32_t values[AROUND] = {
            u,
            u + 1,
            u - 1,
            u + half_ulp,
            u + half_ulp + 1,
            u + half_ulp - 1,
            (uint32_t)rng_next(&c->rng),
        };
        for (int i = 0; i < AROUND; i++)
            x[i] = f32_from_bits(values[i]);
        x[AROUND] = ldexpf(rng_float(&c->rng), -14 - (int)(h % 12)); /* f16 subnormals */
        if (bf16)
            c->k.to_bf16(got, x, AROUND + 1);
        else
            c->k.to_f16(got, x, AROUND + 1);
        for (int i = 0; i <= AROUND; i++) {
            uint16_t want = bf16 ? bf16_from_f32(x[i]) : f16_from_f32(x[i]);
            if (got[i] != want)
                check_fail(c, "0x%08x became 0x%04x, not 0x%04x", f32_bits(x[i]), got[i], want);
        }
    }
    for (int l = 0; l < N_LENGTHS; l++) {
        struct fence fx, fy;
        int n = lengths[l];
        float *x = vector_open(c, &fx, n, 1);
        fence_open(&fy, sizeof(uint16_t) * (size_t)n, sizeof(uint16_t));
        uint16_t *y = fy.p;
        if (bf16)
            c->k.to_bf16(y, x, (size_t)n);
        else
            c->k.to_f16(y, x, (size_t)n);
        for (int i = 0; i < n; i++)
            if (y[i] != (bf16 ? bf16_from_f32(x[i]) : f16_from_f32(x[i])))
                check_fail(c, "n=%d: [%d] of %.9g became 0x%04x", n, i, x[i], y[i]);
        vector_close(c, &fx);
        vector_close(c, &fy);
    }
}

static void check_to_f16(struct check *c)
{
    check_rounding(c, false);
}

static void check_to_bf16(struct check *c)
{
    check_rounding(c, true);
}

static void check_softmax_of(struct check *c, int n, int limit, float size, float scale)
{
    struct fence fs, fp;
    float *s = vector_open(c, &fs, n, size), *p = vector_open(c, &fp, n, 1), max = -1, max2 = -1;
    float top = s[0];
    double sum = 0;

    for (int i = 0; i < n; i++) {
        if (i >= limit)
            s[i] = i % 2 ? NAN : 1e30f; /* what is not seen has no say */
        else if (s[i] > top)
            top = s[i];
    }
    float got = c->k.softmax(p, s, n, limit, scale, &max);
    if (max != scale * top)
        check_fail(c, "n=%d limit=%d: max %.9g, not %.9g", n, limit, max, scale * top);
    for (int i = 0; i < limit; i++) {
        double arg = (double)scale * ((double)s[i] - top), exact = exp(arg);
        expect(c, n, i, p[i], exact, (4e-7 + 2e-7 * fabs(arg)) * exact + 1e-36);
        if (s[i] == top && p[i] != 1)
            check_fail(c, "n=%d limit=%d: exp(0) is %.9g", n, limit, p[i]);
        sum += p[i];
    }
    for (int i = limit; i < n; i++)
        if (p[i] != 0)
            check_fail(c, "n=%d limit=%d: p[%d] is %.9g", n, limit, i, p[i]);
    expect(c, n, -1, got, sum, 1e-6 * sum);
    float again = c->k.softmax(s, s, n, limit, scale, &max2);
    if (memcmp(s, p, fs.size) || memcmp(&again, &got, sizeof got) || max2 != max)
        check_fail(c, "n=%d limit=%d: in place gives other bits", n, limit);
    vector_close(c, &fs);
    vector_close(c, &fp);
}

static void check_softmax(struct check *c)
{
    static const int limits[] = { 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64 };
    for (int n = 64; n <= 256; n += 64)
        for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
            check_softmax_of(c, n, limits[l], 4, 0.125f);
            check_softmax_of(c, n, n - 64 + limits[l], 4, 0.125f);
            check_softmax_of(c, n, n - limits[l] + 1, 300, 1); /* down to underflow */
            check_softmax_of(c, n, check_int(c, 1, n), 1e-3f, 0.3f);
        }
}

static void check_argmax(struct check *c)
{
    struct kernels plain;

    kernels_init_ref(&plain);
    for (int l = 0; l < N_LENGTHS; l++)
        for (int kind = 0; kind < 8; kind++) {
            struct fence f;
            int n = lengths[l];
            float *x = vector_open(c, &f, n, 1);
            for (int i = 0; i < n; i++) {
                if (kind >= 1 && kind <= 3) /* many ties */
                    x[i] = (float)check_int(c, -1, kind);
                if ((kind == 3 || kind == 4) && check_int(c, 0, 2) == 0)
                    x[i] = NAN;
                if (kind == 5)
                    x[i] = i == n - 1 ? -1e30f : -INFINITY;
                if (kind == 6)
                    x[i] = NAN;
                if (kind == 7)
                    x[i] = i % 3 ? -INFINITY : NAN;
            }
            int got = c->k.argmax(x, n), want = plain.argmax(x, n);
            if (got != want)
                check_fail(c, "n=%d kind %d: %d, not %d", n, kind, got, want);
            vector_close(c, &f);
        }
}

/* One query and head against the formula in double precision. */
static void check_window_head(struct check *c, const struct window_attn_job *j, int query, int head)
{
    size_t row = (size_t)(j->n_heads * j->d), at = (size_t)(head * j->d);
    const float *q = j->q + (size_t)query * row + at, *out = j->out + (size_t)query * row + at;
    double *p = malloc(sizeof *p * (size_t)j->window), sum = 0, most = -INFINITY;
    for (int t = 0; t < j->window; t++) {
        const float *k = j->k + (size_t)(query * j->window + t) * row + at;
        p[t] = 0;
        for (int i = 0; i < j->d; i++)
            p[t] += (double)q[i] * k[i] * (double)j->scale;
        most = fmax(most, p[t]);
    }
    for (int t = 0; t < j->window; t++)
        sum += p[t] = exp(p[t] - most);
    for (int i = 0; i < j->d; i++) {
        double exact = 0, size = 0;
        for (int t = 0; t < j->window; t++) {
            double v = j->v[(size_t)(query * j->window + t) * row + at + (size_t)i];
            exact += p[t] / sum * v;
            size += p[t] / sum * fabs(v);
        }
        expect(c, j->window, i, out[i], exact, (j->d + 32) * (double)FLT_EPSILON * size);
    }
    free(p);
}

static void check_windows_of(struct check *c, int n, int window, int n_heads, int d)
{
    int row = n_heads * d;
    struct fence fq, fk, fv, fout, fone;
    struct window_attn_job j = { .q = vector_open(c, &fq, n * row, 1),
                                 .k = vector_open(c, &fk, n * window * row, 1),
                                 .v = vector_open(c, &fv, n * window * row, 1),
                                 .out = vector_open(c, &fout, n * row, 0),
                                 .n = n,
                                 .window = window,
                                 .n_heads = n_heads,
                                 .d = d,
                                 .scale = 1 / sqrtf((float)d) };
    float *one = vector_open(c, &fone, row, 0);
    window_attention_ref(&j, 0, n);
    for (int i = 0; i < n; i++) {
        struct window_attn_job alone = j;
        for (int h = 0; h < n_heads; h++)
            check_window_head(c, &j, i, h);
        alone.q += (size_t)(i * row);
        alone.k += (size_t)(i * window * row);
        alone.v += (size_t)(i * window * row);
        alone.out = one;
        alone.n = 1;
        window_attention_ref(&alone, 0, 1);
        if (memcmp(one, j.out + (size_t)(i * row), sizeof *one * (size_t)row))
            check_fail(c, "query %d of %d differs from the same alone", i, n);
    }
    vector_close(c, &fq);
    vector_close(c, &fk);
    vector_close(c, &fv);
    vector_close(c, &fout);
    vector_close(c, &fone);
}

static void check_windows(struct check *c)
{
    check_windows_of(c, 5, 25, 3, 12);
    check_windows_of(c, 1, 1, 1, 2);
    check_windows_of(c, 3, 7, 2, 256);
    check_windows_of(c, 2, 300, 1, 64);
}

void check_elementwise(struct check *c)
{
    static const struct {
        const char *name;
        void (*run)(struct check *c);
    } ops[] = {
        { "rmsnorm", check_rmsnorm },       { "layernorm", check_layernorm },
        { "gelu_tanh", check_gelu_tanh },   { "gelu_erf", check_gelu_erf },
        { "gelu_quick", check_gelu_quick }, { "rope", check_rope },
        { "silu_mul", check_silu_mul },     { "add", check_add },
        { "scale_add", check_scale_add },   { "to_f16", check_to_f16 },
        { "to_bf16", check_to_bf16 },       { "softmax", check_softmax },
        { "argmax", check_argmax },         { "windows", check_windows },
    };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (!check_begin(c, ops[i].name, ""))
            continue;
        ops[i].run(c);
        check_end(c);
    }
}
