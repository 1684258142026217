/* The CPU as a device: splits each operation over the threads of a pool and calls the kernels of
 * the table. How the work is split never changes a bit: kernels are row-invariant and give the
 * same output for any range. */
#include "kernels/device_cpu.h"

#include "base/cpu.h"
#include "base/minmax.h"
#include "tensor/half.h"
#include "tensor/quant.h"

#include <string.h>

enum {
    FEW_ROWS = 64,            /* up to so many rows a product is memory-bound, */
    PANEL_FEW = 16,           /* and its work items have at least so many outputs */
    REPACK = 8,               /* groups of out_step outputs repacked per work item */
    PANEL_MANY = 64,          /* smallest work item with more than FEW_ROWS rows */
    ITEMS_PER_THREAD = 4,     /* work items per thread with more than FEW_ROWS rows */
    ROWS_PER_ITEM = 4,        /* rows per work item in elementwise operations */
    ONE_THREAD_FLOATS = 16384 /* smaller operations run on the calling thread */
};

void *work_thread_mem(struct device_work *w, int thread)
{
    return w->thread_mem + (size_t)thread * w->thread_size;
}

size_t parts_carve(const struct mem_part *parts, size_t n, void *mem, size_t cap)
{
    struct arena a = { 0 };
    size_t total = 0;
    if (mem)
        arena_init(&a, mem, cap);
    for (size_t i = 0; i < n; i++) {
        void *p = mem ? arena_push(&a, parts[i].size) : NULL;
        memcpy(parts[i].field, &p, sizeof p);
        total += arena_cost(parts[i].size);
    }
    return total;
}

/* ---- memory ---- */

static void *cpu_alloc(struct device *dev, size_t size)
{
    (void)dev;
    return mem_zalloc(size);
}

static void cpu_free(struct device *dev, void *p)
{
    (void)dev;
    mem_free(p);
}

static void cpu_copy(struct device *dev, void *dst, const void *src, size_t size)
{
    (void)dev;
    memcpy(dst, src, size);
}

static void cpu_room(struct device *dev, size_t *left, size_t *all)
{
    (void)dev;
    *left = *all = 0;
}

struct repacking {
    const struct matmul_kernel *kernel;
    const struct matrix *m;
    void *to;
    struct work_queue items;   /* each of REPACK * out_step outputs */
    const struct device *asks; /* its go_on callback says whether to continue */
    atomic_bool stopped;
};

static void repack_items(void *arg, int thread, int n_threads)
{
    struct repacking *r = arg;
    int step = REPACK * r->kernel->out_step;
    const struct device *d = thread == 0 ? r->asks : NULL; /* only the calling thread calls back */
    (void)n_threads;
    for (int i = work_next(&r->items); i >= 0 && !atomic_load(&r->stopped);
         i = work_next(&r->items)) {
        if (d && d->go_on && !d->go_on(d->user))
            atomic_store(&r->stopped, true);
        r->kernel->repack(r->to, r->m, i * step, min_int(r->m->out, (i + 1) * step));
    }
}

/* Usually the weights stay where they are, as they are stored in the file. They are repacked if a
 * kernel wants another order and there is memory for the copy: repacked weights may use half of the
 * machine's memory. */
static enum pv_status cpu_take(struct device *dev, struct matrix *m, struct pv_error *err)
{
    struct cpu_device *cpu = dev->impl;
    const struct matmul_kernel *k = kernels_repacked_for(&cpu->k, m);
    struct repacking r = { .kernel = k, .m = m, .asks = dev };
    if (!k || m->lookup || m->in % k->in_multiple != 0)
        return PV_OK;
    dev->copies += k->repacked_size(m);
    if (!dev->repacks || dev->copies > cpu->memory / 2)
        return PV_OK;
    r.to = mem_zalloc(k->repacked_size(m)); /* aligned, on huge pages */
    if (!r.to)
        return PV_OK;
    work_init(&r.items, (m->out + REPACK * k->out_step - 1) / (REPACK * k->out_step));
    atomic_init(&r.stopped, false);
    pool_run(cpu->pool, repack_items, &r);
    if (atomic_load(&r.stopped)) {
        dev->copies -= k->repacked_size(m);
        mem_free(r.to);
        return device_stopped(err);
    }
    m->repacked = r.to;
    return PV_OK;
}

static void cpu_drop(struct device *dev, struct matrix *m)
{
    const struct cpu_device *cpu = dev->impl;
    if (!m->repacked)
        return;
    dev->copies -= kernels_repacked_for(&cpu->k, m)->repacked_size(m);
    mem_free((void *)(uintptr_t)m->repacked);
    m->repacked = NULL;
}

