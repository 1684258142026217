/* Proof of the small operations of the device: norms, rotation, activations, rows chosen and mixed,
 * copies. Every one is also run on single rows, which must give the bits it gave among others. */
#include "check_cuda.h"

#include "larger.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 7 };
static const int tiny_dims[] = { 1, 2, 3, 8, 31, 64, 100, 128, 250, 1001, 2304 };
static const int true_dims[] = { 64, 100, 128, 896, 1001, 1152, 1280, 3420, 3584, 4304, 4864 };
enum { N_DIMS = sizeof tiny_dims / sizeof tiny_dims[0] };

/* An operation in place or from x to y over rows of `dim`. */
struct rows_op {
    struct cuda_check *t;
    int n, dim;
    float *x, *y; /* host: before and after */
    float *w, *b; /* [dim], or a second operand [n, dim] */
    struct gbuf gx, gy, gw, gb;
};

static void rows_open(struct rows_op *o, struct cuda_check *t, int n, int dim, float size,
                      size_t second)
{
    *o = (struct rows_op){ .t = t, .n = n, .dim = dim };
    o->x = normal_both(t, &o->gx, (size_t)n * (size_t)dim, size);
    o->w = normal_both(t, &o->gw, second, 1);
    o->b = normal_both(t, &o->gb, second, 1);
    gbuf_open(t, &o->gy, o->gx.size);
    o->y = malloc(o->gy.size);
}

static void rows_close(struct rows_op *o)
{
    gbuf_close(&o->gx);
    gbuf_close(&o->gy);
    gbuf_close(&o->gw);
    gbuf_close(&o->gb);
    free(o->x);
    free(o->y);
    free(o->w);
    free(o->b);
}

static void expect(struct rows_op *o, int i, double got, double exact, double tol)
{
    if (!(fabs(got - exact) <= tol))
        check_fail(&o->t->c, "dim %d: [%d][%d] is %.9g, not %.9g +- %.3g", o->dim, i / o->dim,
                   i % o->dim, got, exact, tol);
}

/* Rows [r0, r0 + n) from gx to gy. */
typedef void (*rows_fn)(struct rows_op *o, int r0, int n);

/* All rows to o->y; then each pair of rows alone must give the same. */
static void rows_run(struct rows_op *o, rows_fn f)
{
    size_t row = sizeof(float) * (size_t)o->dim;
    float *few = malloc(o->gy.size);
    gbuf_put(&o->gx, o->x, o->gx.size);
    f(o, 0, o->n);
    check_wait(o->t, o->t->w);
    gbuf_get(&o->gy, o->y, o->gy.size);
    for (int r = 0; r < o->n; r++) {
        int n = r + 1 < o->n && r % 2 ? 2 : 1;
        gbuf_put(&o->gx, o->x, o->gx.size);
        f(o, r, n);
        gbuf_get(&o->gy, few, o->gy.size);
        if (memcmp(few + (size_t)r * (size_t)o->dim, o->y + (size_t)r * (size_t)o->dim,
                   row * (size_t)n))
            check_fail(&o->t->c, "dim %d: row %d of %d differs from itself among %d", o->dim, r,
                       o->n, n);
    }
    free(few);
}

static float *row_of(const struct gbuf *b, const struct rows_op *o, int r)
{
    return (float *)b->p + (size_t)r * (size_t)o->dim;
}

/* ---- norms ---- */

static void run_rmsnorm(struct rows_op *o, int r0, int n)
{
    o->t->ops->rmsnorm(o->t->w, row_of(&o->gy, o, r0), row_of(&o->gx, o, r0), o->gw.p, n, o->dim,
                       1e-6f);
}

static void run_layernorm(struct rows_op *o, int r0, int n)
{
    o->t->ops->layernorm(o->t->w, row_of(&o->gy, o, r0), row_of(&o->gx, o, r0), o->gw.p, o->gb.p, n,
                         o->dim, 1e-6f);
}

