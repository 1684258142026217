/* Command line and tools of the kernel checker for CUDA.
 *
 *   check_cuda [--seed N] [--full] [--hopper] [words]
 *
 * --hopper: the simulator is a GPU of compute capability 9.0, whose own kernels run. A word chooses
 * tests whose name contains it. Without a GPU it says so and passes nothing. */
#include "check_cuda.h"

#include "base/cpu.h"
#include "base/work_queue.h"
#include "tensor/half.h"
#include "tensor/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAD = 1024, CANARY = 0xa5 };

/* There where the simulator is linked in. */
extern void cudasim_lazy(bool lazy) __attribute__((weak));
extern size_t cudasim_in_use(void) __attribute__((weak));
extern void cudasim_hopper(void) __attribute__((weak));

static void *must_alloc(size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p) {
        fprintf(stderr, "check_cuda: no memory for %zu bytes\n", size);
        abort();
    }
    return p;
}

void check_must(enum pv_status s, const struct pv_error *err)
{
    if (s == PV_OK)
        return;
    fprintf(stderr, "check_cuda: %s\n", err->text);
    abort();
}

void check_wait(struct cuda_check *t, struct device_work *w)
{
    struct pv_error err = { 0 };
    if (t->ops->wait(w, &err) != PV_OK)
        check_fail(&t->c, "%s", err.text);
}

/* ---- memory of the device ---- */

void gbuf_open(struct cuda_check *t, struct gbuf *b, size_t size)
{
    struct pv_error err = { 0 };
    void *base = NULL;
    check_must(device_alloc(t->dev, &base, size + 2 * (size_t)PAD, &err), &err);
    *b = (struct gbuf){ .t = t, .base = base, .p = (uint8_t *)base + PAD, .size = size };
    uint8_t *fill = must_alloc(size + 2 * (size_t)PAD);
    memset(fill, CANARY, size + 2 * (size_t)PAD);
    t->dev->ops->upload(t->dev, base, fill, size + 2 * (size_t)PAD);
    free(fill);
}

void gbuf_fill(struct gbuf *b)
{
    uint8_t *fill = must_alloc(b->size);
    memset(fill, CANARY, b->size);
    b->t->dev->ops->upload(b->t->dev, b->p, fill, b->size);
    free(fill);
}

void gbuf_put(struct gbuf *b, const void *src, size_t size)
{
    b->t->ops->put(b->t->w, b->p, src, size);
}

void gbuf_get(struct gbuf *b, void *dst, size_t size)
{
    b->t->ops->get(b->t->w, dst, b->p, size);
}

static bool all_canary(struct gbuf *b, const void *from, size_t size)
{
    uint8_t *got = must_alloc(size);
    bool whole = true;
    b->t->dev->ops->download(b->t->dev, got, from, size);
    for (size_t i = 0; i < size && whole; i++)
        whole = got[i] == CANARY;
    free(got);
    return whole;
}

bool gbuf_untouched_part(struct gbuf *b, size_t from, size_t size)
{
    return all_canary(b, (uint8_t *)b->p + from, size);
}

bool gbuf_untouched(struct gbuf *b, size_t from)
{
    return gbuf_untouched_part(b, from, b->size - from);
}

void gbuf_close(struct gbuf *b)
{
    if (!b->base)
        return;
    if (!all_canary(b, b->base, PAD) || !all_canary(b, (uint8_t *)b->p + b->size, PAD))
        check_fail(&b->t->c, "wrote outside a buffer of %zu bytes", b->size);
    b->t->dev->ops->free(b->t->dev, b->base);
    *b = (struct gbuf){ 0 };
}

float *normal_floats(struct cuda_check *t, size_t n, float size)
{
    float *v = must_alloc(sizeof *v * n);
    for (size_t i = 0; i < n; i++)
        v[i] = size * rng_normal(&t->c.rng);
    return v;
}

float *normal_both(struct cuda_check *t, struct gbuf *b, size_t n, float size)
{
    float *v = normal_floats(t, n, size);
    gbuf_open(t, b, sizeof *v * n);
    t->dev->ops->upload(t->dev, b->p, v, sizeof *v * n);
    return v;
}

/* ---- matrices ---- */

double bf16_round(double x)
{
    return (double)bf16_to_f32(bf16_from_f32((float)x));
}

bool pair_rounds_x(enum dtype dtype)
{
    return dtype != DTYPE_F32 && dtype != DTYPE_F16;
}

/* The device has its own copy afterwards, so what it was taken from goes, to be missed if it is
 * read again. */
static bool pair_take(struct cuda_check *t, struct cuda_matrix_pair *p, uint8_t *rows, size_t size)
{
    struct pv_error err = { 0 };
    enum pv_status s = t->ops->take(t->dev, &p->m, &err);
    memset(rows, 0xff, size);
    if (s == PV_E_UNSUPPORTED)
        return false;
    check_must(s, &err);
    return true;
}

