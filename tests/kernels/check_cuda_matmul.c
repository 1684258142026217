/* Proof of matrix products through the device: error against the sum in double precision, as
 * check_matmul.c has it, and a row alone against itself among others, bit for bit, in the way for
 * few rows and in the way for many. */
#include "check_cuda.h"

#include "tensor/quant.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int counts[] = { 1, 2, 3, 5, 8, 26, 64, 65, 130 };
enum { N_COUNTS = sizeof counts / sizeof counts[0] };

struct product {
    struct cuda_check *t;
    struct cuda_matrix_pair p;
    bool grid;
    int in, out, n;
    size_t y_stride;
    float *x; /* [n, in] */
    struct gbuf gx, gy;
    float *y; /* [n, y_stride] */
};

static bool product_open(struct product *p, struct cuda_check *t, enum dtype dtype, bool many,
                         bool grid, int n, int in, int out)
{
    *p = (struct product){ .t = t, .grid = grid, .in = in, .out = out, .n = n };
    if (!pair_open(t, &p->p, dtype, in, out, check_int(&t->c, 0, 1), many ? PAIR_MANY : PAIR_ANY))
        return false;
    p->y_stride = (size_t)(out + check_int(&t->c, 0, 3));
    p->x = normal_both(t, &p->gx, (size_t)n * (size_t)in, 1);
    for (size_t i = 0; i < (size_t)n * (size_t)in; i++)
        if (grid) /* BF16 holds it */
            p->x[i] = ldexpf((float)check_int(&t->c, -127, 127), -5);
        else if (check_int(&t->c, 0, 199) == 0)
            p->x[i] *= 50; /* an outlier, as real activations have */
    gbuf_put(&p->gx, p->x, p->gx.size);
    gbuf_open(t, &p->gy, sizeof(float) * (p->y_stride * (size_t)(n - 1) + (size_t)out));
    p->y = malloc(p->gy.size);
    return true;
}

static void product_close(struct product *p)
{
    gbuf_close(&p->gx);
    gbuf_close(&p->gy);
    pair_close(p->t, &p->p);
    free(p->x);
    free(p->y);
}

/* Rows [r0, r0 + n) as n rows of their own. */
static void product_run(struct product *p, float *y, int r0, int n)
{
    struct matmul_job job = { &p->p.m, p->gy.p, p->y_stride };
    const float *x = (const float *)p->gx.p + (size_t)r0 * (size_t)p->in;
    gbuf_fill(&p->gy);
    p->t->ops->matmul(p->t->w, &job, 1, x, n);
    check_wait(p->t, p->t->w);
    gbuf_get(&p->gy, y, p->gy.size);
}

/* What an output may be off by: sums in f32; x rounded to BF16, to TF32 for F16; weights with
 * blocks to BF16 with many rows, or where the device does not have the type. */
static double bound(const struct product *p, const float *x, const float *w, double bias)
{
    enum dtype d = p->p.given;
    bool k_quant = d == DTYPE_Q4_K || d == DTYPE_Q5_K || d == DTYPE_Q6_K;
    bool w_rounded = dtype_block(d) > 1 && (p->p.m.many_rows || p->p.m.dtype != d);
    double sum = 0, extra = 0, x_off = 0, w_off = w_rounded ? 0x1.01p-8 : 0;
    for (int i = 0; i < p->in; i++) {
        sum += fabs((double)x[i] * w[i]);
        extra += k_quant ? fabs(x[i]) * 64 : 0; /* a difference of two such terms */
    }
    if (!p->grid)
        x_off = pair_rounds_x(d) ? 0x1.01p-8 : d == DTYPE_F16 ? 0x1p-10 : 0;
    return (8 + 2 * sqrt(p->in)) * FLT_EPSILON * (sum + extra + fabs(bias)) +
           (x_off + w_off) * sum + 1e-35;
}

/* All outputs, or some of each row where there are many. */
static void check_error(struct product *p)
{
    struct check *c = &p->t->c;
    int step = p->out > 256 && p->n > 16 ? 31 : 1;
    product_run(p, p->y, 0, p->n);
    for (int r = 0; r < p->n; r++) {
        const float *x = p->x + (size_t)r * (size_t)p->in;
        for (int o = r % step; o < p->out; o += step) {
            const float *w = p->p.w + (size_t)o * (size_t)p->in;
            double bias = p->p.bias ? p->p.bias[o] : 0, exact = bias;
            double got = p->y[p->y_stride * (size_t)r + (size_t)o];
            for (int i = 0; i < p->in; i++)
                exact += (double)x[i] * w[i];
            double tol = bound(p, x, w, bias);
            if (!(fabs(got - exact) <= tol))
                check_fail(c, "n=%d in=%d out=%d %s: y[%d][%d] is %.9g, not %.9g +- %.3g", p->n,
                           p->in, p->out, p->grid ? "grid" : "normal", r, o, got, exact, tol);
        }
        for (size_t o = (size_t)p->out; r + 1 < p->n && o < p->y_stride; o++) {
            uint32_t bits;
            memcpy(&bits, &p->y[p->y_stride * (size_t)r + o], sizeof bits);
            if (bits != 0xa5a5a5a5u)
                check_fail(c, "n=%d in=%d out=%d: wrote past row %d", p->n, p->in, p->out, r);
        }
    }
}

