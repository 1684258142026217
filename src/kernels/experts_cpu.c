/* The experts of a sparse layer (mixture of experts) on the CPU.
 *
 * One parallel region of the thread pool does everything, with a barrier between phases: the
 * router's product, the choice of each row's experts, and then the products of all used experts,
 * each with the rows that use it. A (row, expert) combination is called a pair. Pairs are sorted by
 * expert, so an expert's rows lie together and its weights are read once; weights of unused experts
 * are never read. The work items of a phase are panels of outputs of all these experts, so one row
 * with eight experts keeps all threads busy without a barrier per expert.
 *
 * The row-invariant kernels of the table compute each pair, and the results of a row's pairs are
 * added in ascending order of their experts. So a row's result does not depend on what other rows
 * use. */
#include "kernels/device_cpu.h"

#include "base/minmax.h"

#include <string.h>

enum { SUM_COLUMNS = 512 }; /* columns per work item when results are added */

/* Phases whose work items belong to groups of rows (struct group). PACK_UP and RUN_UP run only if
 * gate and up of some expert need different kernels; otherwise RUN_GATE computes up too. */
enum phase { PACK_GATE, RUN_GATE, PACK_UP, RUN_UP, PACK_DOWN, RUN_DOWN, PHASE_COUNT };

/* A used expert with its rows. */
struct group {
    int expert;
    int first, n;                          /* range of its pairs */
    const struct matmul_kernel *kernel[3]; /* of gate, up, down */
    size_t packed[2];                      /* offsets of its packed inputs: of gate/up, of down */
    int item[PHASE_COUNT];                 /* its first item; group[n_groups]: the total */
};

struct expert_scratch {
    float *logits;       /* [rows, n_experts] */
    int *expert;         /* [rows, n_used], ascending */
    float *weight;       /* [rows, n_used] */
    int *pair;           /* [rows, n_used]: index of the pair */
    int *row;            /* [pairs]: row of the pair */
    int *first;          /* [n_experts + 1]: first pair of each expert */
    struct group *group; /* [used experts + 1] */
    float *gate, *up;    /* [pairs, ffn] */
    float *wide;         /* [pairs, hidden]: inputs, later results */
    uint8_t *packed;     /* inputs of products, packed for the kernels */
};

struct region {
    struct device_work *w;
    struct expert_scratch *s;
    const struct expert_weights *e;
    const struct matmul_kernel *router;
    const float *x;
    float *y;
    int n, hidden, ffn, n_groups;
    bool split; /* gate and up need different kernels */
    _Atomic int chosen;
    struct work_queue pack, run, choose, phase[PHASE_COUNT], sum;
};

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* ---- scratch ---- */

/* Upper bound on the bytes that `pairs` packed rows in at most `groups` groups need, whichever
 * kernels are used. Computed from a line a + b n that lies above every kernel's packed size of n
 * rows. */
static size_t packed_bound(const struct cpu_device *cpu, int rows, size_t pairs, size_t groups,
                           int in)
{
    size_t most_slope = 0, most_above = 0;
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const struct matmul_kernel *each[] = { cpu->k.matmul[t], cpu->k.matmul_any[t],
                                               cpu->k.matmul_repacked[t] };
        for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
            size_t slope;
            if (!each[i])
                continue;
            slope = each[i]->packed_size(rows, in) / (size_t)rows + 1;
            most_slope = slope > most_slope ? slope : most_slope;
            for (int n = 1; n <= rows; n++) {
                size_t size = each[i]->packed_size(n, in), line = slope * (size_t)n;
                if (size > line && size - line > most_above)
                    most_above = size - line;
            }
        }
    }
    return groups * arena_cost(most_above + MEM_ALIGN) + pairs * most_slope;
}