struct work_sizes {
    size_t packed, thread, partial, experts;
};

static struct work_sizes measure(const struct cpu_device *cpu, const struct work_shape *s)
{
    struct work_sizes z = { 0 };
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const struct matmul_kernel *each[] = { cpu->k.matmul[t], cpu->k.matmul_any[t],
                                               cpu->k.matmul_repacked[t],
                                               cpu->k.matmul_many_repacked[t] };
        for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
            if (!each[i])
                continue;
            z.packed = max_size(z.packed, each[i]->packed_size(s->rows, s->in));
            z.thread = max_size(z.thread, each[i]->scratch_size(s->in));
        }
    }
    /* columns_cpu.c keeps max and sum of every query in the packed buffer. */
    z.packed = max_size(z.packed, 2 * sizeof(float) * (size_t)s->rows * (size_t)s->n_heads);
    z.thread = max_size(z.thread, attention_thread_size(cpu, s));
    z.thread = max_size(z.thread, columns_thread_size(cpu, s));
    z.thread = max_size(z.thread, full_attention_thread_size(cpu, s));
    z.thread = arena_cost(z.thread);
    z.partial = attention_partial_size(cpu, s);
    z.experts = experts_size(cpu, s);
    return z;
}

static size_t cpu_work_size(struct device *dev, const struct work_shape *s)
{
    const struct cpu_device *cpu = dev->impl;
    struct work_sizes z = measure(cpu, s);
    return arena_cost(z.packed) + arena_cost(z.partial) + arena_cost(z.experts) +
           arena_cost(z.thread * (size_t)pool_threads(cpu->pool));
}

static enum pv_status cpu_work_open(struct device *dev, struct device_work **out,
                                    const struct work_shape *s, struct pv_error *err)
{
    struct cpu_device *cpu = dev->impl;
    struct work_sizes z = measure(cpu, s);
    size_t size = cpu_work_size(dev, s);
    struct device_work *w = mem_zalloc(sizeof *w);
    if (!w)
        return fail_nomem(err, sizeof *w);
    if (!arena_open(&w->arena, size)) {
        mem_free(w);
        return fail_nomem(err, size);
    }
    w->cpu = cpu;
    w->pool = cpu->pool;
    w->shape = *s;
    w->packed = arena_push(&w->arena, z.packed);
    w->partial = arena_push(&w->arena, z.partial);
    w->partial_size = z.partial;
    if (z.experts > 0)
        w->experts = experts_scratch(cpu, s, arena_push(&w->arena, z.experts));
    w->thread_size = z.thread;
    w->thread_mem = arena_push(&w->arena, z.thread * (size_t)pool_threads(cpu->pool));
    *out = w;
    return PV_OK;
}

static void cpu_work_close(struct device *dev, struct device_work **work)
{
    (void)dev;
    if (!*work)
        return;
    arena_close(&(*work)->arena);
    mem_free(*work);
    *work = NULL;
}

static void cpu_work_on(struct device_work *w, struct device *group)
{
    struct pool *pool = group ? ((struct cpu_device *)group->impl)->pool : w->cpu->pool;
    if (pool_threads(pool) <= pool_threads(w->cpu->pool)) /* scratch exists for that many threads */
        w->pool = pool;
}

static void cpu_work_copy(struct device_work *w, void *dst, const void *src, size_t size)
{
    (void)w;
    memcpy(dst, src, size);
}

static bool cpu_begin(struct device_work *w, const struct work_plan *plan)
{
    (void)w;
    (void)plan;
    return true;
}

static void cpu_end(struct device_work *w)
{
    (void)w;
}

static enum pv_status cpu_wait(struct device_work *w, struct pv_error *err)
{
    if (atomic_exchange_explicit(&w->not_finite, false, memory_order_relaxed))
        return fail(err, PV_E_NOT_FINITE, "%s", DEVICE_NOT_FINITE);
    return PV_OK;
}

/* ---- rows in parallel ---- */

struct rows_region {
    rows_fn *fn;
    void *ctx;
    int n;
    struct work_queue queue;
};

static void rows_region_run(void *arg, int thread, int n_threads)
{
    struct rows_region *g = arg;
    (void)thread;
    (void)n_threads;
    for (int i = work_next(&g->queue); i >= 0; i = work_next(&g->queue))
        g->fn(g->ctx, i * ROWS_PER_ITEM, min_int(g->n, (i + 1) * ROWS_PER_ITEM));
}

