/* The CPU as a device: every operation, split over threads in any way, gives what the kernels give
 * when called straight, and attention over chains, trees and several sequences is attention. */
#include "kernels/device_cpu.h"

#include "base/rng.h"
#include "larger.h"
#include "rig.h"
#include "scattered.h"
#include "tensor/half.h"
#include "tensor/quant.h"

#include <math.h>

enum { ROWS = 70, IN = 512 };

static const struct work_shape shape = { .rows = ROWS,
                                         .in = IN,
                                         .n_heads = 6,
                                         .n_kv_heads = 2,
                                         .head_dim = 32,
                                         .context = 2048,
                                         .kv_dtype = DTYPE_F32 };

struct fixture {
    struct device *dev;
    struct device_work *w;
    const struct device_ops *ops;
    const struct kernels *k;
};

static bool fixture_open(struct fixture *f, int level, int threads, const struct work_shape *s)
{
    if (!CHECK(!device_cpu_open(&f->dev, threads, cpu_levels[level].flags, NULL) &&
               !f->dev->ops->work_open(f->dev, &f->w, s, NULL)))
        return false;
    f->ops = f->dev->ops;
    f->k = &f->w->cpu->k;
    return true;
}

static void fixture_close(struct fixture *f)
{
    f->ops->work_close(f->dev, &f->w);
    device_close(&f->dev);
    CHECK(f->w == NULL && f->dev == NULL);
}

static float *random_floats(struct rng *r, size_t n)
{
    float *x = malloc(sizeof *x * n);
    for (size_t i = 0; i < n; i++)
        x[i] = rng_normal(r);
    return x;
}

/* ---- elementwise, with rows enough to wake the pool ---- */

TEST(elementwise_operations_equal_the_kernels)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int n = 1; n <= ROWS && cpu_level_here(level); n += 23) {
            struct rng r = { (uint64_t)n };
            struct fixture f;
            float *x = random_floats(&r, ROWS * IN), *y = random_floats(&r, ROWS * IN);
            float *want = malloc(sizeof(float) * ROWS * IN),
                  *got = malloc(sizeof(float) * ROWS * IN);
            size_t size = sizeof(float) * (size_t)n * IN;
            int32_t ids[ROWS];
            if (!fixture_open(&f, level, 3, &shape))
                return;
            for (int i = 0; i < n; i++)
                f.k->rmsnorm(want + i * IN, x + i * IN, y, IN, 1e-5f);
            f.ops->rmsnorm(f.w, got, x, y, n, IN, 1e-5f);
            CHECK(!memcmp(want, got, size));

            memcpy(want, x, size);
            memcpy(got, x, size);
            f.k->silu_mul(want, y, (size_t)n * IN);
            f.ops->silu_mul(f.w, got, y, n, IN);
            CHECK(!memcmp(want, got, size));
            f.k->add(want, x, (size_t)n * IN);
            f.ops->add(f.w, got, x, n, IN);
            CHECK(!memcmp(want, got, size));

            for (int i = 0; i < n; i++)
                f.k->layernorm(want + i * IN, x + i * IN, y, y + IN, IN, 1e-5f);
            f.ops->layernorm(f.w, got, x, y, y + IN, n, IN, 1e-5f);
            CHECK(!memcmp(want, got, size));
            for (enum gelu_kind kind = 0; kind < GELU_COUNT; kind++) {
                f.k->gelu[kind](want, (size_t)n * IN);
                f.ops->gelu(f.w, got, n, IN, kind);
                CHECK(!memcmp(want, got, size));
            }

            x[(n - 1) * IN + 7] = x[(n - 1) * IN + 300] = 50; /* a tie: the lower one wins */
            f.ops->argmax(f.w, ids, x, n, IN);
            CHECK_EQ(ids[n - 1], 7);
            for (int i = 0; i < n - 1; i++)
                CHECK_EQ(ids[i], f.k->argmax(x + i * IN, IN));
            fixture_close(&f);
            free(x);
            free(y);
            free(want);
            free(got);
        }
}

