/* Attention of segments: against the formula in double precision for heads of many sizes, and a
 * segment alone against itself among others, on any number of threads, bit for bit. */
#include "kernels/device_cpu.h"

#include "base/rng.h"
#include "rig.h"
#include "tensor/half.h"

#include <math.h>

enum { MAX_SEGMENTS = 8, SAMPLES = 12 };

/* Heads of the families (72, 80), of every kind of tail, and segments that are shorter than a
 * tile, end a chunk, and take more than one item. */
static const struct layout {
    int n_heads, d, n_segments;
    int bounds[MAX_SEGMENTS + 1];
} layouts[] = {
    { 2, 72, 5, { 0, 1, 5, 69, 199, 330 } },
    { 3, 80, 6, { 0, 64, 128, 132, 148, 156, 300 } },
    { 1, 20, 2, { 0, 780, 800 } },
    { 3, 16, 3, { 0, 256, 256, 300 } }, /* one is empty */
    { 2, 8, 2, { 0, 257, 260 } },
    { 5, 6, 1, { 0, 33 } },
    { 1, 256, 2, { 0, 70, 71 } },
    { 2, 64, 1, { 0, 192 } },
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

static const struct {
    enum dtype t;
    double tolerance; /* with BF16 queries and probabilities are rounded too */
} types[] = { { DTYPE_F32, 5e-6 }, { DTYPE_F16, 4e-3 }, { DTYPE_BF16, 0.03 } };

struct rows {
    const struct layout *l;
    int n;
    float *q, *k, *v, *out;
};

static size_t rows_size(const struct rows *r)
{
    return (size_t)r->n * (size_t)r->l->n_heads * (size_t)r->l->d;
}

static void rows_open(struct rows *r, const struct layout *l, struct rng *rng)
{
    *r = (struct rows){ .l = l, .n = l->bounds[l->n_segments] };
    size_t n = rows_size(r);
    float **each[] = { &r->q, &r->k, &r->v, &r->out };
    for (int a = 0; a < 4; a++) {
        *each[a] = malloc(sizeof(float) * n);
        for (size_t i = 0; i < n; i++)
            (*each[a])[i] = rng_normal(rng);
    }
}

static void rows_close(struct rows *r)
{
    free(r->q);
    free(r->k);
    free(r->v);
    free(r->out);
}

static bool whole_heads = true;

/* Without kernels that take a whole head, if these are not wanted. */
static void choose_kernel(struct device *dev, struct attn_kernel *chunks, enum dtype t)
{
    struct cpu_device *cpu = dev->impl;
    if (whole_heads || !cpu->k.attn[t])
        return;
    *chunks = *cpu->k.attn[t];
    chunks->head = NULL;
    cpu->k.attn[t] = chunks;
}

/* Segments [s0, s1) as a job of their own, into out. */
static void run(struct rows *r, float *out, enum dtype t, int level, int threads, int s0, int s1)
{
    const struct layout *l = r->l;
    int row0 = l->bounds[s0], bounds[MAX_SEGMENTS + 1];
    size_t at = (size_t)row0 * (size_t)l->n_heads * (size_t)l->d;
    struct work_shape shape = { .rows = l->bounds[s1] - row0,
                                .in = l->n_heads * l->d,
                                .n_heads = l->n_heads,
                                .n_kv_heads = l->n_heads,
                                .head_dim = l->d,
                                .kv_dtype = t };
    struct full_attn_job job = { .out = out,
                                 .q = r->q + at,
                                 .k = r->k + at,
                                 .v = r->v + at,
                                 .n_heads = l->n_heads,
                                 .d = l->d,
                                 .scale = 1 / sqrtf((float)l->d),
                                 .dtype = t,
                                 .n_segments = s1 - s0,
                                 .bounds = bounds };
    struct device *dev = NULL;
    struct device_work *w = NULL;
    struct attn_kernel chunks;
    for (int s = s0; s <= s1; s++) {
        bounds[s - s0] = l->bounds[s] - row0;
        if (s > s0 && l->bounds[s] - l->bounds[s - 1] > shape.segment)
            shape.segment = l->bounds[s] - l->bounds[s - 1];
    }
    if (CHECK(!device_cpu_open(&dev, threads, cpu_levels[level].flags, NULL))) {
        choose_kernel(dev, &chunks, t);
        if (CHECK(!dev->ops->work_open(dev, &w, &shape, NULL)))
            dev->ops->attention_full(w, &job);
    }
    dev->ops->work_close(dev, &w);
    device_close(&dev);
}

static double rounded(enum dtype t, float x)
{
    if (t == DTYPE_F16)
        return f16_to_f32(f16_from_f32(x));
    return t == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(x)) : x;
}