static size_t carve(const struct cpu_device *cpu, const struct work_shape *s,
                    struct expert_scratch *to, void *mem, size_t cap)
{
    size_t rows = (size_t)s->rows, experts = (size_t)s->n_experts;
    size_t pairs = rows * (size_t)s->n_used, groups = pairs < experts ? pairs : experts;
    size_t in = packed_bound(cpu, s->rows, pairs, groups, s->hidden);
    size_t mid = packed_bound(cpu, s->rows, pairs, groups, s->expert_ffn);
    const struct mem_part parts[] = {
        { &to->logits, sizeof(float) * rows * experts },
        { &to->expert, sizeof(int) * pairs },
        { &to->weight, sizeof(float) * pairs },
        { &to->pair, sizeof(int) * pairs },
        { &to->row, sizeof(int) * pairs },
        { &to->first, sizeof(int) * (experts + 1) },
        { &to->group, sizeof(struct group) * (groups + 1) },
        { &to->gate, sizeof(float) * pairs * (size_t)s->expert_ffn },
        { &to->up, sizeof(float) * pairs * (size_t)s->expert_ffn },
        { &to->wide, sizeof(float) * pairs * (size_t)s->hidden },
        { &to->packed, in > mid ? in : mid },
    };
    return parts_carve(parts, sizeof parts / sizeof *parts, mem, cap);
}

size_t experts_size(const struct cpu_device *cpu, const struct work_shape *s)
{
    struct expert_scratch none;
    return s->n_experts > 0 ? arena_cost(sizeof none) + carve(cpu, s, &none, NULL, 0) : 0;
}

struct expert_scratch *experts_scratch(const struct cpu_device *cpu, const struct work_shape *s,
                                       void *mem)
{
    struct expert_scratch *x = mem;
    size_t head = arena_cost(sizeof *x);
    carve(cpu, s, x, (uint8_t *)mem + head, experts_size(cpu, s) - head);
    return x;
}

/* ---- routing ---- */

/* Sort pairs by expert, then by row, and make the groups. Returns the number of groups: experts
 * that are used and whose weights are on this device. */
static int sort_pairs(struct region *g)
{
    struct expert_scratch *s = g->s;
    int n = g->n * g->e->used, count[DEVICE_MAX_EXPERTS + 1] = { 0 }, n_groups = 0;
    int own0 = g->e->share ? g->e->own0 : 0, own1 = g->e->share ? g->e->own1 : g->e->n;
    for (int i = 0; i < n; i++)
        count[s->expert[i] + 1]++;
    for (int i = 0; i < g->e->n; i++) {
        if (count[i + 1] > 0 && i >= own0 && i < own1)
            s->group[n_groups++] =
                (struct group){ .expert = i, .first = count[i], .n = count[i + 1] };
        count[i + 1] += count[i];
    }
    memcpy(s->first, count, sizeof *s->first * (size_t)(g->e->n + 1));
    for (int i = 0; i < n; i++) {
        int at = count[s->expert[i]]++;
        s->pair[i] = at;
        s->row[at] = i / g->e->used;
    }
    return n_groups;
}

static size_t packed_size(const struct matmul_kernel *k, int n, int in)
{
    return arena_cost(k->packed_size(n, in));
}

/* Find the kernels of each group, the place of its packed rows, and the items of every phase. If
 * gate and up use the same kernel they share the packed rows; otherwise up's rows replace gate's.
 */
static void plan_groups(struct region *g)
{
    struct group *end = &g->s->group[g->n_groups];
    int items[PHASE_COUNT] = { 0 };
    size_t in = 0, mid = 0;
    g->split = false;
    for (struct group *p = g->s->group; p < end; p++) {
        const struct matrix *m[3] = { &g->e->gate[p->expert], &g->e->up[p->expert],
                                      &g->e->down[p->expert] };
        for (int i = 0; i < 3; i++)
            p->kernel[i] = kernels_matmul_for(&g->w->cpu->k, m[i]);
        g->split = g->split || p->kernel[0] != p->kernel[1];
        p->packed[0] = in;
        p->packed[1] = mid;
        size_t gate = packed_size(p->kernel[0], p->n, g->hidden);
        size_t up = packed_size(p->kernel[1], p->n, g->hidden);
        in += gate > up ? gate : up;
        mid += packed_size(p->kernel[2], p->n, g->ffn);
    }
    for (struct group *p = g->s->group; p < end; p++) {
        int panels = divide_up(g->ffn, matmul_panel(p->kernel[0], p->n));
        const int more[PHASE_COUNT] = {
            [PACK_GATE] = divide_up(p->n, p->kernel[0]->row_step),
            [RUN_GATE] = g->split ? panels : 2 * panels,
            [PACK_UP] = divide_up(p->n, p->kernel[1]->row_step),
            [RUN_UP] = divide_up(g->ffn, matmul_panel(p->kernel[1], p->n)),
            [PACK_DOWN] = divide_up(p->n, p->kernel[2]->row_step),
            [RUN_DOWN] = divide_up(g->hidden, matmul_panel(p->kernel[2], p->n)),
        };
        for (int i = 0; i < PHASE_COUNT; i++) {
            p->item[i] = items[i];
            items[i] += more[i];
        }
    }
    memcpy(end->item, items, sizeof items);
    for (int i = 0; i < PHASE_COUNT; i++)
        work_init(&g->phase[i], items[i]);
}

