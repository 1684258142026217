/* Speed of what check_kernels proves, one thread: products with weights that do not fit in cache
 * (GB/s of weights at 1 row, the cost of 8 rows in units of one), products of prefill (GFLOP/s at
 * 512 rows) and of one attention chunk (256 keys of 64, 14 queries), elements per ns of the rest.
 * Then, on TOWER_THREADS threads of a device, a layer of a vision tower (SigLIP: 1152 wide, 16
 * heads of 72, 729 rows a frame): GFLOP/s of its products and of its attention for one, two and
 * four frames, each time with other weights, so that these come from memory. Words choose dtypes;
 * the reference is timed only when named by --level. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "check.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BENCH_IN = 4096, BENCH_RANGE = 64, BENCH_MIB = 512 };
enum {
    TOWER_THREADS = 2,
    TOWER_ROWS = 729,
    TOWER_FRAMES = 4,
    TOWER_WIDE = 4304,
    TOWER_REPEATS = 8
};

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts); /* one thread, and others may share the CPU */
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Seconds of one product of n rows, the best of several. */
static double time_product(struct check *c, const struct matrix *m, int n, int repeats)
{
    const struct matmul_kernel *k = kernels_matmul(&c->k, m->dtype, m->in);
    float *x = mem_zalloc(sizeof *x * (size_t)n * (size_t)m->in);
    float *y = mem_zalloc(sizeof *y * (size_t)n * (size_t)m->out);
    void *xp = mem_zalloc(k->packed_size(n, m->in)), *scratch = mem_zalloc(k->scratch_size(m->in));
    double best = 1e9;

    for (int i = 0; i < n * m->in; i++)
        x[i] = rng_float(&c->rng);
    for (int rep = 0; rep < repeats; rep++) {
        double start = now();
        k->pack(xp, x, (size_t)m->in, n, m->in, 0, n);
        for (int o = 0; o < m->out; o += BENCH_RANGE)
            k->run(y, (size_t)m->out, xp, n, m, o,
                   m->out - o < BENCH_RANGE ? m->out : o + BENCH_RANGE, scratch);
        double t = now() - start;
        best = t < best ? t : best;
    }
    mem_free(x);
    mem_free(y);
    mem_free(xp);
    mem_free(scratch);
    return best;
}

static double gflops(const struct matrix *m, int n, double seconds)
{
    return 2e-9 * m->out * m->in * n / seconds;
}

/* The reference is so slow that it is timed only for its own sake. */
static bool slow_ok(struct check *c, enum dtype t)
{
    return c->level->flags == 0 || c->k.matmul[t] != &matmul_ref[t];
}

/* A few random rows, repeated. */
static void fill_weights(struct check *c, enum dtype t, void *weights, size_t size)
{
    size_t row_size = dtype_row_size(t, BENCH_IN);
    random_rows(&c->rng, weights, row_size, t, BENCH_IN, 64, false);
    for (size_t done = 64 * row_size; done < size;) {
        size_t step = size - done < done ? size - done : done;
        memcpy((uint8_t *)weights + done, weights, step);
        done += step;
    }
}

static void bench_dtype(struct check *c, enum dtype t, void *weights, size_t size)
{
    size_t row_size = dtype_row_size(t, BENCH_IN);
    int slow = c->level->flags == 0 ? 16 : 1, out = (int)(size / row_size / (size_t)slow);
    struct matrix m = { .dtype = t, .in = BENCH_IN, .data = weights, .row_size = row_size };

    if (!slow_ok(c, t)) {
        printf("  %-5s has no kernel of its own at this level\n", dtype_name(t));
        return;
    }
    fill_weights(c, t, weights, size);
    m.out = out;
    double one = time_product(c, &m, 1, 3), eight = time_product(c, &m, 8, 2);
    m.out = 2048 / slow;
    m.in = 2048;
    m.row_size = dtype_row_size(t, m.in);
    double prefill = time_product(c, &m, 512 / slow, slow > 1 ? 1 : 4);
    struct matrix scores = {
        .dtype = t, .out = 256, .in = 64, .data = weights, .row_size = t == DTYPE_F32 ? 256 : 128
    };
    printf("  %-5s n=1 %6.2f GB/s  n=8 %5.2f x n=1  n=512 %7.1f GFLOP/s", dtype_name(t),
           1e-9 * (double)row_size * out / one, eight / one, gflops(&m, 512 / slow, prefill));
    if (dtype_block(t) == 1)
        printf("  chunk %6.1f GFLOP/s", gflops(&scores, 14, time_product(c, &scores, 14, 50)));
    printf("\n");
}

