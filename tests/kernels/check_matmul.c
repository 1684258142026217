/* Proof of the matrix products.
 *
 * Error: every output against the sum in double precision over the weights as row_to_f32 gives
 * them. The bound is that of f32 sums, plus what the level may round of the activations: with
 * int8 blocks at most half a step (amax / 254) per element, with bf16 2^-8 of each, with two bf16
 * numbers 2^-17 and 2^-16 for the product that is left out. To see small mistakes under that, one
 * kind of input lies on a grid where int8 and bf16 are exact, and is held to the bound of f32
 * alone.
 *
 * Order: with weights in an order of the kernel's own, the bits are those of the file's order.
 *
 * Invariance: a row alone, among 2, 3, 5 to 8, 26 and 64, packed in pieces, computed by ranges of
 * outputs: the same bits.
 *
 * Weights, activations and outputs end at an unreadable page, at whatever alignment that gives;
 * packed rows and scratch are filled with NaN before use. */
#include "check.h"

#include "base/mem.h"
#include "tensor/quant.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum input { INPUT_GRID, INPUT_NORMAL, INPUT_EXTREME, INPUT_ZERO, INPUT_COUNT };

/* One product with everything it needs. */
struct product {
    struct check *c;
    enum dtype t;
    enum input input;
    int n, in, out;
    const struct matmul_kernel *kernel;
    struct fence w, x, y, xp, scratch, bias, repacked;
    size_t x_stride, y_stride;
    struct matrix m;
};

static void fill_grid(struct rng *r, float *x, int in)
{
    for (int b = 0; b < in; b += 32) {
        int len = in - b < 32 ? in - b : 32;
        float step = ldexpf(1, -2 - (int)(rng_next(r) % 7));
        for (int i = 0; i < len; i++)
            x[b + i] = step * (float)((int)(rng_next(r) % 255) - 127);
        x[b + (int)(rng_next(r) % (uint64_t)len)] = rng_next(r) % 2 ? 127 * step : -127 * step;
    }
}

static void fill_x(struct rng *r, float *x, int in, enum input input)
{
    if (input == INPUT_GRID) {
        fill_grid(r, x, in);
        return;
    }
    float extreme = rng_next(r) % 2 ? 127.0f : -127.0f;
    for (int i = 0; i < in; i++)
        x[i] = input == INPUT_EXTREME ? extreme : input == INPUT_ZERO ? 0 : rng_normal(r);
    if (input == INPUT_NORMAL && in > 3)
        x[rng_next(r) % (uint64_t)in] *= 50; /* an outlier, as real activations have */
}

/* F16 weights of which many are subnormal, or some rows too large for a code of fewer bits. */
static void spread_f16(struct rng *r, void *w, size_t row_size, int in, int out)
{
    int kind = (int)(rng_next(r) % 3);
    float *row = malloc(sizeof *row * (size_t)in);
    for (int o = 0; o < out && kind > 0; o++) {
        uint8_t *p = (uint8_t *)w + (size_t)o * row_size;
        float by = kind == 1 ? 0x1p-13f : rng_next(r) % 20 == 0 ? 0x1p12f : 1;
        row_to_f32(row, p, DTYPE_F16, in);
        for (int i = 0; i < in; i++)
            row[i] *= by;
        row_from_f32(p, row, DTYPE_F16, in);
    }
    free(row);
}

/* kernel NULL: the table's choice. */
static void product_open(struct product *p, struct check *c, const struct matmul_kernel *kernel,
                         enum dtype t, enum input input, int n, int in, int out)
{
    const struct matmul_kernel *k = kernel ? kernel : kernels_matmul(&c->k, t, in);
    size_t row_size = dtype_row_size(t, in);

