/* Proof of the experts of a sparse layer: the whole operation on the CPU device, with the level's
 * kernels.
 *
 * Choice: `route` against its definition, with equal logits, infinities and NaN.
 * Error: every row against the formula in double precision over the weights as row_to_f32 gives
 * them, within what the level may round of the activations. Rows whose last chosen expert is nearly
 * as likely as the first one not chosen are left out: rounding may choose the other.
 * Invariance: a row alone, among others, with one thread and with three, with repacked weights and
 * without: the same bits.
 * Reads: experts that no row uses have no weights at all, so that touching them ends the program.
 */
#include "check.h"

#include "base/mem.h"
#include "tensor/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 70, MAX_EXPERTS = 20 };

/* One layer with everything it needs. */
struct layer {
    struct check *c;
    enum dtype t;
    int hidden, ffn, n;
    struct fence router, y, x;
    void *weights[3 * MAX_EXPERTS];
    struct matrix matrix[3 * MAX_EXPERTS];
    struct expert_weights e;
};

static struct matrix random_matrix(struct check *c, enum dtype t, int out, int in, void **data)
{
    size_t row_size = dtype_row_size(t, in);
    *data = malloc(row_size * (size_t)out);
    random_rows(&c->rng, *data, row_size, t, in, out, false);
    return (struct matrix){ .dtype = t, .out = out, .in = in, .data = *data, .row_size = row_size };
}

/* Type t for gate and down, up_t for up. */
static void layer_open(struct layer *l, struct check *c, enum dtype t, enum dtype up_t, int hidden,
                       int ffn, int experts, int used)
{
    const enum dtype types[] = { t, up_t, t };
    float *router;
    *l = (struct layer){ .c = c, .t = t, .hidden = hidden, .ffn = ffn, .n = MAX_ROWS };
    fence_open(&l->router, sizeof(float) * (size_t)(experts * hidden), 4);
    fence_open(&l->x, sizeof(float) * (size_t)(MAX_ROWS * hidden), 4);
    fence_open(&l->y, sizeof(float) * (size_t)(MAX_ROWS * hidden), 4);
    router = l->router.p;
    for (int i = 0; i < experts * hidden; i++)
        router[i] = 2 * rng_normal(&c->rng) / sqrtf((float)hidden);
    for (int i = 0; i < MAX_ROWS * hidden; i++)
        ((float *)l->x.p)[i] = rng_normal(&c->rng);
    for (int role = 0; role < 3; role++)
        for (int e = 0; e < experts; e++)
            l->matrix[role * experts + e] =
                random_matrix(c, types[role], role == 2 ? hidden : ffn, role == 2 ? ffn : hidden,
                              &l->weights[role * experts + e]);
    l->e = (struct expert_weights){ .n = experts,
                                    .used = used,
                                    .normed = check_int(c, 0, 1),
                                    .router = { .dtype = DTYPE_F32,
                                                .out = experts,
                                                .in = hidden,
                                                .data = router,
                                                .row_size = sizeof(float) * (size_t)hidden },
                                    .gate = l->matrix,
                                    .up = l->matrix + experts,
                                    .down = l->matrix + 2 * experts };
}

static void layer_close(struct layer *l)
{
    if (!fence_whole(&l->y))
        check_fail(l->c, "written outside y");
    for (int i = 0; i < 3 * l->e.n; i++)
        free(l->weights[i]);
    fence_close(&l->router);
    fence_close(&l->x);
    fence_close(&l->y);
}

/* Run rows [row0, row0 + n) on a device of so many threads; y [n, hidden]. */
static void run_rows(struct layer *l, int threads, bool repacks, int row0, int n, float *y)
{
    struct work_shape s = { .rows = n,
                            .in = l->hidden > l->ffn ? l->hidden : l->ffn,
                            .n_heads = 1,
                            .n_kv_heads = 1,
                            .head_dim = 8,
                            .context = 8,
                            .kv_dtype = DTYPE_F32,
                            .hidden = l->hidden,
                            .n_experts = l->e.n,
                            .n_used = l->e.used,
                            .expert_ffn = l->ffn };
    struct device *dev = NULL;
    struct device_work *w = NULL;
    struct pv_error err = { 0 };
    if (device_cpu_open(&dev, threads, l->c->level->flags, &err)) {
        check_fail(l->c, "no device: %s", err.text);
        return;
    }
    dev->repacks = repacks;
    for (int i = 0; i < 3 * l->e.n; i++)
        if (l->matrix[i].data)
            dev->ops->take(dev, &l->matrix[i], &err);
    if (dev->ops->work_open(dev, &w, &s, &err))
        check_fail(l->c, "no work: %s", err.text);
    else
        dev->ops->experts(w, y, &l->e, (const float *)l->x.p + (size_t)row0 * (size_t)l->hidden, n);
    dev->ops->work_close(dev, &w);
    for (int i = 0; i < 3 * l->e.n; i++)
        if (l->matrix[i].data)
            dev->ops->drop(dev, &l->matrix[i]);
    device_close(&dev);
}