/* After check_error, which leaves all rows in y. */
static void check_invariance(struct product *p)
{
    float *few = malloc(p->gy.size);
    for (int i = 0; i < N_COUNTS; i++) {
        int n = counts[i], tries = n == 1 ? 8 : 2;
        for (int k = 0; k < tries && n <= p->n; k++) {
            int r0 = k == 0 ? p->n - n : check_int(&p->t->c, 0, p->n - n);
            product_run(p, few, r0, n);
            for (int r = 0; r < n; r++)
                if (memcmp(few + p->y_stride * (size_t)r, p->y + p->y_stride * (size_t)(r0 + r),
                           sizeof *few * (size_t)p->out))
                    check_fail(&p->t->c, "in=%d out=%d: row %d differs among %d and among %d",
                               p->in, p->out, r0 + r, n, p->n);
        }
    }
    free(few);
}

/* Several matrices of one input. */
static void check_jobs(struct cuda_check *t, enum dtype dtype, int in, int n)
{
    static const int outs[] = { 40, 8, 9 };
    struct product p[3];
    struct matmul_job jobs[3];
    for (int i = 0; i < 3; i++) {
        product_open(&p[i], t, dtype, false, true, n, in, outs[i]);
        jobs[i] = (struct matmul_job){ &p[i].p.m, p[i].gy.p, p[i].y_stride };
    }
    t->ops->matmul(t->w, jobs, 3, p[0].gx.p, n);
    check_wait(t, t->w);
    for (int i = 0; i < 3; i++) {
        float *alone = malloc(p[i].gy.size);
        gbuf_get(&p[i].gy, p[i].y, p[i].gy.size);
        gbuf_put(&p[i].gx, p[0].x, p[i].gx.size);
        product_run(&p[i], alone, 0, n);
        if (memcmp(alone, p[i].y, p[i].gy.size))
            check_fail(&t->c, "in=%d n=%d: job %d differs from itself alone", in, n, i);
        free(alone);
    }
    for (int i = 0; i < 3; i++)
        product_close(&p[i]);
}

/* Others become BF16 when they are taken. */
static bool has_kernels(enum dtype d)
{
    return dtype_block(d) == 1 || d == DTYPE_Q8_0 || d == DTYPE_Q4_0 || d == DTYPE_Q4_K;
}

enum { N_SIZES = 5 };
static const int tiny[N_SIZES][2] = {
    { 64, 40 }, { 96, 17 }, { 320, 9 }, { 100, 33 }, { 1100, 5 }
};
static const int true_sizes[N_SIZES][2] = {
    { 896, 4864 }, { 4864, 896 }, { 3584, 512 }, { 1152, 4304 }, { 588, 1152 }
};

static void check_dtype(struct cuda_check *t, enum dtype dtype, bool many)
{
    int block = dtype_block(dtype);
    bool large = t->full && has_kernels(dtype);
    for (int i = 0; i < N_SIZES; i++) {
        int in = large ? true_sizes[i][0] : tiny[i][0], n = i % 2 ? 9 : 5;
        int out = large ? true_sizes[i][1] : tiny[i][1];
        if (block > 1)
            in = (in + block - 1) / block * block;
        for (int grid = 0; grid < 2 && (grid == 0 || i == 0 || !large); grid++) {
            bool rows = !grid && (i < 3 || t->full);
            bool wide = t->full || i == 1 || (i == 0 && dtype == DTYPE_BF16);
            int m = rows ? (wide ? MANY_ROWS : 70) : n;
            struct product p;
            if (!product_open(&p, t, dtype, many, grid, m, in, out))
                return;
            check_error(&p);
            if (rows)
                check_invariance(&p);
            product_close(&p);
        }
    }
    if (!many)
        check_jobs(t, dtype, block > 64 ? block : 64, 5);
}

