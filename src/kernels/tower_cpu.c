/* The two halves of a vision tower's layer, before and after attention, each in one parallel region
 * of the thread pool:
 *
 *   q, k, v = rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v  with n = norm(x)
 *
 *   x += W_o a + b_o
 *   x += W_2 act(W_1 norm(x)) + b_2
 *
 * Used if the matrices' kernels support fused operations. A normed row is packed while it is in the
 * L1 cache, activations between the MLP's matrices are packed as they are computed, and sums are
 * added to x directly: between the products, only packed rows are written. The bits are those of
 * the separate operations.
 *
 * If there are rows enough, each thread takes blocks of rows through a whole half: it waits for
 * nobody, and what it packs stays in its own L2 cache. Fewer rows would use the weights that a
 * thread reads too little; then the threads share the rows of each step or the outputs of each
 * product, and wait for each other after it. */
#include "kernels/device_cpu.h"

#include "base/minmax.h"

#include <string.h>

enum {
    BLOCK_MOST = 384, /* rows: 24 groups of 16, as many_rows_amx.c keeps in L2 */
    BLOCK_LEAST = 256
};

static int items(int n, int step)
{
    return (n + step - 1) / step;
}

/* Rows of a block if threads take whole rows; 0: they should not. The last block may be shorter. */
static int block_rows(int n, int n_threads, int row_step)
{
    int blocks = items(items(n, BLOCK_MOST), n_threads) * n_threads, step = 2 * row_step;
    int rows = items(items(n, blocks), step) * step;
    return rows >= BLOCK_LEAST && n - (blocks - 1) * rows >= BLOCK_LEAST / 2 ? rows : 0;
}

/* Take some rows that nobody has taken yet: *r0 to *r1 - 1. Returns false if none are left. */
static bool rows_next(struct work_queue *q, int step, int n, int *r0, int *r1)
{
    int i = work_next(q);
    *r0 = i * step;
    *r1 = min_int(n, *r0 + step);
    return i >= 0;
}

/* ---- rows that are normed and packed ---- */

struct normed_rows {
    const struct kernels *k;
    const struct matmul_kernel *to; /* the kernel that will read them */
    uint8_t *room;
    const float *x, *weight, *bias; /* bias NULL: RMSNorm */
    int hidden;
    float eps;
};

/* Rows [r0, r0 + n), at most one step of the kernel; `rows` has room for a step. */
static void pack_normed(const struct normed_rows *g, float *rows, int r0, int n)
{
    size_t hidden = (size_t)g->hidden;
    int step = g->to->row_step;
    for (int r = 0; r < n; r++) {
        const float *x = g->x + (size_t)(r0 + r) * hidden;
        float *y = rows + (size_t)r * hidden;
        if (g->bias)
            g->k->layernorm(y, x, g->weight, g->bias, g->hidden, g->eps);
        else
            g->k->rmsnorm(y, x, g->weight, g->hidden, g->eps);
    }
    /* A kernel may use another layout for few rows, so the last rows are padded to a full step. */
    memset(rows + (size_t)n * hidden, 0, sizeof *rows * (size_t)(step - n) * hidden);
    g->to->pack(g->room + g->to->packed_size(r0, g->hidden), rows, hidden, step, g->hidden, 0,
                step);
}

static void pack_normed_block(const struct normed_rows *g, float *rows, int r0, int n)
{
    for (int r = 0; r < n; r += g->to->row_step)
        pack_normed(g, rows, r0 + r, min_int(g->to->row_step, n - r));
}

/* ---- before attention ---- */

struct qkv_region {
    struct device_work *w;
    const struct tower_qkv *t;
    struct normed_rows normed;
    int block;
    struct work_queue blocks;
};

