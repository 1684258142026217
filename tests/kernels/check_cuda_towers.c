/* Proof of a vision tower's layer on the device: error against double precision, in proportion to
 * what the layer adds, and segments alone against themselves among others, bit for bit. */
#include "check_cuda.h"

#include "larger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tower_shape {
    int hidden, ffn, n_heads;
    bool rope, gated; /* gated: RMSNorm and no bias of norms, as Qwen2.5 */
};

struct tower {
    struct cuda_check *t;
    struct tower_shape s;
    int d, n;
    struct cuda_matrix_pair q, k, v, o, gate, up, down;
    float *norm[4]; /* weight and bias of both, host */
    struct gbuf norms[4], x, cos, sin;
    struct gbuf biases;  /* of q, k and v, when they are joined */
    float *co, *si, *in; /* host */
    struct tower_layer w;
    struct device_work *work;
};

/* Products that leave BF16 round the bias to it; checkpoints in BF16 have no other. */
static void round_bias(struct cuda_check *t, struct cuda_matrix_pair *p)
{
    for (int i = 0; i < p->m.out; i++)
        p->bias[i] = (float)bf16_round(p->bias[i]);
    t->ops->upload(t->dev, p->on_device.p, p->bias, sizeof(float) * (size_t)p->m.out);
}

static bool tower_matrices(struct tower *g, enum dtype type)
{
    int hidden = g->s.hidden, ffn = g->s.ffn;
    const struct {
        struct cuda_matrix_pair *p;
        int in, out;
        bool wanted;
    } parts[] = { { &g->q, hidden, hidden, true },      { &g->k, hidden, hidden, true },
                  { &g->v, hidden, hidden, true },      { &g->o, hidden, hidden, true },
                  { &g->up, hidden, ffn, true },        { &g->down, ffn, hidden, true },
                  { &g->gate, hidden, ffn, g->s.gated } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].wanted)
            continue;
        if (!pair_open(g->t, parts[i].p, type, parts[i].in, parts[i].out, true,
                       PAIR_TAME | PAIR_MANY))
            return false;
        round_bias(g->t, parts[i].p);
    }
    return true;
}

static void tower_close(struct tower *g)
{
    struct cuda_matrix_pair *all[] = { &g->q, &g->k, &g->v, &g->o, &g->gate, &g->up, &g->down };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_close(g->t, all[i]);
    for (int i = 0; i < 4; i++) {
        gbuf_close(&g->norms[i]);
        free(g->norm[i]);
    }
    gbuf_close(&g->x);
    gbuf_close(&g->cos);
    gbuf_close(&g->sin);
    if (g->biases.p)
        gbuf_close(&g->biases);
    free(g->co);
    free(g->si);
    free(g->in);
    if (g->work)
        g->t->ops->work_close(g->t->dev, &g->work);
}

static bool tower_open(struct tower *g, struct cuda_check *t, const struct tower_shape *s,
                       enum dtype type, int n, int segment)
{
    int d = s->hidden / s->n_heads;
    size_t hidden = (size_t)s->hidden, half = (size_t)d / 2;
    struct work_shape ws = { .rows = n,
                             .in = s->hidden > s->ffn ? s->hidden : s->ffn,
                             .n_heads = s->n_heads,
                             .n_kv_heads = s->n_heads,
                             .head_dim = d,
                             .kv_dtype = DTYPE_BF16,
                             .segment = segment,
                             .hidden = s->hidden,
                             .ffn = s->ffn };
    struct pv_error err = { 0 };
    *g = (struct tower){ .t = t, .s = *s, .d = d, .n = n };
    if (!tower_matrices(g, type)) {
        tower_close(g);
        return false;
    }
    for (int i = 0; i < 4; i++)
        g->norm[i] = normal_both(t, &g->norms[i], hidden, 1);
    g->co = normal_both(t, &g->cos, (size_t)n * half, 0.7f);
    g->si = normal_both(t, &g->sin, (size_t)n * half, 0.7f);
    g->in = normal_both(t, &g->x, (size_t)n * hidden, 1);
    g->w = (struct tower_layer){ .norm1 = g->norms[0].p,
                                 .norm2 = g->norms[1].p,
                                 .norm1_bias = s->gated ? NULL : g->norms[2].p,
                                 .norm2_bias = s->gated ? NULL : g->norms[3].p,
                                 .q = g->q.m,
                                 .k = g->k.m,
                                 .v = g->v.m,
                                 .o = g->o.m,
                                 .gate = g->gate.m,
                                 .up = g->up.m,
                                 .down = g->down.m };
    check_must(t->ops->work_open(t->dev, &g->work, &ws, &err), &err);
    return true;
}