/* Whether the device takes the type at all. */
static bool is_taken(struct cuda_check *t, enum dtype dtype)
{
    struct cuda_matrix_pair p;
    int in = dtype_block(dtype) > 1 ? dtype_block(dtype) : 64;
    if (!pair_open(t, &p, dtype, in, 8, false, PAIR_ANY))
        return false;
    pair_close(t, &p);
    return true;
}

static void check_embed(struct cuda_check *t, enum dtype dtype)
{
    enum { ROWS = 11, N = 5 };
    static const int32_t ids[N] = { 3, 0, 10, 3, 7 };
    int in = dtype_block(dtype) > 1 ? 2 * dtype_block(dtype) : 100;
    struct cuda_matrix_pair p;
    struct gbuf gy, gi;
    float *y = malloc(sizeof *y * (size_t)(N * in));
    pair_open(t, &p, dtype, in, ROWS, false, PAIR_ANY);
    gbuf_open(t, &gy, sizeof *y * (size_t)(N * in));
    gbuf_open(t, &gi, sizeof ids);
    gbuf_put(&gi, ids, sizeof ids);
    t->ops->embed(t->w, gy.p, &p.m, gi.p, N, NULL);
    check_wait(t, t->w);
    gbuf_get(&gy, y, gy.size);
    for (int r = 0; r < N; r++)
        for (int i = 0; i < in; i++) {
            double exact = p.w[ids[r] * in + i], got = y[r * in + i];
            double off = p.m.dtype == p.given ? 2 * FLT_EPSILON : 0x1.01p-8;
            if (!(fabs(got - exact) <= off * fabs(exact) + 128 * FLT_EPSILON))
                check_fail(&t->c, "row %d [%d] is %.9g, not %.9g", r, i, got, exact);
        }
    gbuf_close(&gy);
    gbuf_close(&gi);
    pair_close(t, &p);
    free(y);
}

/* Numbers drawn at random: the same for one seed, other ones for another. */
static void check_draw(struct cuda_check *t, enum dtype dtype)
{
    enum { N = 2, OUT = 40 };
    struct product p;
    struct pv_error err = { 0 };
    int in = dtype_block(dtype) > 64 ? dtype_block(dtype) : 64;
    float *y[3];
    if (!product_open(&p, t, dtype, false, false, N, in, OUT))
        return;
    for (int i = 0; i < 3; i++) {
        t->ops->drop(t->dev, &p.p.m);
        p.p.m.data = NULL;
        p.p.m.row_size = dtype_row_size(dtype, in);
        check_must(t->ops->draw(t->dev, &p.p.m, i == 2 ? 8 : 7, &err), &err);
        y[i] = malloc(p.gy.size);
        product_run(&p, y[i], 0, N);
    }
    for (int o = 0; o < OUT; o++)
        if (!isfinite(y[0][o]) || fabs(y[0][o]) > 1e4)
            check_fail(&t->c, "output %d is %g", o, y[0][o]);
    if (memcmp(y[0], y[1], p.gy.size))
        check_fail(&t->c, "the same seed gives other numbers");
    if (!memcmp(y[0], y[2], p.gy.size))
        check_fail(&t->c, "another seed gives the same numbers");
    for (int i = 0; i < 3; i++)
        free(y[i]);
    product_close(&p);
}

/* A work with no more room than the matrices of these tests need, as a tower's. */
static struct device_work *open_work(struct cuda_check *t, int rows, int in, int out)
{
    struct work_shape shape = { .rows = rows, .in = in, .out = out };
    struct device_work *w = NULL;
    struct pv_error err = { 0 };
    check_must(t->ops->work_open(t->dev, &w, &shape, &err), &err);
    return w;
}

static struct device_work *open_widest(struct cuda_check *t)
{
    const int(*sizes)[2] = t->full ? true_sizes : tiny;
    int in = 0, out = 0;
    for (int i = 0; i < N_SIZES; i++) {
        in = sizes[i][0] > in ? sizes[i][0] : in;
        out = sizes[i][1] > out ? sizes[i][1] : out;
    }
    return open_work(t, MANY_ROWS, (in + DTYPE_BLOCK_MAX - 1) / DTYPE_BLOCK_MAX * DTYPE_BLOCK_MAX,
                     out);
}

/* A matrix that must be turned for the library, of more outputs than its work knows of, is an
 * error, and nothing is written; the one that just fits is none. */