TEST(rope_norms_and_turns_each_head)
{
    enum { HEADS = 6, D = 32, N = 40 };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int normed = 0; normed < 2 && cpu_level_here(level); normed++) {
            struct rng r = { 8 };
            struct fixture f;
            float *x = random_floats(&r, N * HEADS * D), *w = random_floats(&r, D);
            float *cosines = random_floats(&r, N * D / 2), *sines = random_floats(&r, N * D / 2);
            float *want = malloc(sizeof(float) * N * HEADS * D);
            memcpy(want, x, sizeof(float) * N * HEADS * D);
            if (!fixture_open(&f, level, 2, &shape))
                return;
            f.ops->rope(f.w, x, N, HEADS, D, normed ? w : NULL, 1e-6f, cosines, sines);
            for (int i = 0; i < N * HEADS; i++) {
                float *row = want + i * D;
                const float *c = cosines + i / HEADS * (D / 2), *s = sines + i / HEADS * (D / 2);
                double sum = 0;
                for (int j = 0; j < D; j++)
                    sum += (double)row[j] * row[j];
                for (int j = 0; j < D && normed; j++)
                    row[j] = (float)(row[j] * w[j] / sqrt(sum / D + 1e-6));
                for (int j = 0; j < D / 2; j++) {
                    double a = row[j], b = row[j + D / 2];
                    CHECK_MSG(fabs(x[i * D + j] - (a * c[j] - b * s[j])) < 1e-4 &&
                                  fabs(x[i * D + j + D / 2] - (b * c[j] + a * s[j])) < 1e-4,
                              "%s: head %d", cpu_levels[level].name, i);
                }
            }
            fixture_close(&f);
            free(x);
            free(w);
            free(cosines);
            free(sines);
            free(want);
        }
}

TEST(embed_and_gather_copy_rows)
{
    struct rng r = { 4 };
    struct fixture f;
    float *table = random_floats(&r, 50 * IN), *got = malloc(sizeof(float) * ROWS * IN);
    uint8_t *q = malloc(dtype_row_size(DTYPE_Q8_0, IN) * 50);
    float want[IN];
    int32_t ids[ROWS];
    int rows[ROWS];
    struct matrix m = { .dtype = DTYPE_Q8_0,
                        .out = 50,
                        .in = IN,
                        .data = q,
                        .row_size = dtype_row_size(DTYPE_Q8_0, IN) };
    if (!fixture_open(&f, cpu_level_best(), 2, &shape))
        return;
    for (int i = 0; i < 50; i++)
        row_from_f32(q + (size_t)i * m.row_size, table + i * IN, DTYPE_Q8_0, IN);
    for (int i = 0; i < ROWS; i++)
        rows[i] = ids[i] = (int32_t)(rng_next(&r) % 50);
    f.ops->embed(f.w, got, &m, ids, ROWS, NULL);
    for (int i = 0; i < ROWS; i++) {
        row_to_f32(want, q + (size_t)ids[i] * m.row_size, DTYPE_Q8_0, IN);
        CHECK(!memcmp(want, got + i * IN, sizeof want));
    }
    f.ops->gather(f.w, got, table, rows, ROWS, IN);
    for (int i = 0; i < ROWS; i++)
        CHECK(!memcmp(table + rows[i] * IN, got + i * IN, sizeof want));
    fixture_close(&f);
    free(table);
    free(got);
    free(q);
}

TEST(blend_sums_four_rows_in_order)
{
    struct rng r = { 5 };
    struct fixture f;
    float *x = random_floats(&r, 50 * IN), *got = malloc(sizeof(float) * ROWS * IN);
    float weights[ROWS][4];
    int rows[ROWS][4];
    if (!fixture_open(&f, cpu_level_best(), 2, &shape))
        return;
    for (int i = 0; i < ROWS * 4; i++) {
        rows[i / 4][i % 4] = (int)(rng_next(&r) % 50);
        weights[i / 4][i % 4] = i % 5 ? rng_normal(&r) : 0;
    }
    f.ops->blend(f.w, got, x, rows, weights, ROWS, IN);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < IN; j++) {
            float want = weights[i][0] * x[rows[i][0] * IN + j];
            for (int k = 1; k < 4; k++)
                want += weights[i][k] * x[rows[i][k] * IN + j];
            CHECK(got[i * IN + j] == want);
        }
    fixture_close(&f);
    free(x);
    free(got);
}

/* ---- matmul ---- */

/* Three matrices of the given types that share x, as q, k and v do in K-quant files: each must be
 * what its kernel gives alone, and nothing between its rows touched. The same, if they are taken by
 * the device, which may give them another order. */