void rows_parallel(struct device_work *w, rows_fn *fn, void *ctx, int n, int width)
{
    struct rows_region g = { .fn = fn, .ctx = ctx, .n = n };
    if ((size_t)n * (size_t)width < ONE_THREAD_FLOATS || n <= ROWS_PER_ITEM) {
        fn(ctx, 0, n);
        return;
    }
    work_init(&g.queue, (n + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM);
    pool_run(w->pool, rows_region_run, &g);
}

struct row_op {
    const struct kernels *k;
    float *y;
    const float *x, *weight, *bias, *cos, *sin;
    const struct matrix *table;
    const int32_t *ids;
    int32_t *out_ids;
    const int (*blend_rows)[4];
    const float (*blend_weights)[4];
    int dim, heads;
    float eps;
    enum gelu_kind gelu;
    atomic_bool *not_finite;
};

static void embed_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    for (int r = r0; r < r1; r++)
        row_to_f32(op->y + (size_t)r * op->dim,
                   (const uint8_t *)op->table->data + (size_t)op->ids[r] * op->table->row_size,
                   op->table->dtype, op->dim);
}

static void cpu_embed(struct device_work *w, float *y, const struct matrix *table,
                      const int32_t *ids, int n, const float *next_norm)
{
    (void)next_norm; /* norms are separate operations on the CPU */
    struct row_op op = { .y = y, .table = table, .ids = ids, .dim = table->in };
    rows_parallel(w, embed_rows, &op, n, op.dim);
}

static void rmsnorm_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    for (int r = r0; r < r1; r++) {
        float *y = op->y + (size_t)r * op->dim;
        op->k->rmsnorm(y, op->x + (size_t)r * op->dim, op->weight, op->dim, op->eps);
        /* Checked here, because rounding to int8 before the next product would hide NaN and
         * infinity. */
        if (!row_finite_cpu(y, op->dim))
            atomic_store_explicit(op->not_finite, true, memory_order_relaxed);
    }
}

static void cpu_rmsnorm(struct device_work *w, float *y, const float *x, const float *weight, int n,
                        int dim, float eps)
{
    struct row_op op = { .k = &w->cpu->k,
                         .y = y,
                         .x = x,
                         .weight = weight,
                         .dim = dim,
                         .eps = eps,
                         .not_finite = &w->not_finite };
    rows_parallel(w, rmsnorm_rows, &op, n, dim);
}

static void layernorm_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    for (int r = r0; r < r1; r++)
        op->k->layernorm(op->y + (size_t)r * op->dim, op->x + (size_t)r * op->dim, op->weight,
                         op->bias, op->dim, op->eps);
}

static void cpu_layernorm(struct device_work *w, float *y, const float *x, const float *weight,
                          const float *bias, int n, int dim, float eps)
{
    struct row_op op = {
        .k = &w->cpu->k, .y = y, .x = x, .weight = weight, .bias = bias, .dim = dim, .eps = eps
    };
    rows_parallel(w, layernorm_rows, &op, n, dim);
}

static void rope_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    int d = op->dim;
    for (int r = r0; r < r1; r++)
        for (int h = 0; h < op->heads; h++) {
            float *x = op->y + ((size_t)r * op->heads + h) * d;
            if (op->weight)
                op->k->rmsnorm(x, x, op->weight, d, op->eps);
            op->k->rope(x, op->cos + (size_t)r * (d / 2), op->sin + (size_t)r * (d / 2), d);
        }
}

static void cpu_rope(struct device_work *w, float *x, int n, int n_heads, int d,
                     const float *weight, float eps, const float *cos, const float *sin)
{
    struct row_op op = { .k = &w->cpu->k,
                         .y = x,
                         .weight = weight,
                         .cos = cos,
                         .sin = sin,
                         .dim = d,
                         .heads = n_heads,
                         .eps = eps };
    rows_parallel(w, rope_rows, &op, n, n_heads * d);
}

static void silu_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    size_t at = (size_t)r0 * op->dim;
    op->k->silu_mul(op->y + at, op->x + at, (size_t)(r1 - r0) * op->dim);
    if (!row_finite_cpu(op->y + (size_t)r0 * op->dim, (r1 - r0) * op->dim))
        atomic_store_explicit(op->not_finite, true, memory_order_relaxed);
}

static void cpu_silu_mul(struct device_work *w, float *g, const float *u, int n, int dim)
{
    struct row_op op = {
        .k = &w->cpu->k, .y = g, .x = u, .dim = dim, .not_finite = &w->not_finite
    };
    rows_parallel(w, silu_rows, &op, n, dim * 4);
}

static void gelu_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    op->k->gelu[op->gelu](op->y + (size_t)r0 * op->dim, (size_t)(r1 - r0) * op->dim);
}