    *p = (struct product){ .c = c, .t = t, .input = input, .n = n, .in = in, .out = out };
    p->kernel = k;
    p->x_stride = (size_t)(in + check_int(c, 0, 3));
    p->y_stride = (size_t)(out + check_int(c, 0, 3));
    if (dtype_block(t) == 1) /* NaN between the rows, which no kernel may take in */
        row_size += 2 * dtype_row_size(t, check_int(c, 0, 1));
    fence_open(&p->w, row_size * (size_t)(out - 1) + dtype_row_size(t, in), 1);
    fence_open(&p->x, sizeof(float) * (p->x_stride * (size_t)(n - 1) + (size_t)in), 4);
    fence_open(&p->y, sizeof(float) * (p->y_stride * (size_t)(n - 1) + (size_t)out), 4);
    fence_open(&p->xp, k->packed_size(n, in), MEM_ALIGN);
    fence_open(&p->scratch, k->scratch_size(in), MEM_ALIGN);
    fence_open(&p->bias, sizeof(float) * (size_t)out, 4);
    memset(p->w.p, 0xff, p->w.size);
    random_rows(&c->rng, p->w.p, row_size, t, in, out, input == INPUT_EXTREME);
    if (t == DTYPE_F16 && input != INPUT_EXTREME)
        spread_f16(&c->rng, p->w.p, row_size, in, out);
    for (int r = 0; r < n; r++)
        fill_x(&c->rng, (float *)p->x.p + p->x_stride * (size_t)r, in, input);
    for (int o = 0; o < out; o++)
        ((float *)p->bias.p)[o] = rng_normal(&c->rng);
    p->m =
        (struct matrix){ .dtype = t, .out = out, .in = in, .data = p->w.p, .row_size = row_size };
    p->m.many_rows = kernel && kernel == c->k.matmul_many_repacked[t];
    if (k->repacked_size) {
        fence_open(&p->repacked, k->repacked_size(&p->m), MEM_ALIGN);
        memset(p->repacked.p, 0xff, p->repacked.size);
        for (int o = 0; o < out; o += k->out_step)
            k->repack(p->repacked.p, &p->m, o, out - o < k->out_step ? out : o + k->out_step);
        p->m.repacked = p->repacked.p;
    }
    if (check_int(c, 0, 1))
        p->m.bias = p->bias.p;
}

static void product_close(struct product *p)
{
    const char *broken = !fence_whole(&p->y)                           ? "y"
                         : !fence_whole(&p->xp)                        ? "xp"
                         : !fence_whole(&p->scratch)                   ? "scratch"
                         : p->m.repacked && !fence_whole(&p->repacked) ? "own"
                                                                       : NULL;
    if (broken)
        check_fail(p->c, "wrote outside %s (n=%d in=%d out=%d)", broken, p->n, p->in, p->out);
    fence_close(&p->w);
    fence_close(&p->x);
    fence_close(&p->y);
    fence_close(&p->xp);
    fence_close(&p->scratch);
    fence_close(&p->bias);
    if (p->m.repacked)
        fence_close(&p->repacked);
}

/* Rows [r0, r0 + n) of the product's x, as n rows of their own; y by ranges of `step` outputs. */
static void product_run(struct product *p, float *y, int r0, int n, int step, bool split_pack)
{
    const struct matmul_kernel *k = p->kernel;
    const float *x = (const float *)p->x.p + p->x_stride * (size_t)r0;

    memset(p->xp.p, 0xff, p->xp.size);
    memset(p->scratch.p, 0xff, p->scratch.size);
    if (split_pack)
        for (int r = 0; r < n; r += k->row_step)
            k->pack(p->xp.p, x, p->x_stride, n, p->in, r,
                    n - r < k->row_step ? n : r + k->row_step);
    else
        k->pack(p->xp.p, x, p->x_stride, n, p->in, 0, n);
    for (int o = 0; o < p->out; o += step) {
        int end = p->out - o < step ? p->out : o + step;
        k->run(y, p->y_stride, p->xp.p, n, &p->m, o, end, p->scratch.p);
    }
}

/* Weights of these types are sums or differences, rounded relative to their terms: how large both
 * may be together with the scales of random_rows, which are below 2^-5. K-quants: d * 63 * 31 and
 * as much again; Q4_1, Q5_1: d * 31 and m. */
static double weight_terms(enum dtype t)
{
    bool k_quant = t == DTYPE_Q4_K || t == DTYPE_Q5_K || t == DTYPE_Q6_K;
    return k_quant ? 64 : t == DTYPE_Q4_1 || t == DTYPE_Q5_1 ? 1 : 0;
}