static void check_room(struct cuda_check *t, enum dtype dtype)
{
    enum { IN = 256, OUT = 40, N = 3 };
    struct device_work *outer = t->w;
    struct pv_error err = { 0 };
    struct product p;
    t->w = open_work(t, MANY_ROWS, IN, OUT);
    product_open(&p, t, dtype, true, true, N, IN, OUT);
    check_error(&p);
    product_close(&p);
    product_open(&p, t, dtype, true, true, N, IN, 4 * OUT);
    struct matmul_job job = { &p.p.m, p.gy.p, p.y_stride };
    gbuf_fill(&p.gy);
    t->ops->matmul(t->w, &job, 1, p.gx.p, N);
    if (t->ops->wait(t->w, &err) != PV_E_DEVICE || !strstr(err.text, "larger than its work"))
        check_fail(&t->c, "a matrix without room: \"%s\"", err.text);
    if (!gbuf_untouched(&p.gy, 0))
        check_fail(&t->c, "a matrix without room: something is written");
    product_close(&p);
    t->ops->work_close(t->dev, &t->w);
    t->w = outer;
}

/* The library has other algorithms for other numbers of rows: rows among very many, and the same
 * rows among fewer, around each power of two. */
static void check_row_counts(struct cuda_check *t, enum dtype dtype)
{
    struct device_work *outer = t->w;
    int most = t->full ? 8192 + 96 : 200;
    int in = t->full ? 1536 : 256, out = t->full ? 768 : 24;
    struct product p;
    t->w = open_work(t, most, in, out);
    if (product_open(&p, t, dtype, true, false, most, in, out)) {
        float *few = malloc(p.gy.size);
        product_run(&p, p.y, 0, most);
        for (int n = 32; n < most; n = n % 2 ? 2 * (n - 1) : n + 1) {
            int r0 = check_int(&t->c, 0, most - n);
            product_run(&p, few, r0, n);
            for (int r = 0; r < n; r++)
                if (memcmp(few + p.y_stride * (size_t)r, p.y + p.y_stride * (size_t)(r0 + r),
                           sizeof *few * (size_t)out))
                    check_fail(&t->c, "row %d differs among %d and among %d", r0 + r, n, most);
        }
        free(few);
        product_close(&p);
    }
    t->ops->work_close(t->dev, &t->w);
    t->w = outer;
}

/* A tower's F32 product outside its layers, such as the patch embedding: as exact as F32 sums are,
 * whatever instructions compute it. */
static void check_apart(struct cuda_check *t)
{
    struct device_work *outer = t->w;
    int n = t->full ? 729 : 40, in = t->full ? 588 : 37, out = t->full ? 1152 : 24;
    struct work_shape shape = { .rows = n,
                                .in = in > out ? in : out,
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 64,
                                .hidden = out,
                                .ffn = 2 * in,
                                .segment = n,
                                .out = out };
    struct pv_error err = { 0 };
    struct product p;
    check_must(t->ops->work_open(t->dev, &t->w, &shape, &err), &err);
    if (product_open(&p, t, DTYPE_F32, true, false, n, in, out)) {
        check_error(&p);
        check_invariance(&p);
        product_close(&p);
    }
    t->ops->work_close(t->dev, &t->w);
    t->w = outer;
}

void check_cuda_matmul(struct cuda_check *t)
{
    struct device_work *outer = t->w;
    if (check_begin(&t->c, "matmul_apart", "f32")) {
        check_apart(t);
        check_end(&t->c);
    }
    t->w = open_widest(t);
    for (int d = 0; d < DTYPE_COUNT; d++) {
        const char *name = dtype_name((enum dtype)d);
        bool wanted = check_begin(&t->c, "matmul", name);
        if (!is_taken(t, (enum dtype)d)) {
            printf("skip cuda matmul %s: the device does not take it\n", name);
            continue;
        }
        if (wanted) {
            check_begin(&t->c, "matmul", name);
            check_dtype(t, (enum dtype)d, false);
            check_end(&t->c);
        }
        if (check_begin(&t->c, "matmul_many", name)) {
            check_dtype(t, (enum dtype)d, true);
            if (has_kernels((enum dtype)d) && dtype_block((enum dtype)d) > 1)
                check_room(t, (enum dtype)d);
            check_end(&t->c);
        }
        if (dtype_block((enum dtype)d) == 1 && check_begin(&t->c, "row_counts", name)) {
            check_row_counts(t, (enum dtype)d);
            check_end(&t->c);
        }
        if (check_begin(&t->c, "embed", name)) {
            check_embed(t, (enum dtype)d);
            check_end(&t->c);
        }
        if (t->ops->draw && check_begin(&t->c, "draw", name)) {
            check_draw(t, (enum dtype)d);
            check_end(&t->c);
        }
    }
    t->ops->work_close(t->dev, &t->w);
    t->w = outer;
}
