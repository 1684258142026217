/* Column sums of attention, against the whole matrix in double: over chunk borders, with more
 * query rows than a tile, keys nobody sees, and both kinds of softmax; the same bits on any number
 * of threads. (Against transformers: test_golden.c.) */
#include "kernels/device_cpu.h"

#include "base/rng.h"
#include "larger.h"
#include "rig.h"
#include "scattered.h"
#include "tensor/half.h"

#include <math.h>

enum { HEADS = 6, N_KV = 2, D = 32, CAP = 1280, MAX_STEP = 150 };

struct scene {
    struct device *dev;
    struct device_work *w;
    struct kv_layer kv;
    float *k; /* [CAP, N_KV, D], rounded as the cache holds them */
    float *q; /* [MAX_STEP, HEADS, D] */
};

static bool scene_open(struct scene *s, int level, int threads, enum dtype t)
{
    struct work_shape shape = { .rows = MAX_STEP,
                                .in = 64,
                                .n_heads = HEADS,
                                .n_kv_heads = N_KV,
                                .head_dim = D,
                                .context = CAP,
                                .kv_dtype = t };
    struct rng r = { 21 };
    if (!CHECK(!device_cpu_open(&s->dev, threads, cpu_levels[level].flags, NULL) &&
               !s->dev->ops->work_open(s->dev, &s->w, &shape, NULL)))
        return false;
    s->kv = scattered_open(t, N_KV, D, CAP, &r);
    s->k = malloc(sizeof(float) * CAP * N_KV * D);
    s->q = malloc(sizeof(float) * MAX_STEP * HEADS * D);
    for (int i = 0; i < CAP * N_KV * D; i++)
        s->k[i] = rng_normal(&r);
    for (int i = 0; i < MAX_STEP * HEADS * D; i++)
        s->q[i] = 2 * rng_normal(&r);
    s->dev->ops->kv_write(s->w, &s->kv, 0, s->k, s->k, CAP);
    for (int i = 0; i < CAP * N_KV * D; i++) {
        s->k[i] = t == DTYPE_F16    ? f16_to_f32(f16_from_f32(s->k[i]))
                  : t == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(s->k[i]))
                                    : s->k[i];
    }
    return true;
}

static void scene_close(struct scene *s)
{
    scattered_close(&s->kv);
    free(s->k);
    free(s->q);
    s->dev->ops->work_close(s->dev, &s->w);
    device_close(&s->dev);
}

static void plain_columns(double *sums, const struct scene *s, const struct column_job *job)
{
    static double p[CAP];
    for (int k = 0; k < job->n_keys * N_KV; k++)
        sums[k] = 0;
    for (int i = 0; i < job->n_rows; i++)
        for (int h = 0; h < HEADS; h++) {
            const float *q = s->q + ((job->run->row0 + job->rows[i]) * HEADS + h) * D;
            int n = job->run->first_slot + job->rows[i] + 1, next = 0;
            double total = 0, top = -INFINITY;
            for (int slot = 0; slot < n; slot++) {
                p[slot] = 0;
                for (int j = 0; j < D; j++)
                    p[slot] += (double)q[j] * s->k[(slot * N_KV + h / (HEADS / N_KV)) * D + j];
                p[slot] *= job->scale;
                top = larger(top, p[slot]);
            }
            for (int slot = 0; slot < n; slot++) {
                bool given = next < job->n_keys && job->keys[next] == slot;
                next += given;
                total += given || !job->over_keys ? exp(p[slot] - top) : 0;
            }
            int group = job->by_group ? h / (HEADS / N_KV) * job->n_keys : 0;
            for (int k = 0; k < job->n_keys && job->keys[k] < n; k++)
                sums[group + k] += exp(p[job->keys[k]] - top) / total;
        }
}

struct layout {
    int row0, first_slot;
    int rows[MAX_STEP], n_rows;
    int keys[CAP], n_keys;
};

