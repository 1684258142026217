/* The vision towers in plain double-precision code that knows nothing of windows in order, chunks
 * or devices: every row looks for the rows it may see, every position for the rows of the table
 * near it. */
#ifndef PV_TESTS_TOWER_REFERENCE_H
#define PV_TESTS_TOWER_REFERENCE_H

#include "family/families.h"
#include "tiny_tower.h"

struct reference {
    const struct model_file *mf;
    const struct vision_config *c;
    int h, w, n; /* patches of a slice */
};

static inline double *doubles(size_t n)
{
    return calloc(n, sizeof(double));
}

/* y [n, out] = x [n, in] . W^T + b */
static inline double *linear(const double *x, int n, int in, const struct tensor *w,
                             const struct tensor *bias)
{
    int out = (int)tensor_rows(w);
    double *y = doubles((size_t)n * (size_t)out);
    float *row = malloc(sizeof(float) * (size_t)in), *b = malloc(sizeof(float) * (size_t)out);
    CHECK_EQ(tensor_cols(w), in);
    if (bias)
        row_to_f32(b, bias->data, bias->dtype, out);
    for (int o = 0; o < out; o++) {
        row_to_f32(row, (const uint8_t *)w->data + (size_t)o * dtype_row_size(w->dtype, in),
                   w->dtype, in);
        for (int r = 0; r < n; r++) {
            double sum = bias ? (double)b[o] : 0;
            for (int i = 0; i < in; i++)
                sum += x[(size_t)r * (size_t)in + (size_t)i] * row[i];
            y[(size_t)r * (size_t)out + (size_t)o] = sum;
        }
    }
    free(row);
    free(b);
    return y;
}

/* Rows of x [n, dim]: RMSNorm, with a bias LayerNorm. */
static inline double *normed(const struct reference *f, const double *x, int n,
                             const struct tensor *weight, const struct tensor *bias)
{
    int dim = (int)tensor_cols(weight);
    double *y = doubles((size_t)n * (size_t)dim);
    for (int r = 0; r < n; r++) {
        const double *a = x + (size_t)r * (size_t)dim;
        double mean = 0, var = 0;
        for (int i = 0; bias && i < dim; i++)
            mean += a[i] / dim;
        for (int i = 0; i < dim; i++)
            var += (a[i] - mean) * (a[i] - mean) / dim;
        for (int i = 0; i < dim; i++)
            y[(size_t)r * (size_t)dim + (size_t)i] =
                (a[i] - mean) / sqrt(var + (double)f->c->eps) * ((const float *)weight->data)[i] +
                (bias ? (double)((const float *)bias->data)[i] : 0);
    }
    return y;
}

/* Where a row lies in the grid of patches. */
static inline void place(const struct reference *f, int r, int *y, int *x)
{
    int m = f->c->merge, unit = r / (m * m), sub = r % (m * m), across = f->w / m;
    *y = unit / across * m + sub / m;
    *x = unit % across * m + sub % m;
}

static inline bool sees(const struct reference *f, int a, int b, bool full)
{
    int ya, xa, yb, xb, side = full ? 1 << 20 : f->c->window / f->c->patch;
    place(f, a, &ya, &xa);
    place(f, b, &yb, &xb);
    return ya / side == yb / side && xa / side == xb / side;
}

static inline void rope(const struct reference *f, double *q)
{
    int d = f->c->head_dim;
    for (int r = 0; r < f->n; r++)
        for (int h = 0; h < f->c->n_heads; h++)
            for (int j = 0; j < d / 2; j++) {
                double *a = q + ((size_t)r * (size_t)f->c->n_heads + (size_t)h) * (size_t)d + j;
                double *b = a + d / 2, u = *a, v = *b, angle;
                int y, x, k = j % (d / 4);
                place(f, r, &y, &x);
                angle = (j < d / 4 ? y : x) * pow(10000, -2.0 * k / (d / 2.0));
                *a = u * cos(angle) - v * sin(angle);
                *b = v * cos(angle) + u * sin(angle);
            }
}

