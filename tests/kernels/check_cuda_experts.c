/* The experts of a sparse layer on the device: error against double precision, with activations
 * rounded as the device rounds them; and a row alone against the same row among others, by memcmp.
 * Rows whose last chosen expert is nearly as likely as the first one not chosen are left out of the
 * comparison with double precision. */
#include "check_cuda.h"

#include "larger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EXPERTS = 33, MAX_ROWS = MANY_ROWS };

struct expert_rig {
    struct cuda_check *t;
    int hidden, ffn, experts;
    struct cuda_matrix_pair router, pair[3][MAX_EXPERTS];
    struct matrix matrix[3][MAX_EXPERTS];
    struct expert_weights e;
    struct device_work *work;
    float *rows; /* [MAX_ROWS, hidden] */
    struct gbuf x, y;
};

static void open_weights(struct expert_rig *g, const enum dtype types[3])
{
    struct pv_error err = { 0 };
    float *router =
        normal_floats(g->t, (size_t)(g->experts * g->hidden), 2 / sqrtf((float)g->hidden));
    pair_from(g->t, &g->router, router, g->hidden, g->experts);
    free(router);
    for (int i = 0; i < 3 * g->experts; i++) {
        int role = i / g->experts, k = i % g->experts;
        int in = role == 2 ? g->ffn : g->hidden, out = role == 2 ? g->hidden : g->ffn;
        if (!pair_open(g->t, &g->pair[role][k], types[role], in, out, false, PAIR_TAME))
            check_fail(&g->t->c, "the device does not take %s", dtype_name(types[role]));
        g->matrix[role][k] = g->pair[role][k].m;
    }
    g->e.router = g->router.m;
    g->e.gate = g->matrix[0];
    g->e.up = g->matrix[1];
    g->e.down = g->matrix[2];
    check_must(g->t->ops->take_experts(g->t->dev, &g->e, &err), &err);
}

static void rig_open(struct expert_rig *g, struct cuda_check *t, const enum dtype types[3],
                     int hidden, int ffn, int experts, int used)
{
    struct work_shape s = { .rows = MAX_ROWS,
                            .in = hidden > ffn ? hidden : ffn,
                            .n_heads = 1,
                            .n_kv_heads = 1,
                            .head_dim = 64,
                            .context = 256,
                            .kv_dtype = DTYPE_BF16,
                            .hidden = hidden,
                            .ffn = ffn,
                            .n_experts = experts,
                            .n_used = used,
                            .expert_ffn = ffn };
    struct pv_error err = { 0 };
    *g = (struct expert_rig){ .t = t, .hidden = hidden, .ffn = ffn, .experts = experts };
    g->e = (struct expert_weights){ .n = experts, .used = used, .normed = check_int(&t->c, 0, 1) };
    open_weights(g, types);
    g->rows = normal_both(t, &g->x, (size_t)(MAX_ROWS * hidden), 1);
    gbuf_open(t, &g->y, sizeof(float) * (size_t)(MAX_ROWS * hidden));
    check_must(t->ops->work_open(t->dev, &g->work, &s, &err), &err);
}

static void rig_close(struct expert_rig *g)
{
    g->t->ops->work_close(g->t->dev, &g->work);
    g->t->ops->drop_experts(g->t->dev, &g->e);
    pair_close(g->t, &g->router);
    for (int i = 0; i < 3 * g->experts; i++)
        pair_close(g->t, &g->pair[i / g->experts][i % g->experts]);
    gbuf_close(&g->x);
    gbuf_close(&g->y);
    free(g->rows);
}

/* Rows [first, first + n) through the experts. */
static void run_rows(struct expert_rig *g, int first, int n, float *out)
{
    size_t row = (size_t)g->hidden;
    gbuf_fill(&g->y);
    g->t->ops->experts(g->work, g->y.p, &g->e, (const float *)g->x.p + (size_t)first * row, n);
    check_wait(g->t, g->work);
    g->t->ops->get(g->work, out, g->y.p, sizeof *out * (size_t)n * row);
    if (!gbuf_untouched(&g->y, sizeof *out * (size_t)n * row))
        check_fail(&g->t->c, "%d rows: rows past them were written", n);
}