/* ---- the formula in double precision ---- */

static void product(double *y, const struct matrix *m, const double *x)
{
    float *row = malloc(sizeof *row * (size_t)m->in);
    for (int o = 0; o < m->out; o++) {
        row_to_f32(row, (const uint8_t *)m->data + (size_t)o * m->row_size, m->dtype, m->in);
        y[o] = 0;
        for (int i = 0; i < m->in; i++)
            y[o] += (double)row[i] * x[i];
    }
    free(row);
}

/* Whether a row's choice is clear; y as it should be. */
static bool exact_row(const struct layer *l, const float *x, double *y)
{
    const struct expert_weights *e = &l->e;
    double *mem = calloc((size_t)(2 * l->hidden + 2 * l->ffn + e->n), sizeof *mem);
    double *in = mem, *out = in + l->hidden, *gate = out + l->hidden, *up = gate + l->ffn;
    double *logit = up + l->ffn, all = 0, part = 0, least = INFINITY, next = -INFINITY;
    bool taken[MAX_EXPERTS] = { false };
    for (int i = 0; i < l->hidden; i++)
        in[i] = (double)x[i], y[i] = 0;
    product(logit, &e->router, in);
    for (int k = 0; k < e->used; k++) {
        int best = -1;
        for (int i = 0; i < e->n; i++)
            if (!taken[i] && (best < 0 || logit[i] > logit[best]))
                best = i;
        taken[best] = true;
        least = logit[best];
        part += exp(logit[best]);
    }
    for (int i = 0; i < e->n; i++) {
        all += exp(logit[i]);
        next = !taken[i] && logit[i] > next ? logit[i] : next;
    }
    for (int i = 0; i < e->n; i++) {
        if (!taken[i])
            continue;
        product(gate, &e->gate[i], in);
        product(up, &e->up[i], in);
        for (int j = 0; j < l->ffn; j++)
            gate[j] = gate[j] / (1 + exp(-gate[j])) * up[j];
        product(out, &e->down[i], gate);
        for (int j = 0; j < l->hidden; j++)
            y[j] += exp(logit[i]) / (e->normed ? part : all) * out[j];
    }
    free(mem);
    return least - next > 1e-4;
}

static double bound_of(const struct check *c, enum dtype t)
{
    unsigned r = level_rounding(c->level, t);
    return r & ROUND_X_INT8 ? 0.12 : r & ROUND_X_BF16 ? 0.03 : 1e-4;
}

static void check_rows(struct layer *l, const float *y, double bound, int *clear)
{
    double *want = malloc(sizeof *want * (size_t)l->hidden);
    for (int r = 0; r < l->n; r++) {
        const float *got = y + (size_t)r * (size_t)l->hidden;
        double size = 0, worst = 0;
        if (!exact_row(l, (const float *)l->x.p + (size_t)r * (size_t)l->hidden, want))
            continue;
        ++*clear;
        for (int i = 0; i < l->hidden; i++) {
            double error = fabs((double)got[i] - want[i]);
            size = fabs(want[i]) > size ? fabs(want[i]) : size;
            worst = error > worst || isnan(error) ? error : worst;
        }
        if (!(worst <= bound * size))
            check_fail(l->c, "row %d is off by %.3g of %.3g", r, worst, size);
    }
    free(want);
}

static void same_rows(struct layer *l, const float *y, int threads, bool repacks, int row0, int n)
{
    size_t size = sizeof(float) * (size_t)n * (size_t)l->hidden;
    float *part = malloc(size);
    memset(part, 0xff, size);
    run_rows(l, threads, repacks, row0, n, part);
    if (memcmp(part, y + (size_t)row0 * (size_t)l->hidden, size))
        check_fail(l->c, "rows %d to %d with %d threads%s have other bits", row0, row0 + n - 1,
                   threads, repacks ? ", repacked" : "");
    free(part);
}

static void check_layer(struct check *c, enum dtype t, enum dtype up_t, int hidden, int ffn,
                        int experts, int used)
{
    static const int ranges[][2] = {
        { 0, 1 }, { 1, 1 }, { 2, 3 }, { 5, 8 }, { 13, 17 }, { 30, 40 }
    };
    struct layer l;
    int clear = 0;
    double bound = bound_of(c, t), other = bound_of(c, up_t);
    layer_open(&l, c, t, up_t, hidden, ffn, experts, used);
    run_rows(&l, 3, false, 0, l.n, l.y.p);
    check_rows(&l, l.y.p, bound > other ? bound : other, &clear);
    if (clear < MAX_ROWS / 2)
        check_fail(c, "only %d of %d rows could be compared", clear, MAX_ROWS);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        same_rows(&l, l.y.p, 1 + (int)i % 3, i % 2 == 1, ranges[i][0], ranges[i][1]);
    same_rows(&l, l.y.p, 1, true, 0, l.n);
    layer_close(&l);
}