/* In parts of so many rows on all threads where it is worth it. */
enum { PART_ROWS = 32, LARGE = 1 << 18 };

struct part_job {
    struct work_queue parts;
    struct cuda_matrix_pair *p;
    struct rng *rng; /* of each part; NULL: the product */
    uint8_t *rows;   /* to be drawn */
    bool tame;
    const float *w;
    const double *z;
    double *y;
};

static void product_part(const struct part_job *j, int o0, int o1)
{
    int in = j->p->m.in;
    const float *w = j->w + (size_t)o0 * (size_t)in;
    for (int o = o0; o < o1; o++, w += in) {
        double sum[4] = { j->p->bias ? j->p->bias[o] : 0 };
        for (int i = 0; i < in; i++)
            sum[i % 4] += j->z[i] * w[i];
        j->y[o] = sum[0] + sum[1] + sum[2] + sum[3];
    }
}

/* Make the scale at p smaller. */
static void shrink(uint8_t *p, float by)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    h = f16_from_f32(f16_to_f32(h) * by);
    memcpy(p, &h, sizeof h);
}

static void tame_rows(uint8_t *rows, size_t size, enum dtype dtype)
{
    bool k_quant = dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K;
    bool wide = dtype == DTYPE_Q8_0 || dtype == DTYPE_IQ4_NL;
    if (dtype_block(dtype) == 1)
        return;
    for (uint8_t *p = rows; p < rows + size; p += dtype_block_size(dtype)) {
        if (dtype == DTYPE_Q6_K)
            shrink(p + 208, 1.0f / 256);
        else
            shrink(p, wide ? 1.0f / 8 : k_quant ? 1.0f / 64 : 1);
        if (k_quant)
            shrink(p + 2, 1.0f / 16);
    }
}

static void draw_part(const struct part_job *j, int o0, int o1)
{
    struct cuda_matrix_pair *p = j->p;
    size_t row = p->m.row_size, in = (size_t)p->m.in;
    uint8_t *rows = j->rows + row * (size_t)o0;
    random_rows(&j->rng[o0 / PART_ROWS], rows, row, p->given, p->m.in, o1 - o0, false);
    if (j->tame)
        tame_rows(rows, row * (size_t)(o1 - o0), p->given);
    for (int o = o0; o < o1; o++, rows += row) {
        float *w = p->w + (size_t)o * in;
        row_to_f32(w, rows, p->given, p->m.in);
        for (size_t i = 0; p->w16 && i < in; i++)
            p->w16[(size_t)o * in + i] = bf16_to_f32(bf16_from_f32(w[i]));
    }
}

static void run_parts(void *ctx, int thread, int n_threads)
{
    struct part_job *j = ctx;
    (void)thread, (void)n_threads;
    for (int i = work_next(&j->parts); i >= 0; i = work_next(&j->parts)) {
        int o0 = i * PART_ROWS, o1 = o0 + PART_ROWS, out = j->p->m.out;
        (j->rng ? draw_part : product_part)(j, o0, o1 < out ? o1 : out);
    }
}

static void run_job(struct part_job *j)
{
    work_init(&j->parts, (j->p->m.out + PART_ROWS - 1) / PART_ROWS);
    if (j->p->m.out * (int64_t)j->p->m.in < LARGE)
        run_parts(j, 0, 1);
    else
        pool_run(j->p->pool, run_parts, j);
}

/* The same numbers on any number of threads. */
static void draw_rows(struct cuda_check *t, struct cuda_matrix_pair *p, uint8_t *rows, bool tame)
{
    int parts = (p->m.out + PART_ROWS - 1) / PART_ROWS;
    struct part_job j = {
        .p = p, .rng = must_alloc(sizeof *j.rng * (size_t)parts), .rows = rows, .tame = tame
    };
    for (int i = 0; i < parts; i++)
        j.rng[i].state = rng_next(&t->c.rng);
    run_job(&j);
    free(j.rng);
}

void pair_product(const struct cuda_matrix_pair *p, double *y, const double *x, bool blocks16)
{
    int in = p->m.in;
    bool round = pair_rounds_x(p->m.dtype);
    struct cuda_matrix_pair its = *p;
    double *z = must_alloc(sizeof *z * (size_t)in);
    struct part_job j = { .p = &its, .w = blocks16 && p->w16 ? p->w16 : p->w, .z = z, .y = y };
    for (int i = 0; i < in; i++)
        z[i] = round ? bf16_round(x[i]) : x[i];
    run_job(&j);
    free(z);
}