/* Rows [r0, r0 + n), which are whole segments. */
static void tower_run(struct tower *g, float *out, int r0, int n, int n_segments, const int *bounds)
{
    size_t hidden = (size_t)g->s.hidden, half = (size_t)g->d / 2, at = (size_t)r0;
    struct work_plan plan = { 0 };
    struct tower_block b = { .w = &g->w,
                             .x = g->x.p,
                             .n = n,
                             .hidden = g->s.hidden,
                             .ffn = g->s.ffn,
                             .n_heads = g->s.n_heads,
                             .head_dim = g->d,
                             .cos = g->s.rope ? (float *)g->cos.p + at * half : NULL,
                             .sin = g->s.rope ? (float *)g->sin.p + at * half : NULL,
                             .eps = 1e-6f,
                             .n_segments = n_segments,
                             .bounds = bounds };
    gbuf_fill(&g->x);
    g->t->ops->put(g->work, g->x.p, g->in + at * hidden, sizeof *out * (size_t)n * hidden);
    if (g->t->ops->begin(g->work, &plan))
        g->t->ops->tower(g->work, &b);
    g->t->ops->end(g->work);
    check_wait(g->t, g->work);
    g->t->ops->get(g->work, out, g->x.p, sizeof *out * (size_t)n * hidden);
    if (!gbuf_untouched(&g->x, sizeof *out * (size_t)n * hidden))
        check_fail(&g->t->c, "%d rows: rows past them were written", n);
}

/* q, k and v one after another, as a model's: the device may multiply them at once. */
static void tower_join(struct tower *g)
{
    struct cuda_matrix_pair *pair[] = { &g->q, &g->k, &g->v };
    struct matrix *m[] = { &g->w.q, &g->w.k, &g->w.v };
    size_t size = sizeof(float) * (size_t)g->s.hidden;
    gbuf_open(g->t, &g->biases, 3 * size);
    for (int i = 0; i < 3; i++) {
        m[i]->bias = (const float *)g->biases.p + i * g->s.hidden;
        g->t->ops->upload(g->t->dev, (float *)g->biases.p + i * g->s.hidden, pair[i]->bias, size);
    }
    g->t->ops->join(g->t->dev, m, 3);
}

/* ---- reference ---- */

static void ref_norm(const struct tower *g, double *y, const double *x, int which)
{
    int n = g->s.hidden;
    const float *w = g->norm[which], *b = g->norm[which + 2];
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++)
        mean += g->s.gated ? 0 : x[i] / n;
    for (int i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    double scale = 1 / sqrt(sum / n + 1e-6f);
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale * w[i] + (g->s.gated ? 0 : b[i]);
}

static void add_product(double *y, const struct cuda_matrix_pair *p, const double *x)
{
    double *z = malloc(sizeof *z * (size_t)p->m.out);
    pair_product(p, z, x, true);
    for (int o = 0; o < p->m.out; o++)
        y[o] += z[o];
    free(z);
}

static void ref_turn(const struct tower *g, double *x, int row)
{
    int half = g->d / 2;
    for (int h = 0; h < g->s.n_heads && g->s.rope; h++)
        for (int j = 0; j < half; j++) {
            double c = g->co[row * half + j], s = g->si[row * half + j];
            double *a = &x[h * g->d + j], *b = a + half, u = bf16_round(*a), v = bf16_round(*b);
            *a = u * c - v * s;
            *b = v * c + u * s;
        }
    for (int i = 0; i < g->s.hidden; i++)
        x[i] = bf16_round(x[i]);
}