/* What one output may be off by. */
static double bound(const struct product *p, const float *x, const float *w, double bias)
{
    unsigned round = level_rounding(p->c->level, p->t);
    double terms = weight_terms(p->t);
    double sum = 0, moved = 0, magnitude = 0;

    for (int b = 0; b < p->in; b += 32) {
        int end = p->in - b < 32 ? p->in : b + 32;
        double amax = 0, wsum = 0, wmax = 0, xsum = 0, xw = 0;
        for (int i = b; i < end; i++) {
            double xi = fabs(x[i]), wi = fabs(w[i]);
            amax = xi > amax ? xi : amax;
            wmax = wi > wmax ? wi : wmax;
            wsum += wi;
            xsum += xi;
            xw += xi * wi;
        }
        magnitude += xw;
        sum += terms > 0 ? xsum * (wmax + terms) : xw;
        if (round & ROUND_X_INT8)
            moved += amax / 254 * 1.001 * wsum;
    }
    if (round & ROUND_X_BF16)
        moved += magnitude * 0x1p-8;
    if (round & ROUND_X_PAIR)
        moved += magnitude * 1.5 * 0x1p-16;
    if (p->input != INPUT_NORMAL)
        moved = 0;
    return (8 + 2 * sqrt(p->in)) * FLT_EPSILON * (sum + fabs(bias)) + moved + 1e-35;
}

static void check_error(struct product *p)
{
    struct check *c = p->c;
    float *w = malloc(sizeof *w * (size_t)p->in), *y = p->y.p;

    memset(y, 0xff, p->y.size);
    product_run(p, y, 0, p->n, p->out, false);
    for (int o = 0; o < p->out; o++) {
        double bias = p->m.bias ? p->m.bias[o] : 0;
        row_to_f32(w, (const uint8_t *)p->w.p + p->m.row_size * (size_t)o, p->t, p->in);
        for (int r = 0; r < p->n; r++) {
            const float *x = (const float *)p->x.p + p->x_stride * (size_t)r;
            double exact = bias, got = y[p->y_stride * (size_t)r + (size_t)o];
            for (int i = 0; i < p->in; i++)
                exact += (double)x[i] * w[i];
            double tol = bound(p, x, w, bias);
            if (!(fabs(got - exact) <= tol))
                check_fail(c, "n=%d in=%d out=%d input %d: y[%d][%d] is %.9g, not %.9g +- %.3g",
                           p->n, p->in, p->out, (int)p->input, r, o, got, exact, tol);
        }
    }
    for (int r = 0; r + 1 < p->n; r++) /* between the rows of y */
        for (size_t o = (size_t)p->out; o < p->y_stride; o++) {
            uint32_t bits;
            memcpy(&bits, y + p->y_stride * (size_t)r + o, sizeof bits);
            if (bits != 0xffffffffu)
                check_fail(c, "n=%d in=%d out=%d: wrote past row %d", p->n, p->in, p->out, r);
        }
    free(w);
}

/* Rows r0.. of `many` against `few`, n rows. */
static void compare(struct product *p, const float *many, const float *few, int r0, int n,
                    const char *how)
{
    for (int r = 0; r < n; r++) {
        const float *a = many + p->y_stride * (size_t)(r0 + r), *b = few + p->y_stride * (size_t)r;
        if (memcmp(a, b, sizeof *a * (size_t)p->out))
            check_fail(p->c, "in=%d out=%d: row %d of %d %s differs from itself among %d", p->in,
                       p->out, r, n, how, p->n);
    }
}

/* A kernel with an order of its own against the one that it stands for. */
static void check_order(struct product *p)
{
    const struct matmul_kernel *repacked = p->kernel;
    struct fence xp = p->xp, scratch = p->scratch;
    float *plain = malloc(p->y.size);
    product_run(p, p->y.p, 0, p->n, p->out, false);
    p->kernel = kernels_matmul(&p->c->k, p->t, p->in);
    fence_open(&p->xp, p->kernel->packed_size(p->n, p->in), MEM_ALIGN);
    fence_open(&p->scratch, p->kernel->scratch_size(p->in), MEM_ALIGN);
    product_run(p, plain, 0, p->n, p->out, false);
    compare(p, p->y.p, plain, 0, p->n, "in the order of the file");
    fence_close(&p->xp);
    fence_close(&p->scratch);
    p->xp = xp;
    p->scratch = scratch;
    p->kernel = repacked;
    free(plain);
}