static void check_matmul(struct fixture *f, struct rng *r, const enum dtype *types, int n, int in,
                         bool taken, const char *level)
{
    static const int outs[3] = { 130, 1, 63 };
    struct matrix m[3];
    struct matmul_job jobs[3];
    float *x = random_floats(r, (size_t)n * (size_t)in), *bias = random_floats(r, 130);
    float *y[3], *want = malloc(sizeof(float) * ROWS * 130), gap = 1234.5f;
    uint8_t *data[3];
    for (int j = 0; j < 3; j++) {
        size_t row_size = dtype_row_size(types[j], in), size = row_size * (size_t)outs[j];
        float *row = malloc(sizeof(float) * (size_t)in);
        data[j] = calloc(1, size); /* K-quant blocks of zeros but for some scales and bits */
        for (int o = 0; o < outs[j]; o++) {
            for (int i = 0; i < in; i++)
                row[i] = rng_normal(r);
            if (row_can_encode(types[j]))
                row_from_f32(data[j] + (size_t)o * row_size, row, types[j], in);
            else
                for (size_t b = 0; b < row_size; b++)
                    data[j][(size_t)o * row_size + b] = (uint8_t)(rng_next(r) & 0x2f);
        }
        free(row);
        m[j] = (struct matrix){ .dtype = types[j],
                                .out = outs[j],
                                .in = in,
                                .data = data[j],
                                .row_size = row_size,
                                .bias = j ? NULL : bias,
                                .many_rows = n == ROWS };
        y[j] = malloc(sizeof(float) * ROWS * 140);
        for (int i = 0; i < ROWS * 140; i++)
            y[j][i] = gap;
        jobs[j] = (struct matmul_job){ &m[j], y[j], (size_t)(outs[j] + 3) };
    }
    f->dev->repacks = true;
    for (int j = 0; j < 3 && taken; j++)
        CHECK(!f->ops->take(f->dev, &m[j], NULL) &&
              (m[j].repacked != NULL) == (kernels_repacked_for(f->k, &m[j]) != NULL));
    f->ops->matmul(f->w, jobs, 3, x, n);
    for (int j = 0; j < 3; j++) {
        struct matrix plain = m[j];
        plain.repacked = NULL;
        const struct matmul_kernel *k = kernels_matmul_for(f->k, &plain);
        void *packed = mem_zalloc(k->packed_size(n, in)),
             *scratch = mem_zalloc(k->scratch_size(in));
        k->pack(packed, x, (size_t)in, n, in, 0, n);
        k->run(want, 130, packed, n, &plain, 0, outs[j], scratch);
        for (int i = 0; i < n; i++) {
            const float *row = y[j] + (size_t)i * (size_t)(outs[j] + 3);
            CHECK_MSG(!memcmp(row, want + i * 130, sizeof(float) * (size_t)outs[j]) &&
                          row[outs[j]] == gap && row[outs[j] + 2] == gap,
                      "%s: row %d of %d by %s [%d, %d]", level, i, n, dtype_name(types[j]), outs[j],
                      in);
        }
        mem_free(packed);
        mem_free(scratch);
        f->ops->drop(f->dev, &m[j]);
        CHECK(!m[j].repacked);
        free(y[j]);
        free(data[j]);
    }
    free(x);
    free(bias);
    free(want);
}

/* F16 rows of a prompt: the bits that they have in an answer, on every CPU. */
TEST(rows_of_a_prompt_go_the_way_of_others)
{
    enum { WIDE = 96, OUT = 40, N = ROWS };
    static const struct work_plan prompt = { .bulk = true };
    for (int level = 0; level < N_CPU_LEVELS; level++) {
        struct rng r = { test_seed };
        struct fixture f;
        if (!cpu_level_here(level) || !fixture_open(&f, level, 2, &shape))
            continue;
        float *x = random_floats(&r, N * WIDE), *w = random_floats(&r, OUT * WIDE);
        float all[N * OUT], one[OUT];
        uint16_t half[OUT * WIDE];
        f.k->to_f16(half, w, OUT * WIDE);
        struct matrix m = {
            .dtype = DTYPE_F16, .out = OUT, .in = WIDE, .data = half, .row_size = 2 * WIDE
        };
        struct matmul_job job = { &m, all, OUT };
        CHECK(f.ops->begin(f.w, &prompt));
        f.ops->matmul(f.w, &job, 1, x, N);
        f.ops->end(f.w);
        job.y = one;
        for (int i = 0; i < N; i++) {
            f.ops->matmul(f.w, &job, 1, x + (size_t)i * WIDE, 1);
            CHECK_MSG(!memcmp(all + (size_t)i * OUT, one, sizeof one), "%s, row %d",
                      cpu_levels[level].name, i);
        }
        free(x);
        free(w);
        fixture_close(&f);
    }
}