static void rope_block(const struct qkv_region *g, float *x, int r0, int n)
{
    const struct tower_qkv *t = g->t;
    size_t d = (size_t)t->head_dim;
    for (int r = r0; r < r0 + n; r++)
        for (int h = 0; h < t->n_heads; h++)
            g->normed.k->rope(x + (size_t)r * (size_t)t->hidden + (size_t)h * d,
                              t->cos + (size_t)r * (d / 2), t->sin + (size_t)r * (d / 2),
                              t->head_dim);
}

static void qkv_run(void *arg, int thread, int n_threads)
{
    struct qkv_region *g = arg;
    const struct tower_qkv *t = g->t;
    const struct matmul_kernel *k = g->normed.to;
    const struct matrix *w[3] = { &t->w->q, &t->w->k, &t->w->v };
    void *scratch = work_thread_mem(g->w, thread);
    int r0, r1;
    (void)n_threads;
    while (rows_next(&g->blocks, g->block, t->n, &r0, &r1)) {
        const uint8_t *xp = g->normed.room + k->packed_size(r0, t->hidden);
        pack_normed_block(&g->normed, scratch, r0, r1 - r0);
        for (int i = 0; i < 3; i++) {
            float *y = t->to[i];
            k->run(y + (size_t)r0 * (size_t)t->hidden, (size_t)t->hidden, xp, r1 - r0, w[i], 0,
                   w[i]->out, scratch);
            if (t->cos && i < 2)
                rope_block(g, y, r0, r1 - r0);
        }
    }
}

bool tower_qkv_cpu(struct device_work *w, const struct tower_qkv *t)
{
    const struct kernels *k = &w->cpu->k;
    const struct tower_layer *l = t->w;
    const struct matmul_kernel *to = kernels_matmul_for(k, &l->q);
    struct qkv_region g = { .w = w,
                            .t = t,
                            .normed = { .k = k,
                                        .to = to,
                                        .room = (uint8_t *)w->packed,
                                        .x = t->x,
                                        .weight = l->norm1,
                                        .bias = l->norm1_bias,
                                        .hidden = t->hidden,
                                        .eps = t->eps } };
    if (!to->fused || kernels_matmul_for(k, &l->k) != to || kernels_matmul_for(k, &l->v) != to ||
        sizeof(float) * (size_t)to->row_step * (size_t)t->hidden > w->thread_size)
        return false;
    g.block = block_rows(t->n, pool_threads(w->pool), to->row_step);
    if (g.block == 0)
        return false;
    work_init(&g.blocks, items(t->n, g.block));
    pool_run(w->pool, qkv_run, &g);
    return true;
}

/* ---- after attention ---- */

struct tail_region {
    struct device_work *w;
    const struct tower_tail *t;
    const struct matmul_kernel *o, *mlp;
    struct normed_rows normed;
    int block;                /* rows; 0: threads share each step */
    struct work_queue blocks; /* if they do not */
    struct work_queue pack_a, run_o, pack_x, run_up, run_down;
};

static struct matmul_fused fused_add(const struct tower_tail *t, int r0)
{
    return (struct matmul_fused){ .kind = FUSED_ADD,
                                  .y = t->x + (size_t)r0 * (size_t)t->hidden,
                                  .y_stride = (size_t)t->hidden };
}

static struct matmul_fused fused_act(const struct tower_tail *t, void *to)
{
    const struct matrix *gate = t->w->gate.data ? &t->w->gate : NULL;
    return (
        struct matmul_fused){ .kind = gate ? FUSED_SILU_MUL : FUSED_GELU, .to = to, .gate = gate };
}