/* Row r of `att` over rows [from, to). */
static void ref_attention(const struct tower *g, double *att, const double *q, const double *k,
                          const double *v, int from, int to)
{
    int d = g->d, hidden = g->s.hidden, n = to - from;
    double *p = malloc(sizeof *p * (size_t)n);
    for (int h = 0; h < g->s.n_heads; h++) {
        double most = -INFINITY, sum = 0;
        for (int i = 0; i < n; i++) {
            p[i] = 0;
            for (int j = 0; j < d; j++)
                p[i] += q[h * d + j] * k[(from + i) * hidden + h * d + j] / sqrt(d);
            most = larger(most, p[i]);
        }
        for (int i = 0; i < n; i++)
            sum += p[i] = exp(p[i] - most);
        for (int j = 0; j < d; j++) {
            att[h * d + j] = 0;
            for (int i = 0; i < n; i++)
                att[h * d + j] += p[i] / sum * v[(from + i) * hidden + h * d + j];
        }
    }
    free(p);
}

static void ref_mlp(const struct tower *g, double *x)
{
    int ffn = g->s.ffn;
    double *y = malloc(sizeof *y * (size_t)g->s.hidden), *a = malloc(sizeof *a * (size_t)ffn);
    double *b = malloc(sizeof *b * (size_t)ffn);
    ref_norm(g, y, x, 1);
    pair_product(&g->up, a, y, true);
    if (g->s.gated)
        pair_product(&g->gate, b, y, true);
    for (int i = 0; i < ffn; i++)
        a[i] = g->s.gated
                   ? b[i] / (1 + exp(-b[i])) * a[i]
                   : a[i] / (1 + exp(-2 * sqrt(2 / acos(-1)) * (a[i] + 0.044715 * pow(a[i], 3))));
    add_product(x, &g->down, a);
    free(y);
    free(a);
    free(b);
}

static void tower_compare(struct tower *g, const float *out, int n_segments, const int *bounds)
{
    int hidden = g->s.hidden;
    size_t size = sizeof(double) * (size_t)g->n * (size_t)hidden;
    double *x = malloc(sizeof *x * (size_t)hidden), *q = malloc(size), *k = malloc(size);
    double *v = malloc(size), *att = malloc(sizeof *att * (size_t)hidden);
    for (int r = 0; r < g->n; r++) {
        for (int i = 0; i < hidden; i++)
            x[i] = g->in[r * hidden + i];
        ref_norm(g, att, x, 0);
        pair_product(&g->q, q + r * hidden, att, true);
        pair_product(&g->k, k + r * hidden, att, true);
        pair_product(&g->v, v + r * hidden, att, true);
        ref_turn(g, q + r * hidden, r);
        ref_turn(g, k + r * hidden, r);
        for (int i = 0; i < hidden; i++)
            v[r * hidden + i] = bf16_round(v[r * hidden + i]);
    }
    for (int r = 0, s = 0; r < g->n; r++) {
        double added = 0, off = 0, worst = 0;
        while (s + 1 < n_segments && r >= bounds[s + 1])
            s++;
        for (int i = 0; i < hidden; i++)
            x[i] = g->in[r * hidden + i];
        ref_attention(g, att, q + r * hidden, k, v, bounds[s], bounds[s + 1]);
        add_product(x, &g->o, att);
        ref_mlp(g, x);
        for (int i = 0; i < hidden; i++) {
            double e = fabs(out[r * hidden + i] - x[i]), a = x[i] - g->in[r * hidden + i];
            added += a * a / hidden;
            off += e * e / hidden;
            worst = e <= worst ? worst : e;
        }
        if (!(sqrt(off) <= 0.015 * sqrt(added) && worst <= 0.08 * sqrt(added)))
            check_fail(&g->t->c, "row %d of %d is off by %.2g (mean) and %.2g (most) of %.3g", r,
                       g->n, sqrt(off), worst, sqrt(added));
    }
    free(x);
    free(q);
    free(k);
    free(v);
    free(att);
}