TEST(matmul_jobs_of_any_types_equal_the_kernels)
{
    static const enum dtype types[][3] = {
        { DTYPE_F32, DTYPE_F32, DTYPE_F32 },     { DTYPE_BF16, DTYPE_BF16, DTYPE_F16 },
        { DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0 },  { DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K },
        { DTYPE_Q5_K, DTYPE_Q8_0, DTYPE_Q5_K },  { DTYPE_Q4_0, DTYPE_Q5_0, DTYPE_F32 },
        { DTYPE_Q4_1, DTYPE_Q5_1, DTYPE_IQ4_NL }
    };
    static const int rows[] = { 1, 5, 33, ROWS };
    struct rng r = { test_seed };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int threads = 1; threads <= 3 && cpu_level_here(level); threads++) {
            struct fixture f;
            if (!fixture_open(&f, level, threads, &shape))
                return;
            for (int t = 0; t < 6; t++)
                for (int i = threads % 2; i < 4; i += 2) {
                    check_matmul(&f, &r, types[t], rows[i], 256, i % 3, cpu_levels[level].name);
                    if (t < 3 || t == 5)
                        check_matmul(&f, &r, types[t], rows[i], 96, true, cpu_levels[level].name);
                }
            fixture_close(&f);
        }
}

TEST(a_table_for_lookups_and_what_finds_no_memory_keep_their_order)
{
    static uint8_t data[64 * 34];
    struct matrix m = { .dtype = DTYPE_Q8_0, .out = 64, .in = 32, .data = data, .row_size = 34 };
    struct pv_error err = { 0 };
    struct fixture f;
    if (!fixture_open(&f, cpu_level_best(), 1, &shape))
        return;
    CHECK(!f.ops->take(f.dev, &m, &err) && !m.repacked); /* not unless the device is told to */
    f.dev->repacks = m.lookup = true;
    CHECK(!f.ops->take(f.dev, &m, &err) && !m.repacked);
    m.lookup = false;
    mem_fail_at(1);
    CHECK(!f.ops->take(f.dev, &m, &err) && !m.repacked);
    mem_fail_at(0);
    fixture_close(&f);
}

/* ---- attention ---- */

struct sequence {
    struct kv_layer kv;
    float *k, *v; /* [cap, n_kv, d] as written, rounded to the type */
};

static float rounded(enum dtype t, float x)
{
    if (t == DTYPE_F16)
        return f16_to_f32(f16_from_f32(x));
    return t == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(x)) : x;
}

static void sequence_open(struct sequence *s, struct fixture *f, struct rng *r, enum dtype t, int n)
{
    int d = shape.head_dim, n_kv = shape.n_kv_heads, cap = (n + KV_CHUNK - 1) / KV_CHUNK * KV_CHUNK;
    s->k = random_floats(r, (size_t)(cap * n_kv * d));
    s->v = random_floats(r, (size_t)(cap * n_kv * d));
    s->kv = scattered_open(t, n_kv, d, cap, r);
    f->ops->kv_write(f->w, &s->kv, 0, s->k, s->v, n);
    for (int i = 0; i < cap * n_kv * d; i++) {
        s->k[i] = rounded(t, s->k[i]);
        s->v[i] = rounded(t, s->v[i]);
    }
}

static void sequence_close(struct sequence *s)
{
    scattered_close(&s->kv);
    free(s->k);
    free(s->v);
}

/* Attention of one query over the slots it sees, in double. */
static void plain_attention(double *out, const float *q, const struct sequence *s, int head,
                            const int *slots, int n, double scale)
{
    int d = s->kv.d, kv = head / (shape.n_heads / s->kv.n_kv);
    double *p = malloc(sizeof *p * (size_t)n), top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        const float *k = s->k + (slots[i] * s->kv.n_kv + kv) * d;
        p[i] = 0;
        for (int j = 0; j < d; j++)
            p[i] += (double)q[j] * k[j];
        p[i] *= scale;
        top = larger(top, p[i]);
    }
    for (int j = 0; j < d; j++)
        out[j] = 0;
    for (int i = 0; i < n; i++) {
        const float *v = s->v + (slots[i] * s->kv.n_kv + kv) * d;
        double e = exp(p[i] - top);
        sum += e;
        for (int j = 0; j < d; j++)
            out[j] += e * v[j];
    }
    for (int j = 0; j < d; j++)
        out[j] /= sum;
    free(p);
}