static void check_norm(struct cuda_check *t, int dim, bool layer, float size, float shift)
{
    struct rows_op o;
    rows_open(&o, t, ROWS, dim, size, (size_t)dim);
    for (int i = 0; i < ROWS * dim; i++)
        o.x[i] += shift;
    rows_run(&o, layer ? run_layernorm : run_rmsnorm);
    for (int r = 0; r < ROWS; r++) {
        const float *x = o.x + r * dim;
        double mean = 0, squares = 0, most = 0, unit = (8 + sqrt(dim)) * FLT_EPSILON;
        for (int i = 0; i < dim; i++) {
            mean += layer ? (double)x[i] / dim : 0;
            most = larger(most, fabs(x[i]));
        }
        for (int i = 0; i < dim; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        double scale = 1 / sqrt(squares / dim + 1e-6f);
        for (int i = 0; i < dim; i++) {
            double v = (x[i] - mean) * scale, b = layer ? o.b[i] : 0;
            double off = (layer ? most * scale : 0) + fabs(v);
            expect(&o, r * dim + i, o.y[r * dim + i], v * o.w[i] + b,
                   unit * (off * fabs(o.w[i]) + fabs(b)));
        }
    }
    rows_close(&o);
}

static void check_norms(struct cuda_check *t, bool layer)
{
    const int *dims = t->full ? true_dims : tiny_dims;
    for (int i = 0; i < N_DIMS; i++) {
        check_norm(t, dims[i], layer, i % 2 ? 3 : 1e-3f, 0);
        if (layer)
            check_norm(t, dims[i], layer, 1e-2f, 5);
    }
}

static void check_rmsnorm(struct cuda_check *t)
{
    check_norms(t, false);
}

static void check_layernorm(struct cuda_check *t)
{
    check_norms(t, true);
}

/* ---- activations and sums; x is in place, so it is copied to y by the test ---- */

static void move_to_y(struct rows_op *o)
{
    gbuf_put(&o->gy, o->x, o->gy.size);
}

static void run_silu(struct rows_op *o, int r0, int n)
{
    move_to_y(o);
    o->t->ops->silu_mul(o->t->w, row_of(&o->gy, o, r0), row_of(&o->gw, o, r0), n, o->dim);
}

static void run_add(struct rows_op *o, int r0, int n)
{
    move_to_y(o);
    o->t->ops->add(o->t->w, row_of(&o->gy, o, r0), row_of(&o->gw, o, r0), n, o->dim);
}

static void run_gelu_tanh(struct rows_op *o, int r0, int n)
{
    move_to_y(o);
    o->t->ops->gelu(o->t->w, row_of(&o->gy, o, r0), n, o->dim, GELU_TANH);
}

static void run_gelu_erf(struct rows_op *o, int r0, int n)
{
    move_to_y(o);
    o->t->ops->gelu(o->t->w, row_of(&o->gy, o, r0), n, o->dim, GELU_ERF);
}

static void run_gelu_quick(struct rows_op *o, int r0, int n)
{
    move_to_y(o);
    o->t->ops->gelu(o->t->w, row_of(&o->gy, o, r0), n, o->dim, GELU_QUICK);
}

static const float ends[] = { 0,  -0.0f, 1e-30f, -1e-30f, 7,    -7,    13.9f, -13.9f, 20,
                              88, -20,   -88,    -104,    1e5f, -1e5f, 1e30f, -1000 };

static void put_ends(struct rows_op *o)
{
    for (int i = 0; i < o->n * o->dim; i++)
        o->x[i] = ends[(size_t)i % (sizeof ends / sizeof ends[0])];
}

static void check_silu_mul(struct cuda_check *t)
{
    const int *dims = t->full ? true_dims : tiny_dims;
    for (int l = 0; l < N_DIMS; l++) {
        struct rows_op o;
        rows_open(&o, t, ROWS, dims[l], l % 2 ? 1 : 12, (size_t)(ROWS * dims[l]));
        if (l % 3 == 0)
            put_ends(&o);
        rows_run(&o, run_silu);
        for (int i = 0; i < ROWS * o.dim; i++) {
            double exact = o.x[i] / (1 + exp(-(double)o.x[i])) * o.w[i];
            expect(&o, i, o.y[i], exact, 2e-6 * fabs(exact) + 1e-35 * (1 + fabs(o.w[i])));
        }
        rows_close(&o);
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

static void check_gelu(struct cuda_check *t)
{
    static void (*const run[GELU_COUNT])(struct rows_op *, int, int) = {
        [GELU_TANH] = run_gelu_tanh, [GELU_ERF] = run_gelu_erf, [GELU_QUICK] = run_gelu_quick
    };
    for (int l = 0; l < GELU_COUNT * N_DIMS; l++) {
        enum gelu_kind kind = (enum gelu_kind)(l % GELU_COUNT);
        struct rows_op o;
        rows_open(&o, t, ROWS, tiny_dims[l / GELU_COUNT], l % 4 ? 1 : 4, 1);
        if (l / GELU_COUNT % 3 == 0)
            put_ends(&o);
        rows_run(&o, run[kind]);
        for (int i = 0; i < ROWS * o.dim; i++) {
            double exact = gelu_exact(o.x[i], kind);
            expect(&o, i, o.y[i], exact,
                   1e-6 * fabs(exact) + 2.5e-7 * fmin(1, fabs(o.x[i])) + 1e-37);
        }
        rows_close(&o);
    }
}

static void check_add(struct cuda_check *t)
{
    for (int l = 0; l < N_DIMS; l++) {
        struct rows_op o;
        rows_open(&o, t, ROWS, tiny_dims[l], 1, (size_t)(ROWS * tiny_dims[l]));
        rows_run(&o, run_add);
        for (int i = 0; i < ROWS * o.dim; i++)
            expect(&o, i, o.y[i], o.x[i] + o.w[i], 0);
        rows_close(&o);
    }
}

/* ---- rotation ---- */

static void check_rope_of(struct cuda_check *t, int d, int heads, bool norm)
{
    enum { N = 5 };
    int half = d / 2, dim = heads * d;
    struct gbuf gx, gc, gs, gw;
    float *x = normal_both(t, &gx, (size_t)(N * dim), 2), *y = malloc(gx.size);
    float *co = normal_both(t, &gc, (size_t)(N * half), 1), *w = normal_both(t, &gw, (size_t)d, 1);
    float *si = normal_both(t, &gs, (size_t)(N * half), 1), *one = malloc(gx.size);
    t->ops->rope(t->w, gx.p, N, heads, d, norm ? gw.p : NULL, 1e-6f, gc.p, gs.p);
    gbuf_get(&gx, y, gx.size);
    for (int i = 0; i < N * heads; i++) {
        const float *v = x + i * d, *c = co + i / heads * half, *s = si + i / heads * half;
        double sum = 0;
        for (int j = 0; j < d; j++)
            sum += (double)v[j] * v[j];
        double scale = norm ? 1 / sqrt(sum / d + 1e-6f) : 1, unit = (16 + sqrt(d)) * FLT_EPSILON;
        for (int j = 0; j < half; j++) {
            double a = v[j] * scale * (norm ? w[j] : 1);
            double b = v[j + half] * scale * (norm ? w[j + half] : 1);
            double want[2] = { a * c[j] - b * s[j], b * c[j] + a * s[j] };
            double size[2] = { fabs(a * c[j]) + fabs(b * s[j]), fabs(b * c[j]) + fabs(a * s[j]) };
            for (int k = 0; k < 2; k++)
                if (!(fabs(y[i * d + j + k * half] - want[k]) <= unit * size[k]))
                    check_fail(&t->c, "d=%d: head %d [%d] is %.9g, not %.9g", d, i, j + k * half,
                               y[i * d + j + k * half], want[k]);
        }
    }
    gbuf_put(&gx, x, gx.size);
    for (int r = 0; r < N; r++)
        t->ops->rope(t->w, (float *)gx.p + r * dim, 1, heads, d, norm ? gw.p : NULL, 1e-6f,
                     (float *)gc.p + r * half, (float *)gs.p + r * half);
    check_wait(t, t->w);
    gbuf_get(&gx, one, gx.size);
    if (memcmp(one, y, gx.size))
        check_fail(&t->c, "d=%d: rows alone give other bits", d);
    gbuf_close(&gx);
    gbuf_close(&gc);
    gbuf_close(&gs);
    gbuf_close(&gw);
    free(x);
    free(y);
    free(one);
    free(co);
    free(si);
    free(w);
}

static void check_rope(struct cuda_check *t)
{
    static const int dims[] = { 2, 4, 6, 16, 32, 64, 72, 80, 96, 128, 130, 256 };
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        check_rope_of(t, dims[i], 1 + (int)i % 3, i % 2);
    check_rope_of(t, 64, 3, false);
    check_rope_of(t, 128, 2, true);
}

/* ---- rows chosen ---- */

static void check_gather(struct cuda_check *t)
{
    enum { N = 9, FROM = 6 };
    static const int32_t rows[N] = { 5, 0, 3, 3, 1, 4, 2, 5, 0 };
    for (int l = 0; l < N_DIMS; l++) {
        int dim = tiny_dims[l];
        size_t row = sizeof(float) * (size_t)dim;
        struct gbuf gx, gy, gr;
        float *x = normal_both(t, &gx, (size_t)(FROM * dim), 1), *y = malloc(row * N);
        gbuf_open(t, &gy, row * N);
        gbuf_open(t, &gr, sizeof rows);
        gbuf_put(&gr, rows, sizeof rows);
        t->ops->gather(t->w, gy.p, gx.p, gr.p, N, dim);
        check_wait(t, t->w);
        gbuf_get(&gy, y, gy.size);
        for (int r = 0; r < N; r++)
            if (memcmp(y + r * dim, x + rows[r] * dim, row))
                check_fail(&t->c, "dim %d: row %d is not row %d", dim, r, (int)rows[r]);
        gbuf_close(&gx);
        gbuf_close(&gy);
        gbuf_close(&gr);
        free(x);
        free(y);
    }
}

/* Attention of one query to each window, against plain C and among others. */
static void check_windows_of(struct cuda_check *t, int n, int window, int n_heads, int d)
{
    int row = n_heads * d;
    size_t size = sizeof(float) * (size_t)(n * row);
    struct gbuf gq, gk, gv, gout;
    float *q = normal_both(t, &gq, (size_t)(n * row), 1);
    float *k = normal_both(t, &gk, (size_t)(n * window * row), 1);
    float *v = normal_both(t, &gv, (size_t)(n * window * row), 1);
    float *want = malloc(size), *got = malloc(size), *one = malloc(size);
    struct window_attn_job j = {
        .q = q, .k = k, .v = v, .out = want, .n = n, .window = window, .n_heads = n_heads, .d = d
    };
    j.scale = 1 / sqrtf((float)d);
    window_attention_ref(&j, 0, n);
    gbuf_open(t, &gout, size);
    j.q = gq.p, j.k = gk.p, j.v = gv.p, j.out = gout.p;
    t->ops->attention_windows(t->w, &j);
    check_wait(t, t->w);
    gbuf_get(&gout, got, size);
    for (int i = 0; i < n * row; i++)
        if (!(fabsf(got[i] - want[i]) <= 64 * FLT_EPSILON))
            check_fail(&t->c, "%d windows of %d, heads of %d: [%d] is %.9g, not %.9g", n, window, d,
                       i, got[i], want[i]);
    /* the last query alone */
    j.q += (n - 1) * row, j.k += (n - 1) * window * row, j.v += (n - 1) * window * row, j.n = 1;
    t->ops->attention_windows(t->w, &j);
    check_wait(t, t->w);
    gbuf_get(&gout, one, sizeof(float) * (size_t)row);
    if (memcmp(one, got + (n - 1) * row, sizeof(float) * (size_t)row))
        check_fail(&t->c, "the last of %d windows differs from the same alone", n);
    gbuf_close(&gq);
    gbuf_close(&gk);
    gbuf_close(&gv);
    gbuf_close(&gout);
    free(q);
    free(k);
    free(v);
    free(want);
    free(got);
    free(one);
}

static void check_windows(struct cuda_check *t)
{
    check_windows_of(t, 5, 25, 3, 12);
    check_windows_of(t, 1, 1, 1, 2);
    check_windows_of(t, 3, 7, 2, 256);
}

static void check_blend(struct cuda_check *t)
{
    enum { N = 5, FROM = 6 };
    static const int rows[N][4] = {
        { 0, 1, 2, 3 }, { 5, 5, 5, 5 }, { 3, 0, 4, 1 }, { 2, 2, 0, 0 }, { 1, 0, 5, 4 }
    };
    for (int l = 0; l < N_DIMS; l++) {
        int dim = tiny_dims[l];
        struct gbuf gx, gy, gr, gw;
        float *x = normal_both(t, &gx, (size_t)(FROM * dim), 1);
        float *w = normal_both(t, &gw, (size_t)(N * 4), 1),
              *y = malloc(sizeof *y * (size_t)(N * dim));
        gbuf_open(t, &gy, sizeof *y * (size_t)(N * dim));
        gbuf_open(t, &gr, sizeof rows);
        gbuf_put(&gr, rows, sizeof rows);
        t->ops->blend(t->w, gy.p, gx.p, gr.p, gw.p, N, dim);
        check_wait(t, t->w);
        gbuf_get(&gy, y, gy.size);
        for (int i = 0; i < N * dim; i++) {
            double exact = 0, size = 0;
            for (int j = 0; j < 4; j++) {
                double part = (double)w[i / dim * 4 + j] * x[rows[i / dim][j] * dim + i % dim];
                exact += part;
                size += fabs(part);
            }
            if (!(fabs(y[i] - exact) <= 4 * FLT_EPSILON * size))
                check_fail(&t->c, "dim %d: [%d] is %.9g, not %.9g", dim, i, y[i], exact);
        }
        gbuf_close(&gx);
        gbuf_close(&gy);
        gbuf_close(&gr);
        gbuf_close(&gw);
        free(x);
        free(w);
        free(y);
    }
}

/* Frames that are blended alike, as gelu and blend of each do it. */
static void check_gelu_blend(struct cuda_check *t)
{
    enum { N = 3, FROM = 4, FRAMES = 3 };
    static const int rows[N][4] = { { 0, 1, 2, 3 }, { 3, 3, 3, 3 }, { 2, 0, 1, 1 } };
    for (int l = 0; l < N_DIMS; l++) {
        int dim = tiny_dims[l];
        size_t from = (size_t)(FROM * dim), to = (size_t)(N * dim);
        struct gbuf gx, gy, gz, gr, gw;
        float *x = normal_both(t, &gx, FRAMES * from, 2), *w = normal_both(t, &gw, N * 4, 1);
        float *y = malloc(sizeof *y * FRAMES * to), *z = malloc(sizeof *z * FRAMES * to);
        gbuf_open(t, &gy, sizeof *y * FRAMES * to);
        gbuf_open(t, &gz, sizeof *z * FRAMES * to);
        gbuf_open(t, &gr, sizeof rows);
        gbuf_put(&gr, rows, sizeof rows);
        struct gelu_blend_job job = { .y = gy.p,
                                      .x = gx.p,
                                      .rows = gr.p,
                                      .weights = gw.p,
                                      .frames = FRAMES,
                                      .n = N,
                                      .from = FROM,
                                      .dim = dim };
        t->ops->gelu_blend(t->w, &job);
        t->ops->gelu(t->w, gx.p, FRAMES * FROM, dim, GELU_ERF);
        for (size_t f = 0; f < FRAMES; f++)
            t->ops->blend(t->w, (float *)gz.p + f * to, (float *)gx.p + f * from, gr.p, gw.p, N,
                          dim);
        check_wait(t, t->w);
        gbuf_get(&gy, y, gy.size);
        gbuf_get(&gz, z, gz.size);
        if (memcmp(y, z, gy.size))
            check_fail(&t->c, "dim %d: gelu and blend one after the other give other bits", dim);
        gbuf_close(&gx);
        gbuf_close(&gy);
        gbuf_close(&gz);
        gbuf_close(&gr);
        gbuf_close(&gw);
        free(x);
        free(w);
        free(y);
        free(z);
    }
}

/* Copies ahead into two buffers in turn, each read by an operation after it, and nobody waits. */
static void check_ahead(struct cuda_check *t)
{
    enum { ROUNDS = 7 };
    size_t size = ((size_t)5 << 20) + 123;
    struct work_shape shape = { .rows = 8,
                                .in = 64,
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 64,
                                .hidden = 64,
                                .ffn = 64,
                                .segment = 8 };
    struct pv_error err = { 0 };
    struct device_work *w = NULL;
    struct gbuf g[2], kept;
    uint8_t *a = malloc(size), *b = malloc(ROUNDS * size);
    check_must(t->ops->work_open(t->dev, &w, &shape, &err), &err);
    gbuf_open(t, &g[0], size);
    gbuf_open(t, &g[1], size);
    gbuf_open(t, &kept, ROUNDS * size);
    for (int r = 0; r < ROUNDS; r++) {
        for (size_t i = 0; i < size; i++)
            a[i] = (uint8_t)(i * 31 + i / 4096 + (size_t)r * 57);
        t->ops->put_ahead(w, g[r % 2].p, a, size);
        t->ops->copy(w, (uint8_t *)kept.p + (size_t)r * size, g[r % 2].p, size);
    }
    memset(a, 0, size);
    t->ops->get(w, b, kept.p, ROUNDS * size);
    check_wait(t, w);
    for (int r = 0; r < ROUNDS; r++)
        for (size_t i = 0; i < size; i++)
            if (b[(size_t)r * size + i] != (uint8_t)(i * 31 + i / 4096 + (size_t)r * 57)) {
                check_fail(&t->c, "copy %d ahead: byte %zu is wrong", r, i);
                break;
            }
    t->ops->work_close(t->dev, &w);
    gbuf_close(&g[0]);
    gbuf_close(&g[1]);
    gbuf_close(&kept);
    free(a);
    free(b);
}

/* Copies larger than any buffer on their way, and room that shrinks. */
static void check_copies(struct cuda_check *t)
{
    size_t size = ((size_t)(t->full ? 100 : 37) << 20) + 12345, left, all, less;
    uint8_t *a = malloc(size), *b = malloc(size);
    struct gbuf g;
    for (size_t i = 0; i < size; i++)
        a[i] = (uint8_t)(i % 8 ? (uint64_t)a[i - 1] * 5 + 1 : rng_next(&t->c.rng));
    t->ops->room(t->dev, &left, &all);
    gbuf_open(t, &g, size);
    t->ops->room(t->dev, &less, &all);
    if (all && (left > all || less >= left))
        check_fail(&t->c, "room for %zu before and %zu after, of %zu", left, less, all);
    gbuf_put(&g, a, size);
    gbuf_get(&g, b, size);
    if (memcmp(a, b, size))
        check_fail(&t->c, "%zu bytes come back changed", size);
    memset(b, 0, size);
    t->dev->ops->download(t->dev, b, g.p, size);
    if (memcmp(a, b, size))
        check_fail(&t->c, "%zu bytes are downloaded changed", size);
    gbuf_fill(&g);
    gbuf_put(&g, a, size / 2);
    t->ops->copy(t->w, (uint8_t *)g.p + size / 2, g.p, size / 2);
    gbuf_get(&g, b, size);
    if (memcmp(a, b, size / 2) || memcmp(a, b + size / 2, size / 2))
        check_fail(&t->c, "%zu bytes are copied changed", size / 2);
    void *zeroed = t->ops->alloc(t->dev, 4096);
    t->dev->ops->download(t->dev, b, zeroed, 4096);
    for (int i = 0; i < 4096; i++)
        if (b[i])
            check_fail(&t->c, "new memory is not zero");
    t->ops->free(t->dev, zeroed);
    gbuf_close(&g);
    free(a);
    free(b);
}

/* Steps of more keys than there are records, each of which must run once whenever it comes, and
 * those that come often from a record. */
static void check_keys(struct cuda_check *t)
{
    enum { KEYS = 200, FEW = 10, ROUNDS = 6, ALL_ROUNDS = 3 };
    struct gbuf gx, gy;
    float *x = normal_both(t, &gx, KEYS, 1), y[KEYS] = { 0 };
    uint64_t first_runs = t->ops->first_runs(t->dev);
    int played = 0, run = 0;
    gbuf_open(t, &gy, sizeof y);
    gbuf_put(&gy, y, sizeof y);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < (round < ALL_ROUNDS ? KEYS : FEW); i++) {
            struct work_plan plan = { .key = &i, .key_size = sizeof i };
            bool asked = t->ops->begin(t->w, &plan);
            if (asked)
                t->ops->add(t->w, (float *)gy.p + i, (float *)gx.p + i, 1, 1);
            t->ops->end(t->w);
            if (t->ops->again(t->w)) {
                t->ops->add(t->w, (float *)gy.p + i, (float *)gx.p + i, 1, 1);
                t->ops->end(t->w);
            }
            played += !asked;
            run += asked;
        }
    if (t->ops->first_runs(t->dev) - first_runs != (uint64_t)run)
        check_fail(&t->c, "of %d steps that were not played, the device knows %d", run,
                   (int)(t->ops->first_runs(t->dev) - first_runs));
    gbuf_get(&gy, y, sizeof y);
    check_wait(t, t->w);
    for (int i = 0; i < KEYS; i++) {
        float want = 0;
        for (int round = 0; round < (i < FEW ? ROUNDS : ALL_ROUNDS); round++)
            want += x[i];
        if (y[i] != want)
            check_fail(&t->c, "key %d: %g, not %g", i, y[i], want);
    }
    if (played < 2 * FEW)
        check_fail(&t->c, "%d steps are played from a record", played);
    gbuf_close(&gx);
    gbuf_close(&gy);
    free(x);
}

void check_cuda_ops(struct cuda_check *t)
{
    static const struct {
        const char *name;
        void (*run)(struct cuda_check *t);
    } tests[] = { { "copies", check_copies },
                  { "rmsnorm", check_rmsnorm },
                  { "layernorm", check_layernorm },
                  { "silu_mul", check_silu_mul },
                  { "gelu", check_gelu },
                  { "add", check_add },
                  { "rope", check_rope },
                  { "gather", check_gather },
                  { "blend", check_blend },
                  { "gelu_blend", check_gelu_blend },
                  { "copies ahead", check_ahead },
                  { "windows", check_windows },
                  { "keys", check_keys } };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (!check_begin(&t->c, tests[i].name, ""))
            continue;
        tests[i].run(t);
        check_end(&t->c);
    }
}