/* Whether the row's choice is clear; y as it should be. */
static bool exact_row(const struct expert_rig *g, int r, double *y)
{
    const struct expert_weights *e = &g->e;
    double *mem = calloc((size_t)(2 * g->hidden + 2 * g->ffn), sizeof *mem);
    double *x = mem, *out = x + g->hidden, *gate = out + g->hidden, *up = gate + g->ffn;
    double logit[MAX_EXPERTS], all = 0, part = 0, least = INFINITY, next = -INFINITY;
    bool taken[MAX_EXPERTS] = { false };
    for (int i = 0; i < g->hidden; i++)
        x[i] = (double)g->rows[(size_t)r * (size_t)g->hidden + (size_t)i], y[i] = 0;
    pair_product(&g->router, logit, x, false);
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
        next = taken[i] ? next : larger(next, logit[i]);
    }
    for (int i = 0; i < e->n; i++) {
        if (!taken[i])
            continue;
        pair_product(&g->pair[0][i], gate, x, false);
        pair_product(&g->pair[1][i], up, x, false);
        for (int j = 0; j < g->ffn; j++)
            gate[j] = gate[j] / (1 + exp(-gate[j])) * up[j];
        pair_product(&g->pair[2][i], out, gate, false);
        for (int j = 0; j < g->hidden; j++)
            y[j] += exp(logit[i]) / (e->normed ? part : all) * out[j];
    }
    free(mem);
    return least - next > 1e-4;
}

static void check_error(struct expert_rig *g, const float *got, int n)
{
    double *want = malloc(sizeof *want * (size_t)g->hidden);
    int clear = 0;
    for (int r = 0; r < n; r++) {
        double size = 0, worst = 0;
        if (!exact_row(g, r, want))
            continue;
        clear++;
        for (int i = 0; i < g->hidden; i++) {
            double error = fabs((double)got[(size_t)r * (size_t)g->hidden + (size_t)i] - want[i]);
            size = larger(size, fabs(want[i]));
            worst = isnan(error) ? error : larger(worst, error);
        }
        if (!(worst <= 0.01 * size))
            check_fail(&g->t->c, "row %d is off by %.3g of %.3g", r, worst, size);
    }
    if (clear < n / 2)
        check_fail(&g->t->c, "only %d of %d rows could be compared", clear, n);
    free(want);
}

static void check_layer(struct cuda_check *t, const enum dtype types[3], int hidden, int ffn,
                        int experts, int used)
{
    static const int ranges[][2] = {
        { 0, 1 }, { 7, 1 }, { 2, 3 }, { 4, 9 }, { 1, 26 }, { 30, 70 }
    };
    struct expert_rig g;
    size_t row = (size_t)hidden;
    float *all = malloc(sizeof *all * MAX_ROWS * row),
          *some = malloc(sizeof *some * MAX_ROWS * row);
    rig_open(&g, t, types, hidden, ffn, experts, used);
    run_rows(&g, 0, MAX_ROWS, all);
    check_error(&g, all, t->full ? MAX_ROWS : 20);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        int first = ranges[i][0], n = ranges[i][1];
        run_rows(&g, first, n, some);
        if (memcmp(some, all + (size_t)first * row, sizeof *some * (size_t)n * row))
            check_fail(&t->c, "rows %d to %d have other bits among %d", first, first + n - 1,
                       (int)MAX_ROWS);
    }
    rig_close(&g);
    free(all);
    free(some);
}

static void check_types(struct cuda_check *t, const char *name, enum dtype gate, enum dtype up,
                        enum dtype down)
{
    const enum dtype types[] = { gate, up, down };
    int block = dtype_block(gate) > dtype_block(down) ? dtype_block(gate) : dtype_block(down);
    if (!check_begin(&t->c, "experts", name))
        return;
    if (block == 1)
        check_layer(t, types, 72, 40, 5, 2);
    check_layer(t, types, block > 64 ? block : 64, block > 32 ? block : 32, 9, 3);
    if (gate == DTYPE_BF16) { /* the lone row's own kernels: more experts than lanes, long rows */
        check_layer(t, types, 256, 256, 33, 4);
        check_layer(t, types, 256, 1024, 5, 2);
    }
    if (t->full)
        check_layer(t, types, 2048, 768, 12, 8);
    check_end(&t->c);
}

void check_cuda_experts(struct cuda_check *t)
{
    static const enum dtype types[] = { DTYPE_BF16, DTYPE_F16,  DTYPE_F32,
                                        DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_K };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check_types(t, dtype_name(types[i]), types[i], types[i], types[i]);
    check_types(t, "mixed", DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K);
}
