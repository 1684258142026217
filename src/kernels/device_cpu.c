/* The CPU as a device: splits each operation over the threads of a pool and calls the kernels of
 * the table. How the work is split never changes a bit: kernels are row-invariant and give the
 * same output for any range. */
#include "kernels/device_cpu.h"
#include "tensor/half.h"
#include "tensor/quant.h"

#include <string.h>

enum {
    FEW_ROWS = 64,            /* up to here a product waits for memory, */
    PANEL_FEW = 16,           /* and its smallest work item is this many outputs; */
    PANEL_MANY = 64,          /* with more rows a kernel prepares so many at a time */
    ROWS_PER_ITEM = 4,        /* rows of one work item of the elementwise operations */
    ONE_THREAD_FLOATS = 16384 /* less than this is not worth waking the pool for */
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

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

struct work_sizes {
    size_t packed, thread, partial;
};

static struct work_sizes measure(const struct cpu_device *cpu, const struct work_shape *s)
{
    struct work_sizes z = { 0 };
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const struct matmul_kernel *each[3] = { cpu->k.matmul[t], cpu->k.matmul_any[t],
                                                cpu->k.matmul_many[t] };
        for (int i = 0; i < 3 && each[i]; i++) {
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
    return z;
}

static size_t cpu_work_size(struct device *dev, const struct work_shape *s)
{
    const struct cpu_device *cpu = dev->impl;
    struct work_sizes z = measure(cpu, s);
    return arena_cost(z.packed) + arena_cost(z.partial) +
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
    w->shape = *s;
    w->packed = arena_push(&w->arena, z.packed);
    w->partial = arena_push(&w->arena, z.partial);
    w->partial_size = z.partial;
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

/* ---- rows in parallel ---- */

/* An operation on rows [r0, r1) with its own context. */
typedef void rows_fn(void *ctx, int r0, int r1);

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

/* Run fn over n rows of about `width` floats each. */
static void rows_parallel(struct device_work *w, rows_fn *fn, void *ctx, int n, int width)
{
    struct rows_region g = { .fn = fn, .ctx = ctx, .n = n };
    if ((size_t)n * (size_t)width < ONE_THREAD_FLOATS || n <= ROWS_PER_ITEM) {
        fn(ctx, 0, n);
        return;
    }
    work_init(&g.queue, (n + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM);
    pool_run(w->cpu->pool, rows_region_run, &g);
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
                      const int32_t *ids, int n)
{
    struct row_op op = { .y = y, .table = table, .ids = ids, .dim = table->in };
    rows_parallel(w, embed_rows, &op, n, op.dim);
}

static void rmsnorm_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    for (int r = r0; r < r1; r++)
        op->k->rmsnorm(op->y + (size_t)r * op->dim, op->x + (size_t)r * op->dim, op->weight,
                       op->dim, op->eps);
}

static void cpu_rmsnorm(struct device_work *w, float *y, const float *x, const float *weight, int n,
                        int dim, float eps)
{
    struct row_op op = {
        .k = &w->cpu->k, .y = y, .x = x, .weight = weight, .dim = dim, .eps = eps
    };
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
}

static void cpu_silu_mul(struct device_work *w, float *g, const float *u, int n, int dim)
{
    struct row_op op = { .k = &w->cpu->k, .y = g, .x = u, .dim = dim };
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

static void cpu_gather(struct device_work *w, float *y, const float *x, const int *rows, int n,
                       int dim)
{
    (void)w;
    for (int i = 0; i < n; i++)
        memcpy(y + (size_t)i * dim, x + (size_t)rows[i] * dim, sizeof(float) * (size_t)dim);
}

static void argmax_rows(void *ctx, int r0, int r1)
{
    struct row_op *op = ctx;
    for (int r = r0; r < r1; r++)
        op->out_ids[r] = op->k->argmax(op->x + (size_t)r * op->dim, op->dim);
}

static void cpu_argmax(struct device_work *w, int32_t *ids, const float *x, int n, int dim)
{
    struct row_op op = { .k = &w->cpu->k, .x = x, .out_ids = ids, .dim = dim };
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

/* Items [begin, end), which may belong to several jobs. */
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
    pool_barrier(g->w->cpu->pool);
    while (work_range(&g->run, n_threads, &begin, &end))
        matmul_items(g, begin, end, scratch);
}

/* Jobs [0, n_jobs) share x and the kernel. */
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
    int least = n <= FEW_ROWS ? PANEL_FEW : PANEL_MANY;
    g.panel = (least + kernel->out_step - 1) / kernel->out_step * kernel->out_step;
    for (int j = 0; j < n_jobs; j++)
        g.first_item[j + 1] = g.first_item[j] + (jobs[j].w->out + g.panel - 1) / g.panel;
    work_init(&g.pack, (n + kernel->row_step - 1) / kernel->row_step);
    work_init(&g.run, g.first_item[n_jobs]);
    pool_run(w->cpu->pool, matmul_region_run, &g);
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

/* ---- KV cache ---- */

static size_t v_index(const struct kv_layer *kv, int head, int slot, int i)
{
    size_t chunk = (size_t)slot / KV_CHUNK;
    return (size_t)head * kv->cap * kv->d + (chunk * kv->d + (size_t)i) * KV_CHUNK +
           (size_t)slot % KV_CHUNK;
}

/* An infinity in a slot would reach rows that must not see it: p = 0 times infinity is not 0. */
static void limit_to_f16(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = x[i] > 65504.0f ? 65504.0f : x[i] < -65504.0f ? -65504.0f : x[i];
}

void kv_round(const struct kernels *k, enum dtype t, void *y, const float *x, int n)
{
    if (t == DTYPE_F16) {
        float limited[DEVICE_MAX_HEAD_DIM];
        for (int i = 0; i < n; i += DEVICE_MAX_HEAD_DIM) {
            int part = min_int(n - i, DEVICE_MAX_HEAD_DIM);
            limit_to_f16(limited, x + i, part);
            k->to_f16((uint16_t *)y + i, limited, (size_t)part);
        }
    } else if (t == DTYPE_BF16) {
        k->to_bf16(y, x, (size_t)n);
    } else {
        memcpy(y, x, sizeof(float) * (size_t)n);
    }
}

static void write_slot_16(const struct kv_layer *kv, const struct kernels *k, int head, int slot,
                          const float *key, const float *value)
{
    uint16_t v16[DEVICE_MAX_HEAD_DIM];
    kv_round(k, kv->dtype, (uint16_t *)kv->k + ((size_t)head * kv->cap + slot) * kv->d, key, kv->d);
    kv_round(k, kv->dtype, v16, value, kv->d);
    for (int i = 0; i < kv->d; i++)
        ((uint16_t *)kv->v)[v_index(kv, head, slot, i)] = v16[i];
}

static void write_slot_32(const struct kv_layer *kv, int head, int slot, const float *key,
                          const float *value)
{
    memcpy((float *)kv->k + ((size_t)head * kv->cap + slot) * kv->d, key,
           sizeof(float) * (size_t)kv->d);
    for (int i = 0; i < kv->d; i++)
        ((float *)kv->v)[v_index(kv, head, slot, i)] = value[i];
}

struct kv_op {
    const struct kernels *kernels;
    const struct kv_layer *kv;
    int first_slot;
    const float *k, *v;
};

static void kv_write_rows(void *ctx, int r0, int r1)
{
    struct kv_op *op = ctx;
    const struct kv_layer *kv = op->kv;
    for (int r = r0; r < r1; r++)
        for (int h = 0; h < kv->n_kv; h++) {
            const float *key = op->k + ((size_t)r * kv->n_kv + h) * kv->d;
            const float *value = op->v + ((size_t)r * kv->n_kv + h) * kv->d;
            if (kv->dtype == DTYPE_F32)
                write_slot_32(kv, h, op->first_slot + r, key, value);
            else
                write_slot_16(kv, op->kernels, h, op->first_slot + r, key, value);
        }
}

static void cpu_kv_write(struct device_work *w, const struct kv_layer *kv, int first_slot,
                         const float *k, const float *v, int n)
{
    struct kv_op op = { .kernels = &w->cpu->k, .kv = kv, .first_slot = first_slot, .k = k, .v = v };
    rows_parallel(w, kv_write_rows, &op, n, kv->n_kv * kv->d * 4);
}

static void cpu_kv_move(struct device_work *w, const struct kv_layer *kv, const int *to,
                        const int *from, int n)
{
    size_t size = dtype_row_size(kv->dtype, 1);
    uint8_t *k = kv->k, *v = kv->v;
    (void)w;
    for (int h = 0; h < kv->n_kv; h++)
        for (int m = 0; m < n; m++) {
            size_t base = (size_t)h * kv->cap;
            if (to[m] == from[m])
                continue;
            memcpy(k + (base + to[m]) * kv->d * size, k + (base + from[m]) * kv->d * size,
                   (size_t)kv->d * size);
            for (int i = 0; i < kv->d; i++)
                memcpy(v + v_index(kv, h, to[m], i) * size, v + v_index(kv, h, from[m], i) * size,
                       size);
        }
}

struct kv_copy_op {
    const struct kv_layer *to, *from;
    const int *to_slots, *from_slots;
};

/* Slots [m0, m1) of the lists. V goes one row of its layout at a time: slots lie side by side. */
static void kv_copy_slots(void *ctx, int m0, int m1)
{
    const struct kv_copy_op *op = ctx;
    const struct kv_layer *to = op->to, *from = op->from;
    size_t size = dtype_row_size(to->dtype, 1), row = (size_t)to->d * size;
    for (int h = 0; h < to->n_kv; h++) {
        uint8_t *to_k = (uint8_t *)to->k + (size_t)h * to->cap * row;
        const uint8_t *from_k = (const uint8_t *)from->k + (size_t)h * from->cap * row;
        for (int m = m0; m < m1; m++)
            memcpy(to_k + op->to_slots[m] * row, from_k + op->from_slots[m] * row, row);
        for (int i = 0; i < to->d; i++)
            for (int m = m0; m < m1; m++) {
                size_t t = v_index(to, h, op->to_slots[m], i);
                size_t f = v_index(from, h, op->from_slots[m], i);
                if (to->dtype == DTYPE_F32)
                    ((float *)to->v)[t] = ((const float *)from->v)[f];
                else
                    ((uint16_t *)to->v)[t] = ((const uint16_t *)from->v)[f];
            }
    }
}

static void cpu_kv_copy(struct device_work *w, const struct kv_layer *to,
                        const struct kv_layer *from, const int *to_slots, const int *from_slots,
                        int n)
{
    struct kv_copy_op op = { to, from, to_slots, from_slots };
    rows_parallel(w, kv_copy_slots, &op, n, to->n_kv * to->d * 4);
}

/* ---- the device ---- */

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .work_size = cpu_work_size,
    .work_open = cpu_work_open,
    .work_close = cpu_work_close,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .matmul = cpu_matmul,
    .rope = cpu_rope,
    .kv_write = cpu_kv_write,
    .kv_move = cpu_kv_move,
    .kv_copy = cpu_kv_copy,
    .attention = attention_cpu,
    .attention_columns = attention_columns_cpu,
    .attention_full = attention_full_cpu,
    .silu_mul = cpu_silu_mul,
    .layernorm = cpu_layernorm,
    .gelu = cpu_gelu,
    .blend = cpu_blend,
    .add = cpu_add,
    .gather = cpu_gather,
    .argmax = cpu_argmax,
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
    cpu->dev = (struct device){ .ops = &cpu_ops, .impl = cpu };
    *out = &cpu->dev;
    return PV_OK;
}

void device_close(struct device **dev)
{
    struct cpu_device *cpu;
    if (!*dev)
        return;
    cpu = (*dev)->impl;
    pool_close(&cpu->pool);
    mem_free(cpu);
    *dev = NULL;
}