/* ---- a layer of a vision tower ---- */

struct tower {
    struct check *c;
    enum dtype t;
    const uint8_t *weights;
    size_t size;
    struct device *dev;
    struct device_work *work;
    float *x, *y;
};

static double wall(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static double tower_product(struct tower *b, int n, int in, int out)
{
    struct matrix m = {
        .dtype = b->t, .out = out, .in = in, .row_size = dtype_row_size(b->t, in), .many_rows = true
    };
    struct matmul_job job = { &m, b->y, (size_t)out };
    size_t one = m.row_size * (size_t)out, count = b->size / one;
    double best = 1e9;
    for (size_t i = 0; i < TOWER_REPEATS; i++) {
        m.data = b->weights + i * 7 % count * one;
        double start = wall();
        b->dev->ops->matmul(b->work, &job, 1, b->x, n);
        double t = wall() - start;
        best = t < best ? t : best;
    }
    return gflops(&m, n, best);
}

static double tower_attention(struct tower *b, int frames)
{
    enum { HEADS = 16, D = 72 };
    int bounds[TOWER_FRAMES + 1];
    size_t part = (size_t)(frames * TOWER_ROWS) * HEADS * D;
    struct full_attn_job job = { .out = b->y,
                                 .q = b->x,
                                 .k = b->x + part,
                                 .v = b->x + 2 * part,
                                 .n_heads = HEADS,
                                 .d = D,
                                 .scale = 1 / sqrtf(D),
                                 .dtype = b->t,
                                 .n_segments = frames,
                                 .bounds = bounds };
    double best = 1e9;
    for (int i = 0; i <= frames; i++)
        bounds[i] = i * TOWER_ROWS;
    for (int i = 0; i < TOWER_REPEATS; i++) {
        double start = wall();
        b->dev->ops->attention_full(b->work, &job);
        double t = wall() - start;
        best = t < best ? t : best;
    }
    return 4e-9 * TOWER_ROWS * (double)part / best;
}

static void bench_tower(struct check *c, enum dtype t, void *weights, size_t size)
{
    static const int shapes[][2] = { { 1152, 1152 }, { 1152, TOWER_WIDE }, { TOWER_WIDE, 1152 } };
    struct tower b = { .c = c, .t = t, .weights = weights, .size = size };
    struct work_shape s = { .rows = TOWER_FRAMES * TOWER_ROWS,
                            .in = TOWER_WIDE,
                            .n_heads = 16,
                            .n_kv_heads = 16,
                            .head_dim = 72,
                            .kv_dtype = t,
                            .segment = TOWER_ROWS };
    size_t n = (size_t)TOWER_FRAMES * TOWER_ROWS * TOWER_WIDE;
    b.x = mem_alloc(sizeof(float) * n);
    b.y = mem_alloc(sizeof(float) * n);
    if (!b.x || !b.y || device_cpu_open(&b.dev, TOWER_THREADS, c->level->flags, NULL) ||
        b.dev->ops->work_open(b.dev, &b.work, &s, NULL)) {
        printf("  no memory for a tower\n");
        abort();
    }
    fill_weights(c, t, weights, size);
    for (size_t i = 0; i < n; i++)
        b.x[i] = rng_float(&c->rng);
    memset(b.y, 0, sizeof(float) * n);
    for (int frames = 1; frames <= TOWER_FRAMES; frames *= 2) {
        printf("  %-5s tower, %d threads, %4d rows:", dtype_name(t), TOWER_THREADS,
               frames * TOWER_ROWS);
        for (int i = 0; i < 3; i++)
            printf("  %d->%d %.0f", shapes[i][0], shapes[i][1],
                   tower_product(&b, frames * TOWER_ROWS, shapes[i][0], shapes[i][1]));
        printf("  attention %.0f GFLOP/s\n", tower_attention(&b, frames));
    }
    b.dev->ops->work_close(b.dev, &b.work);
    device_close(&b.dev);
    mem_free(b.x);
    mem_free(b.y);
}

enum small {
    SMALL_RMSNORM,
    SMALL_SILU_MUL,
    SMALL_ADD,
    SMALL_TO_F16,
    SMALL_SOFTMAX,
    SMALL_ARGMAX,
    SMALL_LAYERNORM,
    SMALL_GELU_TANH,
    SMALL_GELU_ERF,
    SMALL_COUNT
};

static void run_small(struct check *c, enum small op, float *a, float *b, int n)
{
    float max;
    switch (op) {
    case SMALL_RMSNORM:
        c->k.rmsnorm(b, a, a, n, 1e-6f);
        break;
    case SMALL_SILU_MUL:
        c->k.silu_mul(b, a, (size_t)n);
        break;
    case SMALL_ADD:
        c->k.add(b, a, (size_t)n);
        break;
    case SMALL_TO_F16:
        c->k.to_f16((uint16_t *)b, a, (size_t)n);
        break;
    case SMALL_SOFTMAX:
        c->k.softmax(b, a, n, n - 3, 0.1f, &max);
        break;
    case SMALL_ARGMAX:
        b[0] = (float)c->k.argmax(a, n);
        break;
    case SMALL_LAYERNORM:
        c->k.layernorm(b, a, a, a, n, 1e-6f);
        break;
    case SMALL_GELU_TANH:
        memcpy(b, a, sizeof *a * (size_t)n); /* again and again it would end in denormals */
        c->k.gelu[GELU_TANH](b, (size_t)n);
        break;
    case SMALL_GELU_ERF:
        memcpy(b, a, sizeof *a * (size_t)n);
        c->k.gelu[GELU_ERF](b, (size_t)n);
        break;
    case SMALL_COUNT:
        break;
    }
}

static void bench_small(struct check *c)
{
    static const char *const names[SMALL_COUNT] = { "rmsnorm",   "silu_mul",  "add",
                                                    "to_f16",    "softmax",   "argmax",
                                                    "layernorm", "gelu_tanh", "gelu_erf" };
    enum { N = 1024, TIMES = 200 };
    static float a[N], b[N];

    printf("  elements per ns:");
    for (int op = 0; op < SMALL_COUNT; op++) {
        double best = 1e9;
        for (int i = 0; i < N; i++)
            a[i] = b[i] = rng_float(&c->rng);
        for (int rep = 0; rep < 20; rep++) {
            double start = now();
            for (int i = 0; i < TIMES; i++)
                run_small(c, (enum small)op, a, b, N);
            double t = now() - start;
            best = t < best ? t : best;
        }
        printf("  %s %.2f", names[op], 1e-9 * N * TIMES / best);
    }
    printf("\n");
}

void bench_kernels(struct check *c)
{
    size_t size = (size_t)BENCH_MIB << 20;
    void *weights = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (weights == MAP_FAILED) {
        printf("  no memory for %zu bytes of weights\n", size);
        return;
    }
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (check_begin(c, "matmul", dtype_name((enum dtype)t)))
            bench_dtype(c, (enum dtype)t, weights, size);
    for (int t = 0; t < DTYPE_COUNT && c->level->flags; t++)
        if (dtype_block((enum dtype)t) == 1 && check_begin(c, "tower", dtype_name((enum dtype)t)))
            bench_tower(c, (enum dtype)t, weights, size);
    munmap(weights, size);
    bench_small(c);
}