static inline double *attention(const struct reference *f, const double *q, const double *k,
                                const double *v, bool full)
{
    int d = f->c->head_dim, hidden = f->c->hidden;
    double *out = doubles((size_t)f->n * (size_t)hidden), *p = doubles((size_t)f->n);
    for (int h = 0; h < f->c->n_heads; h++)
        for (int a = 0; a < f->n; a++) {
            double sum = 0;
            for (int b = 0; b < f->n; b++) {
                double dot = 0;
                for (int i = 0; i < d; i++)
                    dot += q[a * hidden + h * d + i] * k[b * hidden + h * d + i];
                p[b] = sees(f, a, b, full) ? exp(dot / sqrt(d)) : 0;
                sum += p[b];
            }
            for (int b = 0; b < f->n; b++)
                for (int i = 0; i < d; i++)
                    out[a * hidden + h * d + i] += p[b] / sum * v[b * hidden + h * d + i];
        }
    free(p);
    return out;
}

static inline void add_and_free(double *x, double *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
    free(y);
}

static inline double gelu(double x, enum gelu_kind kind)
{
    double t = tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x));
    if (kind == GELU_QUICK)
        return x / (1 + exp(-1.702 * x));
    return 0.5 * x * (1 + (kind == GELU_ERF ? erf(x / sqrt(2)) : t));
}

static inline void layer(const struct reference *f, int index, double *x)
{
    const struct vision_layer_tensors *l = model_file_vision_layer(f->mf, index);
    const struct vision_config *c = f->c;
    size_t n = (size_t)f->n * (size_t)c->hidden;
    double *a = normed(f, x, f->n, l->norm1, l->norm1_bias), *att, *up, *gate = NULL;
    double *q = linear(a, f->n, c->hidden, l->q, l->q_bias);
    double *k = linear(a, f->n, c->hidden, l->k, l->k_bias);
    double *v = linear(a, f->n, c->hidden, l->v, l->v_bias);
    if (c->family != &family_llava_onevision) {
        rope(f, q);
        rope(f, k);
    }
    att = attention(f, q, k, v, !c->window || c->full[index]);
    add_and_free(x, linear(att, f->n, c->hidden, l->o, l->o_bias), n);
    free(a);
    a = normed(f, x, f->n, l->norm2, l->norm2_bias);
    up = linear(a, f->n, c->hidden, l->up, l->up_bias);
    if (l->gate)
        gate = linear(a, f->n, c->hidden, l->gate, l->gate_bias);
    for (size_t i = 0; i < (size_t)f->n * (size_t)c->ffn; i++)
        up[i] = gate ? gate[i] / (1 + exp(-gate[i])) * up[i]
                     : gelu(up[i], c->family == &family_qwen2_vl ? GELU_QUICK : GELU_TANH);
    add_and_free(x, linear(up, f->n, c->ffn, l->down, l->down_bias), n);
    free(a);
    free(q);
    free(k);
    free(v);
    free(att);
    free(up);
    free(gate);
}

/* The patch matrix as [hidden, 3 * temporal * patch * patch] also where it comes in two. */
static inline double *embed(const struct reference *f, const double *pixels)
{
    const struct vision_tensors *t = model_file_vision_tensors(f->mf);
    int area = f->c->patch * f->c->patch, row = 3 * f->c->temporal * area;
    size_t n = (size_t)f->n * (size_t)f->c->hidden;
    double *half, *x;
    if (!t->patch[1])
        return linear(pixels, f->n, row, t->patch[0], t->patch_bias);
    x = doubles(n);
    half = doubles((size_t)f->n * (size_t)(3 * area));
    for (int frame = 0; frame < 2; frame++) {
        for (int r = 0; r < f->n; r++)
            for (int channel = 0; channel < 3; channel++)
                memcpy(half + (r * 3 + channel) * area,
                       pixels + r * row + (channel * 2 + frame) * area,
                       sizeof(double) * (size_t)area);
        add_and_free(x, linear(half, f->n, 3 * area, t->patch[frame], NULL), n);
    }
    for (size_t i = 0; t->patch_bias && i < n; i++)
        x[i] += ((const float *)t->patch_bias->data)[i % (size_t)f->c->hidden];
    free(half);
    return x;
}