static void cpu_gelu(struct device_work *w, float *x, int n, int dim, enum gelu_kind kind)
{
    struct row_op op = { .k = &w->cpu->k, .y = x, .dim = dim, .gelu = kind };
    rows_parallel(w, gelu_rows, &op, n, dim * 4);
}

static void blend_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    for (int r = r0; r < r1; r++) {
        const int *from = op->blend_rows[r];
        const float *w = op->blend_weights[r];
        const float *a = op->x + (size_t)from[0] * op->dim, *b = op->x + (size_t)from[1] * op->dim;
        const float *c = op->x + (size_t)from[2] * op->dim, *d = op->x + (size_t)from[3] * op->dim;
        float *y = op->y + (size_t)r * op->dim;
        for (int i = 0; i < op->dim; i++)
            y[i] = w[0] * a[i] + w[1] * b[i] + w[2] * c[i] + w[3] * d[i];
    }
}

static void cpu_blend(struct device_work *w, float *y, const float *x, const int (*rows)[4],
                      const float (*weights)[4], int n, int dim)
{
    struct row_op op = { .y = y, .x = x, .blend_rows = rows, .blend_weights = weights, .dim = dim };
    rows_parallel(w, blend_rows, &op, n, dim * 4);
}

static void add_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    size_t at = (size_t)r0 * op->dim;
    op->k->add(op->y + at, op->x + at, (size_t)(r1 - r0) * op->dim);
}

static void cpu_add(struct device_work *w, float *y, const float *x, int n, int dim)
{
    struct row_op op = { .k = &w->cpu->k, .y = y, .x = x, .dim = dim };
    rows_parallel(w, add_rows, &op, n, dim);
}

static void cpu_gather(struct device_work *w, float *y, const float *x, const int32_t *rows, int n,
                       int dim)
{
    (void)w;
    for (int i = 0; i < n; i++)
        memcpy(y + (size_t)i * dim, x + (size_t)rows[i] * dim, sizeof(float) * (size_t)dim);
}

static void window_rows(void *ctx, int r0, int r1)
{
    window_attention_ref(ctx, r0, r1);
}

static void cpu_attention_windows(struct device_work *w, const struct window_attn_job *job)
{
    struct window_attn_job own = *job;
    rows_parallel(w, window_rows, &own, job->n, job->window * job->n_heads * job->d);
}

static void argmax_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    for (int r = r0; r < r1; r++) {
        const float *x = op->x + (size_t)r * op->dim;
        op->out_ids[r] = op->k->argmax(x, op->dim);
        if (!row_finite_cpu(x, op->dim))
            atomic_store_explicit(op->not_finite, true, memory_order_relaxed);
    }
}

static void cpu_argmax(struct device_work *w, int32_t *ids, const float *x, int n, int dim)
{
    struct row_op op = {
        .k = &w->cpu->k, .x = x, .out_ids = ids, .dim = dim, .not_finite = &w->not_finite
    };
    rows_parallel(w, argmax_rows, &op, n, dim);
}

/* ---- matmul ---- */

struct matmul_region {
    struct device_work *w;
    const struct matmul_kernel *kernel;
    const struct matmul_job *jobs;
    int n_jobs;
    int first_item[DEVICE_MAX_JOBS + 1];
    const float *x;
    int n, in, panel; /* panel: outputs of one item */
    struct work_queue pack, run;
};

/* Run work items [begin, end), which may belong to several jobs. */
static void matmul_items(const struct matmul_region *g, int begin, int end, void *scratch)
{
    for (int j = 0; j < g->n_jobs; j++) {
        const struct matmul_job *job = &g->jobs[j];
        int a = begin > g->first_item[j] ? begin : g->first_item[j];
        int b = min_int(end, g->first_item[j + 1]);
        if (a < b)
            g->kernel->run(job->y, job->y_stride, g->w->packed, g->n, job->w,
                           (a - g->first_item[j]) * g->panel,
                           min_int(job->w->out, (b - g->first_item[j]) * g->panel), scratch);
    }
}

static void matmul_region_run(void *arg, int thread, int n_threads)
{
    struct matmul_region *g = arg;
    void *scratch = work_thread_mem(g->w, thread);
    int step = g->kernel->row_step, begin, end;
    for (int i = work_next(&g->pack); i >= 0; i = work_next(&g->pack))
        g->kernel->pack(g->w->packed, g->x, (size_t)g->in, g->n, g->in, i * step,
                        min_int(g->n, (i + 1) * step));
    pool_barrier(g->w->pool);
    while (work_range(&g->run, n_threads, &begin, &end))
        matmul_items(g, begin, end, scratch);
}