static void check_types(struct check *c)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        int block = dtype_block((enum dtype)t);
        if (!check_begin(c, "experts", dtype_name((enum dtype)t)))
            continue;
        if (block == 1) {
            check_layer(c, (enum dtype)t, (enum dtype)t, 40, 24, 7, 2);
            check_layer(c, (enum dtype)t, (enum dtype)t, 72, 136, 20, 8);
        } else {
            check_layer(c, (enum dtype)t, (enum dtype)t, block < 64 ? 64 : block, block, 7, 3);
        }
        check_end(c);
    }
    if (check_begin(c, "experts", "mixed")) {
        check_layer(c, DTYPE_Q4_0, DTYPE_BF16, 64, 96, 5, 5);
        check_layer(c, DTYPE_F16, DTYPE_Q8_0, 96, 32, 3, 1);
        check_end(c);
    }
}

/* ---- the choice ---- */

static void expect_route(struct check *c, const float *logits, int n, int used, const int *want)
{
    int expert[DEVICE_MAX_USED];
    float weight[DEVICE_MAX_USED];
    c->k.route(expert, weight, logits, n, used, true);
    for (int k = 0; k < used; k++)
        if (expert[k] != want[k])
            check_fail(c, "expert %d of %d is %d, not %d", k, used, expert[k], want[k]);
}

/* Weights against the formula, for random logits. */
static void check_weights(struct check *c, bool normed)
{
    enum { N = 128, USED = 8 };
    float logits[N], weight[USED];
    int expert[USED];
    double all = 0, part = 0;
    for (int i = 0; i < N; i++) {
        logits[i] = 4 * rng_normal(&c->rng);
        all += exp((double)logits[i]);
    }
    c->k.route(expert, weight, logits, N, USED, normed);
    for (int k = 0; k < USED; k++) {
        int before = 0;
        for (int i = 0; i < N; i++)
            before += logits[i] > logits[expert[k]];
        if (before >= USED || (k > 0 && expert[k] <= expert[k - 1]))
            check_fail(c, "expert %d is the %d-th, at place %d", expert[k], before, k);
        part += exp((double)logits[expert[k]]);
    }
    for (int k = 0; k < USED; k++) {
        double want = exp((double)logits[expert[k]]) / (normed ? part : all);
        if (!(fabs((double)weight[k] - want) <= 1e-5 * want))
            check_fail(c, "a weight is %.9g, not %.9g", (double)weight[k], want);
    }
}

static void check_route(struct check *c)
{
    const float equal[] = { 1, 1, 1, 1, 1 }, some[] = { 0, 2, 1, 2, 1, 2 };
    const float odd[] = { NAN, -INFINITY, 3, NAN, -1e30f };
    if (!check_begin(c, "route", ""))
        return;
    expect_route(c, equal, 5, 3, (const int[]){ 0, 1, 2 });
    expect_route(c, some, 6, 2, (const int[]){ 1, 3 });
    expect_route(c, some, 6, 4, (const int[]){ 1, 2, 3, 5 });
    expect_route(c, some, 6, 6, (const int[]){ 0, 1, 2, 3, 4, 5 });
    expect_route(c, odd, 5, 3, (const int[]){ 0, 2, 4 });
    for (int i = 0; i < 20; i++)
        check_weights(c, i % 2);
    check_end(c);
}

/* ---- reads ---- */

/* A router that sends every row to experts 1 and 4; the others have no weights. */
static void check_unused(struct check *c)
{
    struct layer l;
    float *router;
    if (!check_begin(c, "experts", "unused"))
        return;
    layer_open(&l, c, DTYPE_BF16, DTYPE_BF16, 64, 32, 6, 2);
    router = l.router.p;
    for (int i = 0; i < 64 * MAX_ROWS; i++)
        ((float *)l.x.p)[i] = fabsf(((float *)l.x.p)[i]);
    for (int i = 0; i < 6 * 64; i++)
        router[i] = i / 64 == 1 || i / 64 == 4 ? 1 : -1;
    for (int e = 0; e < 6; e++)
        for (int role = 0; role < 3 && e != 1 && e != 4; role++)
            l.matrix[role * 6 + e].data = NULL;
    run_rows(&l, 2, false, 0, l.n, l.y.p);
    for (int i = 0; i < 64 * l.n; i++)
        if (!isfinite(((float *)l.y.p)[i]))
            check_fail(c, "number %d is not finite", i);
    layer_close(&l);
    check_end(c);
}

/* The plain operation against the formula; it belongs to no level. */
static void check_ref(struct check *c)
{
    struct layer l;
    int clear = 0;
    if (c->level->flags != 0 || !check_begin(c, "experts_ref", ""))
        return;
    layer_open(&l, c, DTYPE_Q8_0, DTYPE_F16, 96, 64, 9, 4);
    experts_ref(l.y.p, &l.e, l.x.p, l.n);
    check_rows(&l, l.y.p, 1e-4, &clear);
    if (clear < MAX_ROWS / 2)
        check_fail(c, "only %d of %d rows could be compared", clear, MAX_ROWS);
    layer_close(&l);
    check_end(c);
}

void check_experts(struct check *c)
{
    check_route(c);
    check_ref(c);
    check_types(c);
    check_unused(c);
}