/* A learned table of side x side rows laid over the slice, corner on corner. */
static inline void add_stretched(const struct reference *f, const float *table, int side, double *x)
{
    int hidden = f->c->hidden;
    for (int r = 0; r < f->n; r++) {
        int py, px;
        place(f, r, &py, &px);
        double y = f->h > 1 ? py * (side - 1.0) / (f->h - 1) : 0;
        double z = f->w > 1 ? px * (side - 1.0) / (f->w - 1) : 0;
        for (int i = 0; i < side * side; i++) {
            double near = (1 - fabs(y - i / side)) * (1 - fabs(z - i % side));
            if (fabs(y - i / side) >= 1 || fabs(z - i % side) >= 1)
                continue;
            for (int j = 0; j < hidden; j++)
                x[r * hidden + j] += near * table[i * hidden + j];
        }
    }
}

static inline void add_positions(const struct reference *f, double *x)
{
    const struct tensor *t = model_file_vision_tensors(f->mf)->position;
    int side = 0;
    if (!t)
        return;
    while (side * side < f->c->positions)
        side++;
    if (side)
        add_stretched(f, t->data, side, x);
    for (int i = 0; !side && i < f->n * f->c->hidden; i++)
        x[i] += ((const float *)t->data)[i];
}

/* All rows of x to vector `part` of the tokens in out. */
static inline void merge(const struct reference *f, const struct vision_merger *m, const double *x,
                         int part, double *out)
{
    const struct vision_config *c = f->c;
    int unit = c->merge * c->merge, tokens = f->n / unit, middle = (int)tensor_rows(m->mm0);
    size_t row = (size_t)vision_row_size(c), n = (size_t)c->out;
    double *normal = NULL, *y, *z;
    if (m->norm)
        normal = normed(f, x, f->n * c->hidden / (int)tensor_cols(m->norm), m->norm, m->norm_bias);
    y = linear(normal ? normal : x, tokens, unit * c->hidden, m->mm0, m->mm0_bias);
    for (int i = 0; i < tokens * middle; i++)
        y[i] = gelu(y[i], GELU_ERF);
    z = linear(y, tokens, middle, m->mm2, m->mm2_bias);
    for (size_t i = 0; i < (size_t)tokens; i++)
        memcpy(out + i * row + (size_t)part * n, z + i * n, sizeof *z * n);
    free(normal);
    free(y);
    free(z);
}

/* One slice: patches -> tokens and their deepstack vectors (malloc). */
static inline double *encode_reference(const struct model_file *mf, const float *patches, int h,
                                       int w)
{
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_config *c = model_file_vision(mf);
    struct reference f = { .mf = mf, .c = c, .h = h, .w = w, .n = h * w };
    int row = 3 * c->temporal * c->patch * c->patch;
    double *pixels = doubles((size_t)f.n * (size_t)row), *x;
    double *out = doubles((size_t)f.n * (size_t)vision_row_size(c));
    for (int i = 0; i < f.n * row; i++)
        pixels[i] = patches[i];
    x = embed(&f, pixels);
    add_positions(&f, x);
    for (int i = 0; i < c->n_layers; i++) {
        layer(&f, i, x);
        for (int k = 0; k < c->n_deepstack; k++)
            if (c->deepstack[k] == i)
                merge(&f, &t->deepstack[k], x, 1 + k, out);
    }
    merge(&f, &t->merger, x, 0, out);
    free(pixels);
    free(x);
    return out;
}

#endif