int matmul_panel(const struct matmul_kernel *kernel, int n)
{
    int least = n <= FEW_ROWS ? PANEL_FEW : PANEL_MANY;
    return (least + kernel->out_step - 1) / kernel->out_step * kernel->out_step;
}

int many_rows_panel(int out, int n_threads)
{
    int panels = out / (PANEL_MANY * ITEMS_PER_THREAD * n_threads);
    return PANEL_MANY * (panels > 1 ? panels : 1);
}

/* Run jobs [0, n_jobs), which have the same x and the same kernel. */
static void matmul_group(struct device_work *w, const struct matmul_kernel *kernel,
                         const struct matmul_job *jobs, int n_jobs, const float *x, int n)
{
    struct matmul_region g = { .w = w,
                               .kernel = kernel,
                               .jobs = jobs,
                               .n_jobs = n_jobs,
                               .x = x,
                               .n = n,
                               .in = jobs[0].w->in };
    int least = PANEL_FEW, out = 0;
    for (int j = 0; j < n_jobs; j++)
        out += jobs[j].w->out;
    if (n > FEW_ROWS)
        least = many_rows_panel(out, pool_threads(w->pool));
    g.panel = (least + kernel->out_step - 1) / kernel->out_step * kernel->out_step;
    for (int j = 0; j < n_jobs; j++)
        g.first_item[j + 1] = g.first_item[j] + (jobs[j].w->out + g.panel - 1) / g.panel;
    work_init(&g.pack, (n + kernel->row_step - 1) / kernel->row_step);
    work_init(&g.run, g.first_item[n_jobs]);
    pool_run(w->pool, matmul_region_run, &g);
}

static void cpu_matmul(struct device_work *w, const struct matmul_job *jobs, int n_jobs,
                       const float *x, int n)
{
    for (int j = 0; j < n_jobs;) {
        const struct matmul_kernel *kernel = kernels_matmul_for(&w->cpu->k, jobs[j].w);
        int end = j + 1;
        while (end < n_jobs && kernels_matmul_for(&w->cpu->k, jobs[end].w) == kernel)
            end++;
        matmul_group(w, kernel, jobs + j, end - j, x, n);
        j = end;
    }
}

/* ---- the device ---- */

static void cpu_close(struct device **dev)
{
    struct cpu_device *cpu = (*dev)->impl;
    pool_close(&cpu->pool);
    mem_free(cpu);
    *dev = NULL;
}

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .room = cpu_room,
    .take = cpu_take,
    .drop = cpu_drop,
    .close = cpu_close,
    .work_size = cpu_work_size,
    .work_open = cpu_work_open,
    .work_on = cpu_work_on,
    .work_close = cpu_work_close,
    .put = cpu_work_copy,
    .copy = cpu_work_copy,
    .get = cpu_work_copy,
    .begin = cpu_begin,
    .end = cpu_end,
    .wait = cpu_wait,
    .tower_qkv = tower_qkv_cpu,
    .tower_tail = tower_tail_cpu,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .matmul = cpu_matmul,
    .rope = cpu_rope,
    .kv_write = kv_write_cpu,
    .kv_move = kv_move_cpu,
    .kv_copy = kv_copy_cpu,
    .attention = attention_cpu,
    .attention_columns = attention_columns_cpu,
    .attention_full = attention_full_cpu,
    .silu_mul = cpu_silu_mul,
    .experts = experts_cpu,
    .layernorm = cpu_layernorm,
    .gelu = cpu_gelu,
    .blend = cpu_blend,
    .add = cpu_add,
    .gather = cpu_gather,
    .attention_windows = cpu_attention_windows,
    .argmax = cpu_argmax,
    .top = top_cpu,
    .name_ids = name_ids_cpu,
    .draw_token = draw_token_cpu,
    .cosines_apart = cosines_apart_cpu,
    .cosine_spread = cosine_spread_cpu,
    .unit_rows = unit_rows_cpu,
    .unit_dots = unit_dots_cpu,
};

enum pv_status device_cpu_open(struct device **out, int threads, uint64_t cpu_flags,
                               struct pv_error *err)
{
    struct cpu_device *cpu = mem_zalloc(sizeof *cpu);
    enum pv_status s;
    if (!cpu)
        return fail_nomem(err, sizeof *cpu);
    s = pool_open(&cpu->pool, threads, err);
    if (s) {
        mem_free(cpu);
        return s;
    }
    kernels_init(&cpu->k, cpu_flags);
    cpu->memory = cpu_memory();
    cpu->dev = (struct device){ .ops = &cpu_ops, .impl = cpu };
    *out = &cpu->dev;
    return PV_OK;
}
