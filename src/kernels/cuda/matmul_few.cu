/* Products of few rows: the numeric plan (how K is divided; depends only on shape and type and
 * fixes the bits), the layout on the GPU (everything else; chosen by a small cost model), and the
 * kernel for F32 weights, where speed does not matter. */
#include "kernels/cuda/matmul_few.h"

#include "base/minmax.h"

enum {
    SPLIT_K = 4480, /* smallest K worth a split of its own */
    MAX_SPLITS = 4,
    WIDE_ROWS = 16384,       /* with so many rows, K is never split; bounds the scratch */
    ONE_ROW_ROWS = 32768,    /* with so many rows, no two warps share rows */
    SMALL_SIDE = 2048,       /* with fewer rows or columns, more warps share rows ... */
    SMALL_SIZE = 4608 << 10, /* ... if the matrix has fewer elements than this */
    PACKED_SUMS = 40 << 10,  /* rows times warps sharing them (matmul_few_packed_hopper.cu) */
    MAX_DEPTH = 8,
    ONE_TILE = 1 << 20,         /* tile_step: each block has one tile */
    SHARED_BYTES = 24 << 20,    /* smaller products leave half of the smem to the next kernel */
    TILE_ROWS_PAD = 16 * 2 * 16 /* most rows by which a job's last tile is too large */
};

/* The cost model's numbers. Bytes per nanosecond: from memory, from L2, into one SM. Nanoseconds:
 * the memory latency that copies in flight must cover. Then, in cycles, the latency of one slot's
 * arithmetic, and the clock in GHz. Measured on an H200; on other GPUs the ranking of the choices
 * should be the same. */
static const double MEMORY_RATE = 4300, L2_RATE = 5500, SM_RATE = 75, LATENCY = 900;
static const double SLOT_LATENCY = 300, CLOCK = 1.7;

/* ---- the numeric plan ---- */

struct few_plan {
    int log_wk, splits;
};

/* The plan for `rows` rows of w (of both matrices in a gated product) with `in` columns. It must
 * not depend on anything else. */
static struct few_plan plan_of(enum dtype t, int rows, int in)
{
    bool wide = rows >= WIDE_ROWS || rows >= 2 * in;
    int slots = slots_of(t, in), splits = 1, log_wk;
    if (!wide && in >= 2 * SPLIT_K)
        splits = in / SPLIT_K < MAX_SPLITS ? in / SPLIT_K : MAX_SPLITS;
    if (wide)
        log_wk = rows >= ONE_ROW_ROWS ? 0 : 1;
    else if (splits > 1)
        log_wk = splits == MAX_SPLITS ? 1 : 2;
    else
        log_wk = (rows < SMALL_SIDE || in < SMALL_SIDE) && (int64_t)rows * in < SMALL_SIZE ? 3 : 2;
    if (log_wk == 3 && few_x_units(t) == 16)
        log_wk = 2; /* x of a stage would not fit */
    while (log_wk > 0 && slots < 1 << log_wk)
        log_wk--;
    return (struct few_plan){ log_wk, splits };
}

/* ---- layout on the GPU ---- */

struct few_layout {
    int mt, nt, warps, depth, blocks, step;
    size_t smem;
    double cost;
};

static size_t smem_limit(const struct cuda_device *gpu)
{
    int kb = gpu->major == 8 && (gpu->minor == 0 || gpu->minor == 7) ? 163
             : gpu->major == 9 || gpu->major == 10                   ? 227
                                                                     : 99;
    return (size_t)(kb - 2) * 1024;
}

static int tiles_of(const struct few_params *p, const struct few_job *j, int mt, int warps)
{
    int octets = (p->gated ? 1 : 2) * mt * (warps >> j->log_wk);
    return (j->octets + octets - 1) / octets;
}

static size_t stage_of(enum dtype t, const struct few_layout *l, int log_wk, size_t *x_at)
{
    *x_at = (size_t)(l->warps * few_warp_size(t, l->mt));
    return *x_at + ((size_t)(l->nt * 8 * few_x_units(t) * 16) << log_wk);
}

/* Set the number of stages that fit into `room` bytes, at most as many as are useful. A depth below
 * 2 means that the layout does not fit. */