/* Report numbers that are not finite: the choice of experts, or rounding to int8 before a product,
 * would hide them. */
static void look_at(struct region *g, const float *x, int n)
{
    if (!row_finite_cpu(x, n))
        atomic_store_explicit(&g->w->not_finite, true, memory_order_relaxed);
}

/* Choose the experts of all rows; each free thread takes the next row. The last thread to finish
 * sorts the pairs and plans the products. */
static void choose_experts(struct region *g, int n_threads)
{
    struct expert_scratch *s = g->s;
    int used = g->e->used;
    for (int r = work_next(&g->choose); r >= 0; r = work_next(&g->choose)) {
        const float *logits = s->logits + (size_t)r * g->e->n;
        look_at(g, logits, g->e->n);
        g->w->cpu->k.route(s->expert + (size_t)r * used, s->weight + (size_t)r * used, logits,
                           g->e->n, used, g->e->normed);
    }
    if (atomic_fetch_add_explicit(&g->chosen, 1, memory_order_acq_rel) < n_threads - 1)
        return;
    g->n_groups = sort_pairs(g);
    plan_groups(g);
}

/* ---- the products ---- */

/* The group that an item belongs to. */
static const struct group *group_of(const struct region *g, enum phase phase, int item)
{
    int lo = 0, hi = g->n_groups - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (g->s->group[mid].item[phase] <= item)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &g->s->group[lo];
}

/* Pack the rows of one work item for the kernel of matrix m (0 gate, 1 up, 2 down). */
static void pack_item(struct region *g, enum phase phase, int m, int item)
{
    const struct group *p = group_of(g, phase, item);
    const struct matmul_kernel *k = p->kernel[m];
    struct expert_scratch *s = g->s;
    int r0 = (item - p->item[phase]) * k->row_step, r1 = min_int(p->n, r0 + k->row_step);
    int in = m == 2 ? g->ffn : g->hidden;
    float *rows = (m == 2 ? s->gate : s->wide) + (size_t)p->first * (size_t)in;
    if (m == 2) {
        g->w->cpu->k.silu_mul(rows + (size_t)r0 * (size_t)in,
                              s->up + (size_t)(p->first + r0) * (size_t)in,
                              (size_t)(r1 - r0) * (size_t)in);
        look_at(g, rows + (size_t)r0 * (size_t)in, (r1 - r0) * in);
    }
    for (int r = r0; r < r1 && phase == PACK_GATE; r++)
        memcpy(rows + (size_t)r * (size_t)in, g->x + (size_t)s->row[p->first + r] * (size_t)in,
               sizeof(float) * (size_t)in);
    k->pack(s->packed + p->packed[m == 2], rows, (size_t)in, p->n, in, r0, r1);
}

/* Compute panels [a, b) of the outputs of one matrix of a group. */
static void run_panels(struct region *g, const struct group *p, int m, int a, int b, void *scratch)
{
    const struct expert_weights *e = g->e;
    const struct matrix *w = m == 0   ? &e->gate[p->expert]
                             : m == 1 ? &e->up[p->expert]
                                      : &e->down[p->expert];
    struct expert_scratch *s = g->s;
    float *y = m == 0 ? s->gate : m == 1 ? s->up : s->wide;
    int panel = matmul_panel(p->kernel[m], p->n);
    if (a < b)
        p->kernel[m]->run(y + (size_t)p->first * (size_t)w->out, (size_t)w->out,
                          s->packed + p->packed[m == 2], p->n, w, a * panel,
                          min_int(w->out, b * panel), scratch);
}