/* p->n is 64, or more than any kernel treats as few. */
static void check_invariance(struct product *p)
{
    static const int counts[] = { 2, 3, 5, 6, 7, 8, 26 };
    struct check *c = p->c;
    float *many = p->y.p, *few = malloc(p->y.size);
    int step = p->kernel->out_step;

    product_run(p, many, 0, p->n, p->out, false);
    for (int r = 0; r < p->n; r++) {
        product_run(p, few, r, 1, p->out, false);
        compare(p, many, few, r, 1, "alone");
    }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int r0 = check_int(c, 0, p->n - counts[i]);
        product_run(p, few, r0, counts[i], p->out, true);
        compare(p, many, few, r0, counts[i], "(packed in pieces)");
    }
    product_run(p, few, 0, p->n, step, true);
    compare(p, many, few, 0, p->n, "by the smallest ranges");
    product_run(p, few, 0, p->n, step * check_int(c, 1, 1 + p->out / step), false);
    compare(p, many, few, 0, p->n, "by ranges");

    /* One range alone leaves the other outputs as they are. */
    int o0 = p->out / 2 / step * step, o1 = o0 + step < p->out ? o0 + step : p->out;
    memset(few, 0xff, p->y.size);
    p->kernel->run(few, p->y_stride, p->xp.p, p->n, &p->m, o0, o1, p->scratch.p);
    for (int r = 0; r < p->n; r++)
        for (int o = 0; o < p->out; o++) {
            size_t at = p->y_stride * (size_t)r + (size_t)o;
            if (memcmp(few + at, o >= o0 && o < o1 ? many + at : (float *)&(uint32_t){ ~0u }, 4))
                check_fail(c, "in=%d: outputs %d..%d of %d touch [%d][%d]", p->in, o0, o1, p->out,
                           r, o);
        }
    free(few);
}

/* A fused product against the operations one by one: `sums` and those of the gate, [n, y_stride].
 */
static void check_fused_kind(struct product *p, enum fused_kind kind, const struct matrix *gate,
                             const float *sums, const float *gates)
{
    const struct matmul_kernel *k = p->kernel;
    const struct kernels *table = &p->c->k;
    size_t size = k->packed_size(p->n, p->out);
    struct fence to, expected;
    float *y = p->y.p;
    fence_open(&to, size, MEM_ALIGN);
    fence_open(&expected, size, MEM_ALIGN);
    memset(to.p, 0, size);
    memset(expected.p, 0, size);
    struct matmul_fused f = {
        .kind = kind, .y = y, .y_stride = p->y_stride, .to = to.p, .gate = gate
    };
    float *rows = malloc(p->y.size);
    memcpy(rows, kind == FUSED_SILU_MUL ? gates : sums, p->y.size);
    for (size_t i = 0; i < p->y.size / sizeof *y; i++)
        y[i] = (float)(i % 7) - 3;
    for (int r = 0; r < p->n; r++) {
        size_t at = p->y_stride * (size_t)r;
        if (kind == FUSED_ADD) {
            memcpy(rows + at, y + at, sizeof *y * (size_t)p->out);
            table->add(rows + at, sums + at, (size_t)p->out);
        } else if (kind == FUSED_GELU) {
            table->gelu[GELU_TANH](rows + at, (size_t)p->out);
        } else {
            table->silu_mul(rows + at, sums + at, (size_t)p->out);
        }
    }
    for (int o = 0; o < p->out; o += 64)
        k->fused(&f, p->xp.p, p->n, &p->m, o, p->out - o < 64 ? p->out : o + 64, p->scratch.p);
    if (kind == FUSED_ADD)
        compare(p, y, rows, 0, p->n, "added");
    k->pack(expected.p, rows, p->y_stride, p->n, p->out, 0, p->n);
    /* Columns of rows that are not there hold anything: n is a multiple of 16. */
    if (kind != FUSED_ADD && memcmp(to.p, expected.p, size))
        check_fail(p->c, "in=%d out=%d: fused %d gives other bits", p->in, p->out, (int)kind);
    if (!fence_whole(&to))
        check_fail(p->c, "in=%d out=%d: fused %d wrote too far", p->in, p->out, (int)kind);
    fence_close(&to);
    fence_close(&expected);
    free(rows);
}