/* ---- the test ---- */

static void check_tower(struct cuda_check *t, const struct tower_shape *s, enum dtype type,
                        const int *lengths, int n_segments, bool reference)
{
    int bounds[16] = { 0 }, longest = 0, hidden = s->hidden;
    struct tower g;
    for (int i = 0; i < n_segments; i++) {
        bounds[i + 1] = bounds[i] + lengths[i];
        longest = lengths[i] > longest ? lengths[i] : longest;
    }
    int n = bounds[n_segments];
    if (!tower_open(&g, t, s, type, n, longest))
        return;
    float *out = malloc(sizeof *out * (size_t)n * (size_t)hidden);
    float *alone = malloc(sizeof *out * (size_t)n * (size_t)hidden);
    tower_run(&g, out, 0, n, n_segments, bounds);
    if (reference)
        tower_compare(&g, out, n_segments, bounds);
    for (int i = 0; i < n_segments; i++)
        for (int j = i + 1; j <= n_segments && j <= i + 2; j++) { /* one, and two together */
            int part[3], first = bounds[i], m = bounds[j] - first;
            for (int b = i; b <= j; b++)
                part[b - i] = bounds[b] - first;
            tower_run(&g, alone, first, m, j - i, part);
            if (memcmp(alone, out + (size_t)first * (size_t)hidden,
                       sizeof *out * (size_t)m * (size_t)hidden))
                check_fail(&t->c, "segments %d..%d differ alone and among %d", i, j - 1,
                           n_segments);
        }
    tower_join(&g);
    tower_run(&g, alone, 0, n, n_segments, bounds);
    if (memcmp(alone, out, sizeof *out * (size_t)n * (size_t)hidden))
        check_fail(&t->c, "q, k and v at once differ from one by one");
    free(out);
    free(alone);
    tower_close(&g);
}

void check_cuda_towers(struct cuda_check *t)
{
    static const struct tower_shape tiny[] = {
        { 64, 96, 2, false, false }, { 128, 100, 2, true, true }, { 144, 70, 2, false, false },
        { 160, 64, 2, true, true },  { 96, 64, 6, false, false },
    };
    static const struct tower_shape large[] = {
        { 1152, 4304, 16, false, false }, { 1280, 3420, 16, true, true },
        { 144, 70, 2, false, false },     { 160, 64, 2, true, true },
        { 96, 64, 6, false, false },
    };
    static const struct tower_shape any_type = { 256, 256, 4, true, false };
    static const enum dtype types[] = { DTYPE_BF16, DTYPE_F16,  DTYPE_F32,
                                        DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_K };
    static const int lengths[] = { 20, 1, 70, 9 }, long_ones[] = { 729, 64, 200, 1 };
    static const int short_ones[] = { 17, 1, 30 };
    char name[64];
    for (size_t i = 0; i < sizeof tiny / sizeof tiny[0]; i++) {
        const struct tower_shape *s = t->full ? &large[i] : &tiny[i];
        snprintf(name, sizeof name, "hidden=%d d=%d", s->hidden, s->hidden / s->n_heads);
        if (!check_begin(&t->c, "tower", name))
            continue;
        check_tower(t, s, DTYPE_BF16, lengths, 4, true);
        check_tower(t, s, DTYPE_BF16, short_ones, 3, true);
        if (t->full)
            check_tower(t, s, DTYPE_BF16, long_ones, 4, s->hidden < 512);
        check_end(&t->c);
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (!check_begin(&t->c, "tower", dtype_name(types[i])))
            continue;
        check_tower(t, &any_type, types[i], t->full ? lengths : short_ones, 3, true);
        check_end(&t->c);
    }
}