/* Run items [begin, end) of a RUN_ phase, which may belong to several groups. */
static void run_items(struct region *g, enum phase phase, int begin, int end, void *scratch)
{
    int m = phase == RUN_GATE ? 0 : phase == RUN_UP ? 1 : 2;
    const struct group *p = group_of(g, phase, begin);
    for (; p < g->s->group + g->n_groups && p->item[phase] < end; p++) {
        int all = p[1].item[phase] - p->item[phase];
        int a = begin > p->item[phase] ? begin - p->item[phase] : 0;
        int b = min_int(end - p->item[phase], all);
        int half = phase == RUN_GATE && !g->split ? all / 2 : all;
        run_panels(g, p, m, min_int(a, half), min_int(b, half), scratch);
        if (half < all)
            run_panels(g, p, 1, a > half ? a - half : 0, b > half ? b - half : 0, scratch);
    }
}

static void multiply(struct region *g, enum phase pack, enum phase run, int m, int thread,
                     int n_threads)
{
    int begin, end;
    for (int i = work_next(&g->phase[pack]); i >= 0; i = work_next(&g->phase[pack]))
        pack_item(g, pack, m, i);
    pool_barrier(g->w->pool);
    while (work_range(&g->phase[run], n_threads, &begin, &end))
        run_items(g, run, begin, end, work_thread_mem(g->w, thread));
    pool_barrier(g->w->pool);
}

/* Add up the results of a row's experts for SUM_COLUMNS columns. */
static void sum_item(struct region *g, int item)
{
    int parts = divide_up(g->hidden, SUM_COLUMNS), used = g->e->used;
    int r = item / parts, c = item % parts * SUM_COLUMNS, n = min_int(SUM_COLUMNS, g->hidden - c);
    float *y = g->y + (size_t)r * (size_t)g->hidden + c;
    memset(y, 0, sizeof *y * (size_t)n);
    for (int k = 0; k < used; k++) {
        size_t i = (size_t)r * (size_t)used + (size_t)k;
        g->w->cpu->k.scale_add(y, 1, g->s->wide + (size_t)g->s->pair[i] * (size_t)g->hidden + c,
                               g->s->weight[i], n);
    }
}

static void sum_rows(void *arg, int thread, int n_threads)
{
    struct region *g = arg;
    (void)thread, (void)n_threads;
    for (int i = work_next(&g->sum); i >= 0; i = work_next(&g->sum))
        sum_item(g, i);
}

static void region_run(void *arg, int thread, int n_threads)
{
    struct region *g = arg;
    const struct matmul_kernel *k = g->router;
    int panel = matmul_panel(k, g->n);
    for (int i = work_next(&g->pack); i >= 0; i = work_next(&g->pack))
        k->pack(g->w->packed, g->x, (size_t)g->hidden, g->n, g->hidden, i * k->row_step,
                min_int(g->n, (i + 1) * k->row_step));
    pool_barrier(g->w->pool);
    for (int i = work_next(&g->run); i >= 0; i = work_next(&g->run))
        k->run(g->s->logits, (size_t)g->e->n, g->w->packed, g->n, &g->e->router, i * panel,
               min_int(g->e->n, (i + 1) * panel), work_thread_mem(g->w, thread));
    pool_barrier(g->w->pool);
    choose_experts(g, n_threads);
    pool_barrier(g->w->pool);
    multiply(g, PACK_GATE, RUN_GATE, 0, thread, n_threads);
    if (g->split)
        multiply(g, PACK_UP, RUN_UP, 1, thread, n_threads);
    multiply(g, PACK_DOWN, RUN_DOWN, 2, thread, n_threads);
    if (!g->e->share)
        sum_rows(g, thread, n_threads);
}

void experts_cpu(struct device_work *w, float *y, const struct expert_weights *e, const float *x,
                 int n)
{
    struct region g = { .w = w,
                        .s = w->experts,
                        .e = e,
                        .router = kernels_matmul_for(&w->cpu->k, &e->router),
                        .x = x,
                        .y = y,
                        .n = n,
                        .hidden = e->router.in,
                        .ffn = e->gate[0].out };
    work_init(&g.pack, divide_up(n, g.router->row_step));
    work_init(&g.run, divide_up(e->n, matmul_panel(g.router, n)));
    work_init(&g.choose, n);
    work_init(&g.sum, n * divide_up(g.hidden, SUM_COLUMNS));
    atomic_init(&g.chosen, 0);
    pool_run(w->pool, region_run, &g);
    if (e->share) {
        e->share(e->share_ctx, w->experts->wide, w->experts->first);
        pool_run(w->pool, sum_rows, &g);
    }
}