/* How far one row and head is from the formula. */
static double row_error(const struct rows *r, enum dtype t, int s, int row, int head)
{
    const struct layout *l = r->l;
    size_t d = (size_t)l->d, stride = (size_t)l->n_heads * d, at = (size_t)head * d;
    int first = l->bounds[s], n = l->bounds[s + 1] - first;
    double *p = malloc(sizeof *p * (size_t)n), top = -INFINITY, sum = 0, worst = 0;
    for (int i = 0; i < n; i++) {
        const float *k = r->k + (size_t)(first + i) * stride + at;
        p[i] = 0;
        for (size_t j = 0; j < d; j++)
            p[i] += r->q[(size_t)row * stride + at + j] * rounded(t, k[j]);
        p[i] /= sqrt((double)d);
        top = p[i] > top ? p[i] : top;
    }
    for (int i = 0; i < n; i++) {
        p[i] = exp(p[i] - top);
        sum += p[i];
    }
    for (size_t j = 0; j < d; j++) {
        double want = 0;
        for (int i = 0; i < n; i++)
            want += p[i] * rounded(t, r->v[(size_t)(first + i) * stride + at + j]);
        double off = fabs(want / sum - r->out[(size_t)row * stride + at + j]);
        worst = off <= worst ? worst : off; /* NaN counts */
    }
    free(p);
    return worst;
}

TEST(segments_equal_plain_softmax)
{
    struct rng rng = { test_seed };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int i = 0; i < 3 * N_LAYOUTS && cpu_level_here(level); i++) {
            const struct layout *l = &layouts[i / 3];
            enum dtype t = types[i % 3].t;
            double worst = 0;
            struct rows r;
            rows_open(&r, l, &rng);
            run(&r, r.out, t, level, 2, 0, l->n_segments);
            for (int s = 0; s < l->n_segments; s++) {
                int first = l->bounds[s], n = l->bounds[s + 1] - first;
                for (int j = 0; j < SAMPLES && n > 0; j++) {
                    int row = j == 0 ? 0 : j == 1 ? n - 1 : (int)(rng_next(&rng) % (uint64_t)n);
                    double off = row_error(&r, t, s, first + row, j % l->n_heads);
                    worst = off <= worst ? worst : off;
                }
            }
            CHECK_MSG(worst <= types[i % 3].tolerance, "%s %s d=%d: differs by %.2g",
                      cpu_levels[level].name, dtype_name(t), l->d, worst);
            rows_close(&r);
        }
}

TEST(a_segment_alone_equals_itself_among_others)
{
    struct rng rng = { test_seed };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int i = 0; i < 3 * N_LAYOUTS && cpu_level_here(level); i++) {
            const struct layout *l = &layouts[i / 3];
            enum dtype t = types[i % 3].t;
            struct rows r;
            rows_open(&r, l, &rng);
            size_t stride = sizeof(float) * (size_t)l->n_heads * (size_t)l->d;
            float *other = malloc(sizeof(float) * rows_size(&r));
            run(&r, r.out, t, level, 1, 0, l->n_segments);
            for (int threads = 2; threads <= 5; threads += 3) {
                run(&r, other, t, level, threads, 0, l->n_segments);
                CHECK_MSG(!memcmp(r.out, other, stride * (size_t)r.n),
                          "%s %s d=%d: %d threads give other bits", cpu_levels[level].name,
                          dtype_name(t), l->d, threads);
            }
            for (int s = 0; s < l->n_segments; s++) {
                int first = l->bounds[s], n = l->bounds[s + 1] - first;
                run(&r, other, t, level, 1 + s % 3, s, s + 1);
                CHECK_MSG(
                    !memcmp((uint8_t *)r.out + stride * (size_t)first, other, stride * (size_t)n),
                    "%s %s d=%d: segment %d alone gives other bits", cpu_levels[level].name,
                    dtype_name(t), l->d, s);
            }
            free(other);
            rows_close(&r);
        }
}

/* What is in the other segments' rows must not matter, NaN included: a short one after longer ones,
 * on the thread that had those. */
TEST(a_segment_does_not_see_the_others)
{
    const struct layout *l = &layouts[1];
    struct rng rng = { test_seed };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int i = 0; i < 3 && cpu_level_here(level); i++) {
            struct rows r;
            rows_open(&r, l, &rng);
            size_t stride = (size_t)l->n_heads * (size_t)l->d;
            size_t from = (size_t)l->bounds[3] * stride, to = (size_t)l->bounds[4] * stride;
            float *other = malloc(sizeof(float) * rows_size(&r));
            run(&r, r.out, types[i].t, level, 1, 0, l->n_segments);
            for (size_t j = 0; j < rows_size(&r); j++)
                if (j < from || j >= to)
                    r.q[j] = r.k[j] = r.v[j] = NAN;
            run(&r, other, types[i].t, level, 1, 0, l->n_segments);
            CHECK(!memcmp(r.out + from, other + from, sizeof(float) * (to - from)));
            free(other);
            rows_close(&r);
        }
}

TEST(a_whole_head_equals_its_chunks)
{
    struct rng rng = { test_seed };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int i = 0; i < 3 * N_LAYOUTS && cpu_level_here(level); i++) {
            const struct layout *l = &layouts[i / 3];
            struct rows r;
            rows_open(&r, l, &rng);
            float *other = malloc(sizeof(float) * rows_size(&r));
            run(&r, r.out, types[i % 3].t, level, 2, 0, l->n_segments);
            whole_heads = false;
            run(&r, other, types[i % 3].t, level, 2, 0, l->n_segments);
            whole_heads = true;
            CHECK_MSG(!memcmp(r.out, other, sizeof(float) * rows_size(&r)),
                      "%s %s d=%d: chunks give other bits", cpu_levels[level].name,
                      dtype_name(types[i % 3].t), l->d);
            free(other);
            rows_close(&r);
        }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