/* Slots a row of a run sees: all before first_slot, then its ancestors and itself. */
static int visible(const struct attn_run *run, int row, int *slots)
{
    int n = run->first_slot, depth = row_depth(run->parent, row);
    for (int i = 0; i < n; i++)
        slots[i] = i;
    for (int at = n + depth; row >= 0; at--, row = run->parent ? run->parent[row] : row - 1)
        slots[at] = run->first_slot + row;
    return n + depth + 1;
}

static void check_attention(struct fixture *f, const struct attn_job *job,
                            const struct sequence *seqs, double tolerance, const char *what)
{
    int slots[2048], d = shape.head_dim;
    double want[64], worst = 0;
    for (int i = 0; i < job->n_runs; i++) {
        const struct attn_run *run = &job->runs[i];
        for (int row = 0; row < run->n; row++) {
            int n = visible(run, row, slots);
            for (int h = 0; h < job->n_heads; h++) {
                size_t at = ((size_t)(run->row0 + row) * (size_t)job->n_heads + (size_t)h) * 32;
                plain_attention(want, job->q + at, &seqs[i], h, slots, n, job->scale);
                for (int j = 0; j < d; j++)
                    worst = larger(worst, fabs(want[j] - job->out[at + (size_t)j]));
            }
        }
    }
    (void)f;
    CHECK_MSG(worst <= tolerance, "%s: differs by %.2g", what, worst);
}

/* A chain, a tree and a single row, each of its own sequence, in one job; on one thread and on
 * three. F32 must be exact to rounding; 16-bit types also round queries or probabilities. */
TEST(attention_equals_plain_softmax)
{
    static const int parent[] = { -1, -1, 0, 0, 2, 4, 4, 6, 1, 8, 5, 10, 11, 12 };
    static const struct {
        enum dtype kv;
        double tolerance;
    } types[] = { { DTYPE_F32, 2e-5 }, { DTYPE_F16, 0.02 }, { DTYPE_BF16, 0.03 } };
    static const int lengths[][3] = { { 0, 0, 0 }, { 5, 250, 1030 }, { 1300, 256, 3 } };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int t = 0; t < 9 && cpu_level_here(level); t++) {
            struct rng r = { 11 };
            struct work_shape s = shape;
            const int *at = lengths[t / 3];
            float *out[2];
            s.kv_dtype = types[t % 3].kv;
            for (int threads = 1; threads <= 3; threads += 2) {
                struct sequence seqs[3];
                struct fixture f;
                char what[64];
                if (!fixture_open(&f, level, threads, &s))
                    return;
                r.state = 11;
                float *q = random_floats(&r, ROWS * 6 * 32),
                      *o = malloc(sizeof(float) * ROWS * 6 * 32);
                struct attn_run runs[3] = { { 0, 20, at[0], NULL, &seqs[0].kv, 0 },
                                            { 20, 14, at[1], parent, &seqs[1].kv, 0 },
                                            { 34, 1, at[2], NULL, &seqs[2].kv, 0 } };
                for (int i = 0; i < 3; i++)
                    sequence_open(&seqs[i], &f, &r, s.kv_dtype, at[i] + runs[i].n);
                struct attn_job job = {
                    .out = o, .q = q, .n_heads = 6, .scale = 0.25f, .n_runs = 3, .runs = runs
                };
                f.ops->attention(f.w, &job);
                snprintf(what, sizeof what, "%s %s after %d, %d, %d slots", cpu_levels[level].name,
                         dtype_name(s.kv_dtype), at[0], at[1], at[2]);
                check_attention(&f, &job, seqs, types[t % 3].tolerance, what);
                for (int i = 0; i < 3; i++)
                    sequence_close(&seqs[i]);
                fixture_close(&f);
                free(q);
                out[threads / 2] = o;
            }
            CHECK(!memcmp(out[0], out[1], sizeof(float) * 35 * 6 * 32));
            free(out[0]);
            free(out[1]);
        }
}

TEST(opening_survives_lack_of_memory)
{
    for (uint64_t k = 1; k < 50; k++) {
        struct device *dev = NULL;
        struct device_work *w = NULL;
        struct pv_error err = { 0 };
        mem_fail_at(k);
        enum pv_status s = device_cpu_open(&dev, 2, cpu_flags(), &err);
        if (!s)
            s = dev->ops->work_open(dev, &w, &shape, &err);
        mem_fail_at(0);
        CHECK((s == PV_OK) == (w != NULL));
        if (s)
            CHECK_EQ(err.code, PV_E_NOMEM);
        if (dev)
            dev->ops->work_close(dev, &w);
        device_close(&dev);
        if (!s) {
            CHECK(k > 3);
            return;
        }
    }
    CHECK(false);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
