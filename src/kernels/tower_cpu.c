/* The part of a vision tower's layer after attention, in one parallel region of the thread pool:
 *
 *   x += W_o a + b_o
 *   x += W_2 act(W_1 norm(x)) + b_2
 *
 * Used if the matrices' kernels support fused operations. A normed row is packed while it is in the
 * L1 cache, activations between the MLP's matrices are packed as they are computed, and sums are
 * added to x directly: between the products, only packed rows are written. The bits are those of
 * the separate operations. */
#include "kernels/device_cpu.h"

#include "base/minmax.h"

#include <string.h>

struct tail_region {
    struct device_work *w;
    const struct tower_tail *t;
    const struct matmul_kernel *o, *mlp;
    struct work_queue pack_a, run_o, pack_x, run_up, run_down;
};

/* Take some rows that nobody has packed yet: *r0 to *r1 - 1. Returns false if none are left. */
static bool rows_next(struct work_queue *q, int step, int n, int *r0, int *r1)
{
    int i = work_next(q);
    *r0 = i * step;
    *r1 = min_int(n, *r0 + step);
    return i >= 0;
}

static void pack_normed(const struct tail_region *g, float *rows, int r0, int n)
{
    const struct tower_tail *t = g->t;
    const struct kernels *k = &g->w->cpu->k;
    const struct tower_layer *l = t->w;
    size_t hidden = (size_t)t->hidden;
    int step = g->mlp->row_step;
    for (int r = 0; r < n; r++) {
        const float *x = t->x + (size_t)(r0 + r) * hidden;
        float *y = rows + (size_t)r * hidden;
        if (l->norm2_bias)
            k->layernorm(y, x, l->norm2, l->norm2_bias, t->hidden, t->eps);
        else
            k->rmsnorm(y, x, l->norm2, t->hidden, t->eps);
    }
    /* A kernel may use another layout for few rows, so the last rows are padded to a full step. */
    memset(rows + (size_t)n * hidden, 0, sizeof *rows * (size_t)(step - n) * hidden);
    g->mlp->pack((uint8_t *)t->room + g->mlp->packed_size(r0, t->hidden), rows, hidden, step,
                 t->hidden, 0, step);
}

static void run_panels(const struct tail_region *g, struct work_queue *q, int n_threads,
                       const struct matmul_kernel *k, const struct matmul_fused *f, const void *xp,
                       const struct matrix *w, void *scratch)
{
    int begin, end, panel = many_rows_panel(w->out, n_threads);
    while (work_range(q, n_threads, &begin, &end))
        k->fused(f, xp, g->t->n, w, begin * panel, min_int(w->out, end * panel), scratch);
}

static void tail_run(void *arg, int thread, int n_threads)
{
    struct tail_region *g = arg;
    const struct tower_tail *t = g->t;
    const struct tower_layer *l = t->w;
    void *scratch = work_thread_mem(g->w, thread);
    struct matmul_fused add = { .kind = FUSED_ADD, .y = t->x, .y_stride = (size_t)t->hidden };
    struct matmul_fused act = { .kind = l->gate.data ? FUSED_SILU_MUL : FUSED_GELU,
                                .to = g->w->packed,
                                .gate = l->gate.data ? &l->gate : NULL };
    int r0, r1;
    while (rows_next(&g->pack_a, g->o->row_step, t->n, &r0, &r1))
        g->o->pack(t->room, t->a, (size_t)t->hidden, t->n, t->hidden, r0, r1);
    pool_barrier(g->w->pool);
    run_panels(g, &g->run_o, n_threads, g->o, &add, t->room, &l->o, scratch);
    pool_barrier(g->w->pool);
    while (rows_next(&g->pack_x, g->mlp->row_step, t->n, &r0, &r1))
        pack_normed(g, scratch, r0, r1 - r0);
    pool_barrier(g->w->pool);
    run_panels(g, &g->run_up, n_threads, g->mlp, &act, t->room, &l->up, scratch);
    pool_barrier(g->w->pool);
    run_panels(g, &g->run_down, n_threads, g->mlp, &add, g->w->packed, &l->down, scratch);
}

static int items(int n, int step)
{
    return (n + step - 1) / step;
}

static void init_panels(struct work_queue *q, const struct matrix *w, int n_threads)
{
    work_init(q, items(w->out, many_rows_panel(w->out, n_threads)));
}

bool tower_tail_cpu(struct device_work *w, const struct tower_tail *t)
{
    const struct kernels *k = &w->cpu->k;
    const struct tower_layer *l = t->w;
    struct tail_region g = {
        .w = w, .t = t, .o = kernels_matmul_for(k, &l->o), .mlp = kernels_matmul_for(k, &l->up)
    };
    if (!l->gate.data && t->gelu != GELU_TANH) /* kernels can only fuse GELU_TANH */
        return false;
    if (!g.o->fused || !g.mlp->fused || kernels_matmul_for(k, &l->down) != g.mlp ||
        (l->gate.data && kernels_matmul_for(k, &l->gate) != g.mlp))
        return false;
    if (t->n < g.o->row_step || t->n < g.mlp->row_step)
        return false;
    if (g.o->packed_size(t->n, t->hidden) > t->room_size ||
        g.mlp->packed_size(t->n, t->hidden) > t->room_size ||
        sizeof(float) * (size_t)g.mlp->row_step * (size_t)t->hidden > w->thread_size)
        return false;
    work_init(&g.pack_a, items(t->n, g.o->row_step));
    init_panels(&g.run_o, &l->o, pool_threads(w->pool));
    work_init(&g.pack_x, items(t->n, g.mlp->row_step));
    init_panels(&g.run_up, &l->up, pool_threads(w->pool));
    init_panels(&g.run_down, &l->down, pool_threads(w->pool));
    pool_run(w->pool, tail_run, &g);
    return true;
}