static void tail_blocks_run(void *arg, int thread, int n_threads)
{
    struct tail_region *g = arg;
    const struct tower_tail *t = g->t;
    const struct tower_layer *l = t->w;
    const struct matmul_kernel *k = g->mlp;
    void *scratch = work_thread_mem(g->w, thread);
    int r0, r1;
    (void)n_threads;
    while (rows_next(&g->blocks, g->block, t->n, &r0, &r1)) {
        uint8_t *xp = (uint8_t *)t->room + k->packed_size(r0, t->hidden);
        uint8_t *middle = (uint8_t *)g->w->packed + k->packed_size(r0, l->up.out);
        struct matmul_fused add = fused_add(t, r0), act = fused_act(t, middle);
        int n = r1 - r0;
        k->pack(xp, t->a + (size_t)r0 * (size_t)t->hidden, (size_t)t->hidden, n, t->hidden, 0, n);
        k->fused(&add, xp, n, &l->o, 0, l->o.out, scratch);
        pack_normed_block(&g->normed, scratch, r0, n);
        k->fused(&act, xp, n, &l->up, 0, l->up.out, scratch);
        k->fused(&add, middle, n, &l->down, 0, l->down.out, scratch);
    }
}

static void run_panels(const struct tail_region *g, struct work_queue *q, int n_threads,
                       const struct matmul_kernel *k, const struct matmul_fused *f, const void *xp,
                       const struct matrix *w, void *scratch)
{
    int begin, end, panel = many_rows_panel(w->out, n_threads);
    while (work_range(q, n_threads, &begin, &end))
        k->fused(f, xp, g->t->n, w, begin * panel, min_int(w->out, end * panel), scratch);
}

static void tail_steps_run(void *arg, int thread, int n_threads)
{
    struct tail_region *g = arg;
    const struct tower_tail *t = g->t;
    const struct tower_layer *l = t->w;
    void *scratch = work_thread_mem(g->w, thread);
    struct matmul_fused add = fused_add(t, 0), act = fused_act(t, g->w->packed);
    int r0, r1;
    while (rows_next(&g->pack_a, g->o->row_step, t->n, &r0, &r1))
        g->o->pack(t->room, t->a, (size_t)t->hidden, t->n, t->hidden, r0, r1);
    pool_barrier(g->w->pool);
    run_panels(g, &g->run_o, n_threads, g->o, &add, t->room, &l->o, scratch);
    pool_barrier(g->w->pool);
    while (rows_next(&g->pack_x, g->mlp->row_step, t->n, &r0, &r1))
        pack_normed(&g->normed, scratch, r0, r1 - r0);
    pool_barrier(g->w->pool);
    run_panels(g, &g->run_up, n_threads, g->mlp, &act, t->room, &l->up, scratch);
    pool_barrier(g->w->pool);
    run_panels(g, &g->run_down, n_threads, g->mlp, &add, g->w->packed, &l->down, scratch);
}

static void init_panels(struct work_queue *q, const struct matrix *w, int n_threads)
{
    work_init(q, items(w->out, many_rows_panel(w->out, n_threads)));
}

static void tail_run(struct tail_region *g)
{
    const struct tower_tail *t = g->t;
    const struct tower_layer *l = t->w;
    struct pool *pool = g->w->pool;
    int n_threads = pool_threads(pool);
    /* Blocks of rows need one layout: two would overlap in t->room. */
    g->block = g->o == g->mlp ? block_rows(t->n, n_threads, g->mlp->row_step) : 0;
    if (g->block > 0) {
        work_init(&g->blocks, items(t->n, g->block));
        pool_run(pool, tail_blocks_run, g);
        return;
    }
    work_init(&g->pack_a, items(t->n, g->o->row_step));
    init_panels(&g->run_o, &l->o, n_threads);
    work_init(&g->pack_x, items(t->n, g->mlp->row_step));
    init_panels(&g->run_up, &l->up, n_threads);
    init_panels(&g->run_down, &l->down, n_threads);
    pool_run(pool, tail_steps_run, g);
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
    g.normed = (struct normed_rows){ .k = k,
                                     .to = g.mlp,
                                     .room = t->room,
                                     .x = t->x,
                                     .weight = l->norm2,
                                     .bias = l->norm2_bias,
                                     .hidden = t->hidden,
                                     .eps = t->eps };
    tail_run(&g);
    return true;
}