static void set_depth(struct few_layout *l, size_t stage, size_t room, int stages, bool alone)
{
    size_t unit = (size_t)(8 * few_sum_stride(l->mt)) * sizeof(float);
    size_t ends = alone ? (size_t)l->warps * unit : 0, sums = (size_t)(l->warps * l->nt) * unit;
    int most = stages + 1 < MAX_DEPTH ? stages + 1 : MAX_DEPTH;
    l->depth = room > ends ? (int)((room - ends) / stage) : 0;
    l->depth = l->depth < most ? l->depth : most;
    if (l->depth < 2 && stages < 2 && room > ends + stage)
        l->depth = 2;
    l->smem = (size_t)l->depth * stage + ends;
    if (!alone)
        l->smem = max_size(l->smem, sums);
    if (l->smem > room)
        l->depth = 0;
}

/* Cycles for which one slot occupies a warp's quarter of an SM: instruction issue or mma, whichever
 * takes longer. */
static double slot_cycles(enum dtype t, int mt, int nt)
{
    bool plain = few_octet_size(t) == 1024;
    int parts = t == DTYPE_F16 ? 8 : slot_elements(t) / QUANT_BLOCK; /* each with one load of x */
    int mma = parts * nt * (t == DTYPE_F16 ? mt : 2 * mt + 2 * (t == DTYPE_Q4_K));
    int unpack = t == DTYPE_Q8_0 ? 60 : t == DTYPE_Q4_0 ? 100 : t == DTYPE_Q4_K ? 120 : 0;
    int scale = plain ? 0 : t == DTYPE_Q4_K ? 8 * mt : 4 * mt;
    int n = 80 + mt * (plain ? 24 : 12 + unpack) + mma + parts * nt * (1 + scale);
    return n > 8 * mma ? n : 8 * mma;
}

/* The load of a layout: bytes of weights, of x, and of one block with both. */
struct few_load {
    double w, x, block;
    int log_wk, stages; /* maximum over the jobs */
    bool alone;
};