static void check_layout(const struct layout *l, int level, enum dtype t, double tolerance)
{
    static double want[N_KV * CAP];
    static float got[4][N_KV * CAP];
    for (int threads = 1; threads <= 3; threads++)
        for (int how = 0; how < 3; how++) {
            struct scene s;
            if (!scene_open(&s, level, threads, t))
                return;
            struct attn_run run = { l->row0, MAX_STEP - l->row0, l->first_slot, NULL, &s.kv, 0 };
            struct column_job job = { .sums = got[threads],
                                      .q = s.q,
                                      .n_heads = HEADS,
                                      .scale = 0.18f,
                                      .run = &run,
                                      .n_rows = l->n_rows,
                                      .rows = l->rows,
                                      .n_keys = l->n_keys,
                                      .keys = l->keys,
                                      .over_keys = how == 1,
                                      .by_group = how == 2 };
            int n_sums = how == 2 ? N_KV * l->n_keys : l->n_keys;
            double worst = 0, most = 0;
            for (int k = 0; k < n_sums; k++) /* sums are added to */
                got[threads][k] = 3;
            s.dev->ops->attention_columns(s.w, &job);
            plain_columns(want, &s, &job);
            for (int k = 0; k < n_sums; k++) {
                worst = larger(worst, fabs(got[threads][k] - 3 - want[k]));
                most = larger(most, want[k]);
            }
            CHECK_MSG(worst <= tolerance * fmax(most, 1), "%s %s: sums differ by %.2g of %.2g",
                      cpu_levels[level].name, dtype_name(t), worst, most);
            scene_close(&s);
        }
    for (int threads = 2; threads <= 3; threads++)
        CHECK(!memcmp(got[1], got[threads], sizeof(float) * (size_t)(N_KV * l->n_keys)));
}

/* Keys every `step` slots from `from` on. */
static struct layout layout_of(int row0, int first_slot, int row_step, int from, int step)
{
    struct layout l = { .row0 = row0, .first_slot = first_slot };
    for (int r = 0; r < MAX_STEP - row0; r += row_step)
        l.rows[l.n_rows++] = r;
    for (int k = from; k < CAP; k += step)
        l.keys[l.n_keys++] = k;
    return l;
}

TEST(sums_equal_the_whole_matrix)
{
    const struct layout layouts[] = {
        layout_of(0, 0, 40, 0, 1),      /* few rows, all keys, most of them unseen */
        layout_of(3, 700, 1, 5, 9),     /* more rows than a tile */
        layout_of(0, 1100, 50, 250, 3), /* the first chunk nearly without keys */
        layout_of(10, 200, 30, 255, 2), /* some rows see no key */
    };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int i = 0; i < 4 && cpu_level_here(level); i++) {
            if (level == 0 && i == 1)
                continue; /* slow */
            check_layout(&layouts[i], level, DTYPE_F32, 2e-5);
            if (i == 2) {
                check_layout(&layouts[i], level, DTYPE_F16, 0.01);
                check_layout(&layouts[i], level, DTYPE_BF16, 0.03);
            }
        }
}

/* Over the given keys every row that sees one gives a whole 1 away, per head. */
TEST(sums_over_keys_are_whole)
{
    struct layout l = layout_of(0, 600, 25, 100, 7);
    float sums[CAP] = { 0 };
    double total = 0;
    struct scene s;
    if (!scene_open(&s, cpu_level_best(), 2, DTYPE_BF16))
        return;
    struct attn_run run = { 0, MAX_STEP, 600, NULL, &s.kv, 0 };
    struct column_job job = { sums,     s.q,    HEADS,    0.18f,  &run,
                              l.n_rows, l.rows, l.n_keys, l.keys, true };
    s.dev->ops->attention_columns(s.w, &job);
    for (int k = 0; k < l.n_keys; k++)
        total += sums[k];
    CHECK_MSG(fabs(total - l.n_rows * HEADS) < 1e-3, "%.6f and %d", total, l.n_rows * HEADS);
    job.n_keys = 0; /* nothing asked, nothing done */
    s.dev->ops->attention_columns(s.w, &job);
    job.n_keys = 1;
    job.n_rows = 0;
    s.dev->ops->attention_columns(s.w, &job);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
