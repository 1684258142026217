/* The cosine similarities that views need, on the CPU: the plain functions of tensor/cosine.h, with
 * rows or columns spread over the threads of the pool. */
#include "kernels/device_cpu.h"
#include "tensor/cosine.h"

/* Columns per work item in sum_columns. */
enum { SUM_COLUMNS = 64 };

struct cosine_op {
    double *out;
    const float *x;
    size_t stride;
    int width, apart;
    const int32_t *rows, *bounds;
};

static void apart_rows(void *ctx, int r0, int r1)
{
    const struct cosine_op *op = ctx;
    cosines_apart_ref(op->out, op->x, op->stride, op->width, op->apart, r0, r1);
}

void cosines_apart_cpu(struct device_work *w, double *out, const float *x, size_t stride, int n,
                       int width, int apart)
{
    struct cosine_op op = { .out = out, .x = x, .stride = stride, .width = width, .apart = apart };
    if (n > apart)
        rows_parallel(w, apart_rows, &op, n - apart, 3 * width);
}

static void spread_groups(void *ctx, int g0, int g1)
{
    const struct cosine_op *op = ctx;
    for (int g = g0; g < g1; g++)
        cosine_spread_ref(op->out, op->x, op->stride, op->width, op->rows + op->bounds[g],
                          op->bounds[g + 1] - op->bounds[g]);
}

void cosine_spread_cpu(struct device_work *w, double *out, const float *x, size_t stride, int width,
                       const int32_t *rows, const int32_t *bounds, int n_groups)
{
    struct cosine_op op = {
        .out = out, .x = x, .stride = stride, .width = width, .rows = rows, .bounds = bounds
    };
    rows_parallel(w, spread_groups, &op, n_groups, GROUP_MOST * GROUP_MOST * width);
}

static void scale_rows(void *ctx, int r0, int r1)
{
    const struct unit_job *j = ctx;
    for (int i = r0; i < r1; i++) {
        const float *x = j->x + (size_t)j->rows[i] * (size_t)j->width;
        j->scale[i] = unit_scale(x, j->width);
        if (i < j->n_units)
            unit_row(j->units + (size_t)j->to[i] * (size_t)j->width, x, j->width, j->scale[i]);
    }
}

static void sum_columns(void *ctx, int c0, int c1)
{
    const struct unit_job *j = ctx;
    int from = c0 * SUM_COLUMNS, to = c1 * SUM_COLUMNS < j->width ? c1 * SUM_COLUMNS : j->width;
    for (int i = j->n_units; i < j->n_units + j->n_sums; i++)
        unit_add(j->sum, j->x + (size_t)j->rows[i] * (size_t)j->width, j->scale[i], from, to);
}

void unit_rows_cpu(struct device_work *w, const struct unit_job *job)
{
    struct unit_job j = *job;
    rows_parallel(w, scale_rows, &j, j.n_units + j.n_sums, 2 * j.width);
    rows_parallel(w, sum_columns, &j, (j.width + SUM_COLUMNS - 1) / SUM_COLUMNS,
                  SUM_COLUMNS * j.n_sums);
}

struct dot_op {
    double *out;
    const uint16_t *units;
    const double *sum;
    int width;
};

static void dot_rows(void *ctx, int r0, int r1)
{
    const struct dot_op *op = ctx;
    for (int i = r0; i < r1; i++)
        op->out[i] = unit_dot(op->units + (size_t)i * (size_t)op->width, op->sum, op->width);
}

void unit_dots_cpu(struct device_work *w, double *out, const uint16_t *units, const double *sum,
                   int n, int width)
{
    struct dot_op op = { out, units, sum, width };
    rows_parallel(w, dot_rows, &op, n, 4 * width);
}
