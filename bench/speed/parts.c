/* One wrapper per operation that a vision tower uses. State is global: device operations have no
 * argument for it, and a benchmark has one device. */
#include "parts.h"

#include "base/clock.h"

enum { MATMUL, ATTENTION, NORM, GELU, SILU, ROPE, ADD, QKV, TAIL, OTHER };

static struct part parts[PARTS] = { { "matmul", 0 }, { "attention", 0 }, { "norm", 0 },
                                    { "gelu", 0 },   { "silu", 0 },      { "rope", 0 },
                                    { "add", 0 },    { "qkv", 0 },       { "tail", 0 },
                                    { "other", 0 } };
static const struct device_ops *plain;
static struct device_ops timed;

static void count(int part, double start)
{
    parts[part].seconds += clock_now() - start;
}

static void matmul(struct device_work *w, const struct matmul_job *jobs, int n_jobs, const float *x,
                   int n)
{
    double t = clock_now();
    plain->matmul(w, jobs, n_jobs, x, n);
    count(MATMUL, t);
}

static void attention_full(struct device_work *w, const struct full_attn_job *job)
{
    double t = clock_now();
    plain->attention_full(w, job);
    count(ATTENTION, t);
}

static void rmsnorm(struct device_work *w, float *y, const float *x, const float *weight, int n,
                    int dim, float eps)
{
    double t = clock_now();
    plain->rmsnorm(w, y, x, weight, n, dim, eps);
    count(NORM, t);
}

static void layernorm(struct device_work *w, float *y, const float *x, const float *weight,
                      const float *bias, int n, int dim, float eps)
{
    double t = clock_now();
    plain->layernorm(w, y, x, weight, bias, n, dim, eps);
    count(NORM, t);
}

static void gelu(struct device_work *w, float *x, int n, int dim, enum gelu_kind kind)
{
    double t = clock_now();
    plain->gelu(w, x, n, dim, kind);
    count(GELU, t);
}

static void silu_mul(struct device_work *w, float *g, const float *u, int n, int dim)
{
    double t = clock_now();
    plain->silu_mul(w, g, u, n, dim);
    count(SILU, t);
}

static void rope(struct device_work *w, float *x, int n, int n_heads, int d, const float *weight,
                 float eps, const float *cos, const float *sin)
{
    double t = clock_now();
    plain->rope(w, x, n, n_heads, d, weight, eps, cos, sin);
    count(ROPE, t);
}

static void add(struct device_work *w, float *y, const float *x, int n, int dim)
{
    double t = clock_now();
    plain->add(w, y, x, n, dim);
    count(ADD, t);
}

static bool tower_qkv(struct device_work *w, const struct tower_qkv *job)
{
    double t = clock_now();
    bool done = plain->tower_qkv(w, job);
    count(QKV, t);
    return done;
}

static bool tower_tail(struct device_work *w, const struct tower_tail *job)
{
    double t = clock_now();
    bool done = plain->tower_tail(w, job);
    count(TAIL, t);
    return done;
}

static void gather(struct device_work *w, float *y, const float *x, const int *rows, int n, int dim)
{
    double t = clock_now();
    plain->gather(w, y, x, rows, n, dim);
    count(OTHER, t);
}

void parts_begin(struct device *dev)
{
    plain = dev->ops;
    timed = *plain;
    timed.matmul = matmul;
    timed.attention_full = attention_full;
    timed.rmsnorm = rmsnorm;
    timed.layernorm = layernorm;
    timed.gelu = gelu;
    timed.silu_mul = silu_mul;
    timed.rope = rope;
    timed.add = add;
    timed.gather = gather;
    timed.tower_qkv = plain->tower_qkv ? tower_qkv : NULL;
    timed.tower_tail = plain->tower_tail ? tower_tail : NULL;
    dev->ops = &timed;
}

void parts_reset(void)
{
    for (int i = 0; i < PARTS; i++)
        parts[i].seconds = 0;
}

const struct part *parts_now(void)
{
    return parts;
}