bool pair_open(struct cuda_check *t, struct cuda_matrix_pair *p, enum dtype dtype, int in, int out,
               bool bias, unsigned kind)
{
    size_t row = dtype_row_size(dtype, in), size = row * (size_t)out;
    size_t floats = sizeof(float) * (size_t)in * (size_t)out;
    uint8_t *block = must_alloc(size + 1), *rows = block + 1; /* at any alignment */
    *p = (struct cuda_matrix_pair){ .pool = t->pool,
                                    .given = dtype,
                                    .m = { .dtype = dtype,
                                           .out = out,
                                           .in = in,
                                           .data = rows,
                                           .row_size = row,
                                           .many_rows = kind & PAIR_MANY },
                                    .w = must_alloc(floats),
                                    .w16 = dtype_block(dtype) > 1 ? must_alloc(floats) : NULL };
    draw_rows(t, p, rows, kind & PAIR_TAME);
    if (bias)
        p->bias = normal_both(t, &p->on_device, (size_t)out, 1);
    p->m.bias = p->on_device.p;
    bool taken = pair_take(t, p, rows, size);
    free(block);
    if (!taken) {
        p->m.data = NULL;
        pair_close(t, p);
    }
    return taken;
}

void pair_from(struct cuda_check *t, struct cuda_matrix_pair *p, const float *w, int in, int out)
{
    size_t size = sizeof(float) * (size_t)in * (size_t)out;
    uint8_t *rows = must_alloc(size);
    memcpy(rows, w, size);
    *p = (struct cuda_matrix_pair){ .pool = t->pool, .given = DTYPE_F32, .w = must_alloc(size) };
    memcpy(p->w, w, size);
    p->m = (struct matrix){ .dtype = DTYPE_F32,
                            .out = out,
                            .in = in,
                            .data = rows,
                            .row_size = sizeof(float) * (size_t)in };
    pair_take(t, p, rows, size);
    free(rows);
}

void pair_close(struct cuda_check *t, struct cuda_matrix_pair *p)
{
    if (p->m.data)
        t->ops->drop(t->dev, &p->m);
    gbuf_close(&p->on_device);
    free(p->w);
    free(p->w16);
    free(p->bias);
    *p = (struct cuda_matrix_pair){ 0 };
}

/* ---- command line ---- */

static int usage(const char *why)
{
    fprintf(stderr,
            "check_cuda: %s\n"
            "usage: check_cuda [--seed N] [--full] [--hopper] [words]\n",
            why);
    return 2;
}

static void run(struct cuda_check *t)
{
    struct work_shape shape = { .rows = 256,
                                .in = MAX_IN,
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 64,
                                .context = 256,
                                .kv_dtype = DTYPE_BF16,
                                .hidden = 64,
                                .ffn = 64,
                                .out = MAX_VOCAB };
    struct pv_error err = { 0 };
    check_must(t->ops->work_open(t->dev, &t->w, &shape, &err), &err);
    check_cuda_errors(t);
    check_cuda_sums(t);
    check_cuda_ops(t);
    check_cuda_tokens(t);
    check_cuda_matmul(t);
    check_cuda_layers(t);
    check_cuda_pages(t);
    check_cuda_towers(t);
    check_cuda_experts(t);
    check_cuda_views(t);
    t->ops->work_close(t->dev, &t->w);
}

int main(int argc, char **argv)
{
    static const struct level level = { .name = "cuda" };
    static struct cuda_check t = { .c = { .seed = 1, .level = &level } };
    const char *program = cudasim_hopper ? "check_cudasim" : "check_cuda";
    struct pv_error err = { 0 };
    int i;

    setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed survives a crash */
    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--full"))
            t.full = true;
        else if (!strcmp(argv[i], "--hopper") && cudasim_hopper)
            cudasim_hopper(), program = "check_cudasim --hopper";
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            t.c.seed = strtoull(argv[++i], NULL, 0);
        else
            return usage(argv[i]);
    }
    t.c.words = argv + i;
    t.c.n_words = argc - i;
    t.c.quick = !t.full;
    if (cudasim_lazy)
        cudasim_lazy(true);
    if (device_cuda_open(&t.dev, 0, &err)) {
        printf("skip cuda: %s\n0 passed, 0 failed\n", err.text);
        return 0;
    }
    t.ops = t.dev->ops;
    check_must(pool_open(&t.pool, cpu_count() < 16 ? cpu_count() : 16, &err), &err);
    left_out_open(&t.c.out, program);
    printf("seed %llu on %s\n", (unsigned long long)t.c.seed, t.ops->name);
    run(&t);
    pool_close(&t.pool);
    device_close(&t.dev);
    if (cudasim_in_use && cudasim_in_use() > 0) {
        printf("FAIL %zu bytes of the device are not freed\n", cudasim_in_use());
        t.c.failed++;
    }
    check_count(&t.c);
    return check_status(&t.c, "check_cuda");
}
