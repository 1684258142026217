/* Choosing tokens on the device that has the logits: the most likely tokens of each row, and
 * sampling (the Gumbel-max trick: the largest of logit / t plus noise). */
#include "kernels/device_cpu.h"

#include "base/rng.h"

#include <math.h>

struct choose_op {
    const float *x;
    int dim, k;
    double t;
    struct top_entry *top;
    float *mass;
    int32_t *ids;
    const uint64_t *position;
    uint64_t seed;
};

/* Ids are added in ascending order, so among equal logits the lowest id stays first. */
static void top_add(struct top_entry *out, int *n, int k, float v, int32_t id)
{
    int i = *n < k ? (*n)++ : k - 1;
    for (; i > 0 && v > out[i - 1].logit; i--)
        out[i] = out[i - 1];
    out[i] = (struct top_entry){ v, id };
}

static void top_rows(void *ctx, int r0, int r1)
{
    struct choose_op *op = ctx;
    for (int r = r0; r < r1; r++) {
        const float *x = op->x + (size_t)r * op->dim;
        struct top_entry *out = op->top + (size_t)r * (size_t)op->k;
        double sum = 0;
        int n = 0;
        for (int i = 0; i < op->dim; i++)
            if (n < op->k ? x[i] == x[i] : x[i] > out[op->k - 1].logit)
                top_add(out, &n, op->k, x[i], i);
        for (int i = 0; i < op->dim && n > 0; i++)
            if (x[i] == x[i])
                sum += (double)expf((x[i] - out[0].logit) / (float)op->t);
        op->mass[r] = (float)(n > 0 ? (double)out[0].logit / op->t + log(sum) : -INFINITY);
        for (; n < op->k; n++)
            out[n] = (struct top_entry){ 0, -1 };
    }
}

void top_cpu(struct device_work *w, struct top_entry *out, float *mass, const float *x, int n,
             int dim, int k, float t)
{
    struct choose_op op = { .mass = mass, .x = x, .top = out, .k = k, .dim = dim, .t = t };
    rows_parallel(w, top_rows, &op, n, 8 * dim);
}

void name_ids_cpu(struct device_work *w, int32_t *ids, int n, int step, const int32_t *names)
{
    (void)w;
    for (int i = 0; i < n; i++)
        if (ids[i * step] >= 0)
            ids[i * step] = names[ids[i * step]];
}

static void draw_rows(void *ctx, int r0, int r1)
{
    struct choose_op *op = ctx;
    for (int r = r0; r < r1; r++) {
        const float *x = op->x + (size_t)r * op->dim;
        double best = -INFINITY;
        int32_t id = -1;
        for (int i = 0; i < op->dim; i++) {
            double u = rng_uniform(op->seed, op->position[r], (uint64_t)i);
            double score = (double)x[i] / op->t - log(-log(u));
            if (x[i] == x[i] && (id < 0 || score > best)) {
                best = score;
                id = i;
            }
        }
        op->ids[r] = id < 0 ? 0 : id;
    }
}

void draw_token_cpu(struct device_work *w, int32_t *ids, const float *x, int n, int dim,
                    const uint64_t *position, uint64_t seed, float t)
{
    struct choose_op op = {
        .x = x, .ids = ids, .position = position, .seed = seed, .dim = dim, .t = t
    };
    rows_parallel(w, draw_rows, &op, n, 64 * dim);
}
