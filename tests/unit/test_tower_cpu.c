/* A tower's layer on the CPU: the two halves in one go give the bits of the single operations, for
 * any number of threads and rows. */
#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/device_cpu.h"
#include "tensor/half.h"
#include "test.h"
#include "vision/tower_layer.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 768, HIDDEN = 64, FFN = 144, HEADS = 4, D = HIDDEN / HEADS };

struct layer {
    struct rng rng;
    struct tower_layer l;
    float x[ROWS * HIDDEN], cos[ROWS * D / 2], sin[ROWS * D / 2], small[8 * HIDDEN + 3 * FFN];
    uint16_t weights[4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN];
    int n_small, n_weights;
};

static const float *take_small(struct layer *t, int n, float around)
{
    float *to = t->small + t->n_small;
    t->n_small += n;
    for (int i = 0; i < n; i++)
        to[i] = around + 0.1f * rng_float(&t->rng);
    return to;
}

static struct matrix take_matrix(struct layer *t, enum dtype type, int out, int in)
{
    uint16_t *to = t->weights + t->n_weights;
    t->n_weights += out * in;
    for (int i = 0; i < out * in; i++) {
        float v = 0.3f * (rng_float(&t->rng) - 0.5f);
        to[i] = type == DTYPE_F16 ? f16_from_f32(v) : bf16_from_f32(v);
    }
    return (struct matrix){ .data = to,
                            .dtype = type,
                            .out = out,
                            .in = in,
                            .row_size = dtype_row_size(type, in),
                            .bias = take_small(t, out, 0),
                            .many_rows = true };
}

/* Two kinds of layers: LayerNorm and GELU, or RMSNorm, rope and a gate. */
static void layer_make(struct layer *t, enum dtype type, bool gated)
{
    *t = (struct layer){ .rng = { 7 } };
    t->l.norm1 = take_small(t, HIDDEN, 1);
    t->l.norm2 = take_small(t, HIDDEN, 1);
    if (!gated) {
        t->l.norm1_bias = take_small(t, HIDDEN, 0);
        t->l.norm2_bias = take_small(t, HIDDEN, 0);
    }
    t->l.q = take_matrix(t, type, HIDDEN, HIDDEN);
    t->l.k = take_matrix(t, type, HIDDEN, HIDDEN);
    t->l.v = take_matrix(t, type, HIDDEN, HIDDEN);
    t->l.o = take_matrix(t, type, HIDDEN, HIDDEN);
    t->l.up = take_matrix(t, type, FFN, HIDDEN);
    t->l.down = take_matrix(t, type, HIDDEN, FFN);
    if (gated)
        t->l.gate = take_matrix(t, type, FFN, HIDDEN);
    for (int i = 0; i < ROWS * HIDDEN; i++)
        t->x[i] = rng_float(&t->rng) - 0.5f;
    for (int i = 0; i < ROWS * D / 2; i++) {
        t->cos[i] = rng_float(&t->rng);
        t->sin[i] = 1 - t->cos[i];
    }
}

/* The first n rows of x after the layer, to y. */
static void layer_run(const struct layer *t, float *y, int n, int threads, bool at_once)
{
    enum { LARGE = ROWS * (5 * HIDDEN + 2 * FFN) };
    struct work_shape shape = { .rows = ROWS,
                                .in = FFN,
                                .n_heads = HEADS,
                                .n_kv_heads = HEADS,
                                .head_dim = D,
                                .kv_dtype = t->l.q.dtype,
                                .segment = ROWS };
    struct device *dev;
    struct device_work *work;
    struct device_ops ops;
    int segments[TOWER_CHUNK + 1], bounds[] = { 0, n };
    float *mem = mem_zalloc(sizeof *mem * LARGE);
    if (!mem || device_cpu_open(&dev, threads, cpu_flags(), NULL) ||
        dev->ops->work_open(dev, &work, &shape, NULL))
        abort();
    ops = *dev->ops;
    if (!at_once) {
        ops.tower_qkv = NULL;
        ops.tower_tail = NULL;
    }
    memcpy(y, t->x, sizeof *y * (size_t)(n * HIDDEN));
    struct layer_room r = { .ops = &ops,
                            .work = work,
                            .hidden = HIDDEN,
                            .ffn = FFN,
                            .n_heads = HEADS,
                            .head_dim = D,
                            .eps = 1e-6f,
                            .gelu = GELU_TANH,
                            .attn = t->l.q.dtype,
                            .x = y,
                            .q = mem,
                            .k = mem + ROWS * HIDDEN,
                            .v = mem + 2 * ROWS * HIDDEN,
                            .xn = mem + 3 * ROWS * HIDDEN,
                            .tmp = mem + 4 * ROWS * HIDDEN,
                            .gate = mem + 5 * ROWS * HIDDEN,
                            .up = mem + ROWS * (5 * HIDDEN + FFN),
                            .cos = t->l.gate.data ? t->cos : NULL,
                            .sin = t->l.gate.data ? t->sin : NULL,
                            .segments = segments };
    tower_layer_run(&r, &t->l, bounds, 1);
    if (at_once && n / threads >= 256 && (cpu_flags() & CPU_AMX)) {
        struct tower_qkv job = { .w = &t->l,
                                 .x = r.x,
                                 .to = { r.q, r.k, r.v },
                                 .cos = r.cos,
                                 .sin = r.sin,
                                 .n = n,
                                 .hidden = HIDDEN,
                                 .n_heads = HEADS,
                                 .head_dim = D,
                                 .eps = r.eps };
        CHECK_MSG(ops.tower_qkv(work, &job), "%d rows, %d threads: not in one go", n, threads);
    }
    dev->ops->work_close(dev, &work);
    device_close(&dev);
    mem_free(mem);
}

static void check_layer(enum dtype type, bool gated)
{
    static const int rows[] = { 40, 300, 513, 640, 729, ROWS };
    static struct layer t;
    static float want[ROWS * HIDDEN], have[ROWS * HIDDEN];
    layer_make(&t, type, gated);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size = sizeof *have * (size_t)(rows[i] * HIDDEN);
        layer_run(&t, want, rows[i], 1, false);
        for (int threads = 1; threads <= 3; threads++) {
            memset(have, 0, sizeof have);
            layer_run(&t, have, rows[i], threads, true);
            CHECK_MSG(!memcmp(want, have, size), "%s, %d rows, %d threads: other bits",
                      dtype_name(type), rows[i], threads);
        }
    }
}

TEST(gelu_bf16)
{
    check_layer(DTYPE_BF16, false);
}

TEST(gated_bf16)
{
    check_layer(DTYPE_BF16, true);
}

TEST(gelu_f16)
{
    check_layer(DTYPE_F16, false);
}

TEST(gated_f16)
{
    check_layer(DTYPE_F16, true);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