static void check_fused(struct check *c, const struct matmul_kernel *kernel, enum dtype t, int n,
                        int in, int out)
{
    struct product p, gate;
    product_open(&gate, c, kernel, t, INPUT_NORMAL, n, in, out);
    product_open(&p, c, kernel, t, INPUT_NORMAL, n, in, out);
    float *sums = malloc(p.y.size), *gates = malloc(p.y.size);
    struct matrix repacked = p.m;
    p.m = gate.m;
    product_run(&p, gates, 0, n, out, false);
    p.m = repacked;
    product_run(&p, sums, 0, n, out, false);
    check_fused_kind(&p, FUSED_ADD, NULL, sums, gates);
    check_fused_kind(&p, FUSED_GELU, NULL, sums, gates);
    check_fused_kind(&p, FUSED_SILU_MUL, &gate.m, sums, gates);
    free(sums);
    free(gates);
    product_close(&p);
    product_close(&gate);
}

static void check_dtype(struct check *c, const struct matmul_kernel *kernel, enum dtype t)
{
    static const int plain[] = { 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 80, 100, 128, 255, 896 };
    static const int outs[] = { 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 70, 6 };
    static const int rows[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 33, 12, 20 };
    static const int blocks[] = { 1, 2, 3, 5, 7, 8, 9, 13, 17, 28, 1, 2, 3, 4, 6, 11 };
    static const int wide[] = { 2304, 4864 };
    int block = dtype_block(t), n_cases = c->quick ? 8 : 16;
    struct product p;

    for (int i = 0; i < n_cases; i++) {
        int in = block == 1 ? plain[i] : block * blocks[block == 32 ? i : i % 6];
        for (enum input input = 0; input < INPUT_COUNT; input++) {
            int a = check_int(c, 0, 15), b = check_int(c, 0, 15);
            product_open(&p, c, kernel, t, input, rows[a], in, outs[b]);
            check_error(&p);
            if (p.m.repacked)
                check_order(&p);
            product_close(&p);
        }
    }
    for (int i = 0; i < 2; i++) { /* longer than any blocking of `in` */
        product_open(&p, c, kernel, t, i ? INPUT_NORMAL : INPUT_GRID, 2 + 9 * i,
                     wide[i] + (block == 1), 19);
        check_error(&p);
        product_close(&p);
    }
    for (int i = 0; block == 1 && i < 5; i++) { /* rows of vision towers, with enough of them */
        static const int tower[] = { 588, 1150, 1176, 3420, 4304 };
        product_open(&p, c, kernel, t, i % 2 ? INPUT_NORMAL : INPUT_GRID, i % 2 ? 70 : 33, tower[i],
                     c->quick ? 17 : 37);
        check_error(&p);
        product_close(&p);
    }
    static const int fused[][3] = {
        { 16, 33, 32 }, { 80, 588, 70 }, { 400, 1176, 37 }, { 48, 2500, 129 }
    };
    for (int i = 0; i < 4 && block == 1; i++) {
        const struct matmul_kernel *k = kernel ? kernel : kernels_matmul(&c->k, t, fused[i][1]);
        if (k->fused)
            check_fused(c, k, t, fused[i][0], fused[i][1], fused[i][2]);
    }
    for (int i = 0; i < (c->quick ? 2 : 6); i++) {
        int in =
            block == 1 ? plain[check_int(c, 0, 15)] : block * check_int(c, 1, block == 32 ? 11 : 2);
        if (i == 1)
            in = 1280 + 7 * (block == 1);
        if (i == 2 && block == 1)
            in = 588;
        product_open(&p, c, kernel, t, INPUT_NORMAL, i == 3 ? 150 : 64, in,
                     check_int(c, 1, c->quick ? 24 : 80));
        check_invariance(&p);
        product_close(&p);
    }
}

void check_matmul(struct check *c)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (!check_begin(c, "matmul", dtype_name((enum dtype)t)))
            continue;
        check_dtype(c, NULL, (enum dtype)t);
        check_end(c);
    }
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const struct matmul_kernel *repacked = c->k.matmul_many_repacked[t];
        if (!repacked || !check_begin(c, "matmul_many_repacked", dtype_name((enum dtype)t)))
            continue;
        check_dtype(c, repacked, (enum dtype)t);
        check_end(c);
    }
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const struct matmul_kernel *repacked = c->k.matmul_repacked[t];
        if (!repacked || !check_begin(c, "matmul_repacked", dtype_name((enum dtype)t)))
            continue;
        check_dtype(c, repacked, (enum dtype)t);
        check_end(c);
    }
}