static struct few_load load_of(struct few_layout *l, const struct few_params *p, enum dtype t)
{
    double row = (double)p->slots * (few_octet_size(t) + slot_scales(t) / slots_per_scale(t)) / 8;
    double x = (double)p->n * p->in * (t == DTYPE_F16 ? 4 : 2);
    struct few_load load = { .stages = 1 };
    l->blocks = 0;
    for (int i = 0; i < p->n_jobs; i++) {
        const struct few_job *j = &p->job[i];
        int tiles = tiles_of(p, j, l->mt, l->warps), wk = 1 << j->log_wk;
        int stages = (p->slots / j->splits + wk - 1) / wk;
        double block = row * 16 * l->mt * (l->warps / wk) / j->splits;
        load.w += block * tiles * j->splits;
        load.x += x * tiles;
        block += x / j->splits;
        load.block = block > load.block ? block : load.block;
        load.log_wk = j->log_wk > load.log_wk ? j->log_wk : load.log_wk;
        load.stages = stages > load.stages ? stages : load.stages;
        load.alone = load.alone || (j->log_wk == 0 && j->splits == 1);
        l->blocks += tiles * j->splits;
    }
    if (load.alone)
        load.stages = MAX_DEPTH;
    return load;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Fill in the layout for mt, nt and warps, and its cost in ns. Returns false if it is impossible.
 */
static bool lay_out(struct few_layout *l, const struct few_params *p, enum dtype t, size_t limit,
                    int n_sm)
{
    struct few_load load = load_of(l, p, t);
    double cycles = slot_cycles(t, l->mt, l->nt), rate, rounds, sm, l2, memory, busy;
    size_t x_at, stage = stage_of(t, l, load.log_wk, &x_at);
    bool two = l->blocks > n_sm && !load.alone; /* two blocks per SM */
    bool room = two || (load.w < SHARED_BYTES && l->blocks > n_sm / 2);
    set_depth(l, stage, room ? limit / 2 : limit, load.stages, load.alone);
    if (room && l->depth < 3) {
        set_depth(l, stage, limit, load.stages, load.alone);
        two = false;
    }
    if (l->depth < 2)
        return false;
    l->step = load.alone && p->n_jobs == 1 && l->blocks > n_sm ? n_sm : ONE_TILE;
    rounds = (l->blocks + n_sm - 1) / n_sm;
    rate = (double)x_at * (l->depth - 1) / LATENCY *
           (two ? min(l->blocks, 2 * n_sm) : min(l->blocks, n_sm));
    memory = load.w / (rate < MEMORY_RATE ? rate : MEMORY_RATE);
    l2 = (load.w + load.x) / L2_RATE;
    sm = rounds * load.block / SM_RATE;
    busy =
        load.w / l->blocks / (double)few_warp_size(t, l->mt) / CLOCK * /* slots per block */
        larger(cycles / 4 * rounds, (cycles + SLOT_LATENCY) / l->warps *
                                        (two ? (l->blocks + 2 * n_sm - 1) / (2 * n_sm) : rounds));
    l->cost = larger(larger(memory, busy), larger(l2, sm)) + 0.05 * (memory + busy + l2 + sm);
    if (l->depth == 2 && load.stages > 2)
        l->cost *= 1.1; /* no copies in flight while waiting for a stage */
    if (l->step != ONE_TILE)
        l->blocks = n_sm;
    return true;
}

/* Find the cheapest layout. Returns false if so many rows are not possible at once. */
static bool choose(struct few_layout *best, const struct few_params *p, enum dtype t,
                   const struct cuda_device *gpu)
{
    int wk = 1, nt = few_tiles_n(p->n);
    size_t limit = smem_limit(gpu);
    best->cost = -1;
    for (int i = 0; i < p->n_jobs; i++)
        wk = 1 << p->job[i].log_wk > wk ? 1 << p->job[i].log_wk : wk;
    for (int mt = 1; mt <= 2; mt++) {
        for (int warps = wk; warps <= few_max_warps(t, nt); warps += wk) {
            struct few_layout l = { .mt = mt, .nt = nt, .warps = warps };
            if (warps < 4 && 4 <= few_max_warps(t, nt) && wk < 4)
                continue;
            if (lay_out(&l, p, t, limit, gpu->n_sm) && (best->cost < 0 || l.cost < best->cost))
                *best = l;
        }
    }
    return best->cost >= 0;
}

/* ---- scratch ---- */

static size_t partial_floats(int rows, int splits, int n)
{
    return (size_t)(rows + TILE_ROWS_PAD) * (size_t)splits * (size_t)n;
}

size_t few_scratch_size(const struct work_shape *s)
{
    int in = s->in > s->ffn ? s->in : s->ffn, splits = in / SPLIT_K;
    splits = splits < MAX_SPLITS ? splits : MAX_SPLITS;
    size_t floats = splits > 1 ? partial_floats(WIDE_ROWS, splits, FEW_ROWS) : 0;
    return FEW_COUNTERS * sizeof(int) +
           sizeof(float) * max_size(floats, (size_t)PACKED_SUMS * FEW_ROWS);
}

/* ---- F32 weights ---- */

enum { F32_WARPS = 8, F32_COLS = 8 };

struct f32_job {
    const float *w, *x, *bias, *gate;
    void *y;
    size_t y_stride;
    int n, in, out, stride;
    bool add, y_bf16;
};

/* One warp per row of w, eight rows of x at a time; a lane takes every 32nd element. */
__global__ void __launch_bounds__(F32_WARPS * 32) few_f32_kernel(const __grid_constant__ f32_job j)
{
    int row = (int)blockIdx.x * F32_WARPS + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    dep_launch();
    dep_wait();
    if (row >= j.out)
        return;
    for (int c0 = 0; c0 < j.n; c0 += F32_COLS) {
        float acc[F32_COLS] = {};
        for (int k = lane; k < j.in; k += 32) {
            float w = __ldg(j.w + (size_t)row * (size_t)j.stride + (size_t)k);
#pragma unroll
            for (int c = 0; c < F32_COLS; c++)
                if (c0 + c < j.n)
                    acc[c] = fmaf(w, j.x[(size_t)(c0 + c) * (size_t)j.in + (size_t)k], acc[c]);
        }
#pragma unroll
        for (int c = 0; c < F32_COLS; c++) {
            size_t at = (size_t)(c0 + c) * j.y_stride + (size_t)row;
            float v = acc[c];
            for (int i = 16; i; i >>= 1)
                v += __shfl_xor_sync(0xffffffffu, v, i);
            if (lane || c0 + c >= j.n)
                continue;
            if (j.bias)
                v += j.bias[row];
            if (j.gate) {
                float g = j.gate[(size_t)(c0 + c) * (size_t)j.out + (size_t)row];
                v = g / (1.0f + expf(-g)) * v;
            }
            if (j.y_bf16)
                ((uint16_t *)j.y)[at] = (uint16_t)bf16_bits(v);
            else
                ((float *)j.y)[at] = j.add ? ((float *)j.y)[at] + v : v;
        }
    }
}

static void run_f32(struct device_work *w, const struct few_params *p)
{
    for (int i = 0; i < p->n_jobs; i++) {
        const struct few_job *j = &p->job[i];
        struct f32_job f = { .w = (const float *)j->w[0],
                             .x = (const float *)p->x,
                             .bias = j->bias[0],
                             .gate = j->gate,
                             .y = j->y,
                             .y_stride = j->y_stride,
                             .n = p->n,
                             .in = p->in,
                             .out = j->out,
                             .stride = (int)p->row_units * 4,
                             .add = p->add,
                             .y_bf16 = p->y_bf16 };
        work_check(w,
                   launch(few_f32_kernel, dim3((unsigned)((j->out + F32_WARPS - 1) / F32_WARPS)),
                          dim3(F32_WARPS * 32), 0, w->stream, f),
                   "matmul_few");
    }
}

/* ---- launching ---- */

static cudaError_t run(const struct few_params *p, enum dtype t, const struct few_layout *l,
                       cudaStream_t stream)
{
    switch (t) {
    case DTYPE_BF16:
        return few_run_bf16(p, l->mt, l->nt, l->blocks, l->smem, stream);
    case DTYPE_F16:
        return few_run_f16(p, l->mt, l->nt, l->blocks, l->smem, stream);
    case DTYPE_Q8_0:
        return few_run_q8_0(p, l->mt, l->nt, l->blocks, l->smem, stream);
    case DTYPE_Q4_0:
        return few_run_q4_0(p, l->mt, l->nt, l->blocks, l->smem, stream);
    case DTYPE_Q4_K:
        return few_run_q4_k(p, l->mt, l->nt, l->blocks, l->smem, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

/* Run all rows of x, as many at a time as fit. Advances the jobs' y. */
static void run_rows(struct device_work *w, struct few_params *p, enum dtype t, int n)
{
    size_t x_size = t == DTYPE_F16 || t == DTYPE_F32 ? 4 : 2, y_size = p->y_bf16 ? 2 : 4;
    struct few_params q = *p;
    p->counter = (int *)w->few_scratch;
    p->partial = (float *)(p->counter + FEW_COUNTERS);
    for (int row = 0, most = FEW_ROWS; row < n; row += q.n) {
        struct few_layout l = {};
        size_t x_at, partial = 0;
        int counter = 0, block = 0, log_wk = 0;
        q = *p;
        q.n = n - row < most ? n - row : most;
        q.x = (const uint8_t *)p->x + (size_t)row * (size_t)p->in * x_size;
        for (int i = 0; i < q.n_jobs; i++) {
            q.job[i].y = (uint8_t *)p->job[i].y + (size_t)row * p->job[i].y_stride * y_size;
            if (q.job[i].gate)
                q.job[i].gate += (size_t)row * (size_t)q.job[i].out;
        }
        if (t == DTYPE_F32) {
            run_f32(w, &q);
            continue;
        }
        while (!choose(&l, &q, t, w->gpu)) {
            if (most == 8)
                return work_check(w, cudaErrorInvalidConfiguration, "matmul_few");
            most /= 2;
            q.n = q.n < most ? q.n : most;
        }
        for (int i = 0; i < q.n_jobs; i++) {
            struct few_job *j = &q.job[i];
            j->tiles = tiles_of(&q, j, l.mt, l.warps);
            j->first_block = block;
            j->counter = counter;
            j->partial = partial;
            block += j->tiles * j->splits;
            log_wk = j->log_wk > log_wk ? j->log_wk : log_wk;
            if (j->splits > 1) {
                counter += j->tiles;
                partial += (size_t)j->tiles * (size_t)j->splits * (size_t)q.n *
                           (size_t)(16 * l.mt * (l.warps >> j->log_wk));
            }
        }
        if (counter > FEW_COUNTERS ||
            sizeof(int) * FEW_COUNTERS + sizeof(float) * partial > w->few_size)
            return work_check(w, cudaErrorInvalidConfiguration, "matmul_few: scratch");
        q.warps = l.warps;
        q.depth = l.depth;
        q.stage_size = (int)stage_of(t, &l, log_wk, &x_at);
        q.x_at = (int)x_at;
        q.tile_step = l.step;
        work_check(w, run(&q, t, &l, w->stream), "matmul_few");
    }
}

static struct few_params params_of(const struct cuda_matrix *m, const void *x)
{
    size_t x_size = m->dtype == DTYPE_F16 || m->dtype == DTYPE_F32 ? 4 : 2;
    size_t size = m->dtype == DTYPE_F32 ? 4 : 2;
    return (struct few_params){ .in = m->in,
                                .slots = slots_of(m->dtype, m->in),
                                .row_units = (uint32_t)((size_t)m->stride * size / 16),
                                .x = x,
                                .aligned =
                                    (size_t)m->in * x_size % 16 == 0 && ((uintptr_t)x & 15) == 0 };
}

static struct few_job job_of(const struct matrix *m0, const struct matrix *m1, void *y,
                             size_t y_stride)
{
    const struct cuda_matrix *c0 = cuda_of(m0), *c1 = cuda_of(m1);
    struct few_plan plan = plan_of(c0->dtype, m0 == m1 ? c0->whole : 2 * c0->whole, c0->in);
    return (struct few_job){ .w = { (const uint8_t *)c0->w, (const uint8_t *)c1->w },
                             .scale = { (const uint8_t *)c0->scale, (const uint8_t *)c1->scale },
                             .bias = { m0->bias, m1->bias },
                             .y = y,
                             .y_stride = y_stride,
                             .out = c0->out,
                             .octets = octets_of(c0->out),
                             .log_wk = plan.log_wk,
                             .splits = plan.splits };
}

enum dtype few_x_dtype(const struct matrix *m)
{
    enum dtype t = cuda_of(m)->dtype;
    return t == DTYPE_F32 || t == DTYPE_F16 ? DTYPE_F32 : DTYPE_BF16;
}

bool few_takes_norm(const struct device_work *w, const struct matrix *const *m, int n)
{
    if (!few_hopper_ready(w) || n > DEVICE_MAX_JOBS)
        return false;
    for (int i = 0; i < n; i++)
        if ((cuda_of(m[i])->dtype != DTYPE_BF16 && !has_blocks(cuda_of(m[i])->dtype)) ||
            cuda_of(m[i])->in % 64 || cuda_of(m[i])->whole % 64)
            return false;
    return true;
}

/* Whether the kernel for small matrices should be used: decided by the first job, or, if the jobs
 * run together, by all. */
static bool jobs_thin(const struct matmul_job *jobs, int n, bool together)
{
    for (int i = 1; i < n && together; i++)
        if (!few_is_thin(jobs[i].w))
            return false;
    return few_is_thin(jobs[0].w);
}

/* Run the leading jobs that have the same type with Hopper's own kernels. Returns their number, 0
 * if these kernels do not support them. With a norm all run together, since one launch costs less
 * than two. */
static int jobs_hopper(struct device_work *w, const struct matmul_job *jobs, int n_jobs,
                       const void *x, int n, bool add, const struct few_norm *norm)
{
    struct few_call c = {};
    bool thin = jobs_thin(jobs, n_jobs, norm != NULL);
    if (norm)
        c.norm = *norm;
    c.in = jobs[0].w->in;
    c.n = n;
    c.x = x;
    c.add = add;
    for (int i = 0; i < n_jobs && i < DEVICE_MAX_JOBS; i++) {
        if (cuda_of(jobs[i].w)->dtype != cuda_of(jobs[0].w)->dtype ||
            (!norm && few_is_thin(jobs[i].w) != thin))
            break;
        c.w[i] = jobs[i].w;
        c.y[i] = jobs[i].y;
        c.y_stride[i] = jobs[i].y_stride;
        c.n_jobs++;
    }
    return (thin && few_thin(w, &c)) || few_hopper(w, &c) || few_packed_hopper(w, &c) ? c.n_jobs
                                                                                      : 0;
}

void matmul_few_normed(struct device_work *w, const struct matmul_job *jobs, int n_jobs,
                       const void *x, int n, bool add, const struct few_norm *norm)
{
    for (int first = 0, done; first < n_jobs; first += done) {
        done = jobs_hopper(w, jobs + first, n_jobs - first, x, n, add, norm);
        if (done == 0)
            return work_check(w, cudaErrorInvalidValue, "a product with a norm");
    }
}

void matmul_few(struct device_work *w, const struct matmul_job *jobs, int n_jobs, const void *x,
                int n, bool add)
{
    for (int first = 0, end; first < n_jobs; first = end) {
        const struct cuda_matrix *m = cuda_of(jobs[first].w);
        struct few_params p = params_of(m, x);
        int split_rows = 0;
        end = first + jobs_hopper(w, jobs + first, n_jobs - first, x, n, add, NULL);
        if (end > first)
            continue;
        p.add = add;
        for (end = first; end < n_jobs && cuda_of(jobs[end].w)->dtype == m->dtype &&
                          (end == first || !few_is_thin(jobs[end].w));
             end++) {
            struct few_job j = job_of(jobs[end].w, jobs[end].w, jobs[end].y, jobs[end].y_stride);
            split_rows += j.splits > 1 ? j.out + TILE_ROWS_PAD : 0;
            if (end > first && (split_rows > WIDE_ROWS || p.n_jobs == DEVICE_MAX_JOBS))
                break;
            p.job[p.n_jobs++] = j;
        }
        run_rows(w, &p, m->dtype, n);
    }
}

static struct few_call gated_call(const struct matrix *gate, const struct matrix *up, void *y,
                                  enum dtype y_dtype, const void *x, int n)
{
    struct few_call c = {};
    c.w[0] = gate;
    c.w[1] = up;
    c.y[0] = y;
    c.y_stride[0] = (size_t)cuda_of(gate)->out;
    c.n_jobs = 2;
    c.in = gate->in;
    c.n = n;
    c.x = x;
    c.gated = true;
    c.y_bf16 = y_dtype == DTYPE_BF16;
    return c;
}

void matmul_few_gated_normed(struct device_work *w, const struct matrix *gate,
                             const struct matrix *up, void *y, enum dtype y_dtype, const void *x,
                             int n, const struct few_norm *norm)
{
    struct few_call c = gated_call(gate, up, y, y_dtype, x, n);
    c.norm = *norm;
    if (!few_narrow(w, &c) && !few_hopper(w, &c) && !few_packed_hopper(w, &c))
        work_check(w, cudaErrorInvalidValue, "a product with a norm");
}

void matmul_few_gated(struct device_work *w, const struct matrix *gate, const struct matrix *up,
                      void *y, enum dtype y_dtype, const void *x, int n)
{
    const struct cuda_matrix *g = cuda_of(gate), *u = cuda_of(up);
    struct few_params p = params_of(u, x);
    struct few_call c = gated_call(gate, up, y, y_dtype, x, n);
    if (few_narrow(w, &c) || few_hopper(w, &c) || few_packed_hopper(w, &c))
        return;
    bool together = g->dtype == u->dtype && g->dtype != DTYPE_F32;
    p.n_jobs = 1;
    if (together) {
        p.gated = true;
        p.job[0] = job_of(gate, up, y, (size_t)g->out);
    } else { /* the types differ: two products */
        struct matmul_job first = { gate, (float *)w->mid2, (size_t)g->out };
        matmul_few(w, &first, 1, x, n, false);
        p.job[0] = job_of(up, up, y, (size_t)u->out);
        p.job[0].gate = (const float *)w->mid2;
    }
    p.y_bf16 = y_dtype == DTYPE_BF16;
    run_rows(w, &p, u->dtype, n);
}
