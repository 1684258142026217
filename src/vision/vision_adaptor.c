/* y = W_down gelu(W_up norm(x) + b_up) + b_down, for rows that are chosen from many: only the rows
 * that a view keeps are gathered, go through the matrices, and come back to the host. */
#include "vision/vision_adaptor.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "tensor/weights.h"
#include "vision/tower_layer.h"

#include <string.h>

/* Rows together: as in a tower on a CPU; on a GPU as many as a view keeps of a long video. */
enum { CPU_ROWS = 512, GPU_ROWS = 2048 };

struct vision_adaptor {
    struct vision_adaptor_config c;
    struct device *dev;
    float *small; /* norm and biases as f32, on the device */
    const float *norm, *norm_bias;
    struct matrix up, down;
};

struct vision_adaptor_state {
    const struct vision_adaptor *a;
    struct device_work *work;
    void *block; /* on the device; the following lie in it */
    int32_t *rows;
    float *x, *middle, *y; /* [rows, in] [rows, middle] [rows, out] */
    struct arena arena;    /* on the host; the following lie in it */
    int32_t *host_rows;
    float *host_x; /* rows of the host, before they are copied */
    float *host_y; /* rows that are narrower than the caller's */
};

/* ---- weights ---- */

static enum pv_status take_tensors(struct vision_adaptor *a, const struct vision_adaptor_tensors *t,
                                   struct pv_error *err)
{
    const struct vision_adaptor_config *c = &a->c;
    const struct tower_part parts[] = {
        { &a->up, t->up, t->up_bias, c->middle, c->in },
        { &a->down, t->down, t->down_bias, c->out, c->middle },
    };
    size_t n = weights_count(t->norm) + weights_count(t->norm_bias) + weights_count(t->up_bias) +
               weights_count(t->down_bias);
    void *small = NULL;
    float *at;
    enum pv_status s = device_alloc(a->dev, &small, n * sizeof *at, err);
    if (s)
        return s;
    a->small = at = small;
    a->norm = weights_small(a->dev, &at, t->norm);
    a->norm_bias = weights_small(a->dev, &at, t->norm_bias);
    return tower_take_parts(a->dev, parts, sizeof parts / sizeof *parts, &at, err);
}

/* Matrices that the device draws, and a norm that scales nothing. */
static enum pv_status draw_tensors(struct vision_adaptor *a, struct pv_error *err)
{
    const struct vision_adaptor_config *c = &a->c;
    struct matrix up = { .dtype = DTYPE_BF16, .out = c->middle, .in = c->in, .many_rows = true };
    struct matrix down = { .dtype = DTYPE_BF16, .out = c->out, .in = c->middle, .many_rows = true };
    size_t n = (size_t)c->in;
    float *ones = mem_alloc(n * sizeof *ones);
    void *small = NULL;
    enum pv_status s = ones ? device_alloc(a->dev, &small, n * sizeof *ones, err)
                            : fail_nomem(err, n * sizeof *ones);
    a->norm = a->small = small;
    up.row_size = dtype_row_size(up.dtype, up.in);
    down.row_size = dtype_row_size(down.dtype, down.in);
    for (size_t i = 0; i < n && !s; i++)
        ones[i] = 1;
    if (!s) {
        a->dev->ops->upload(a->dev, small, ones, n * sizeof *ones);
        s = weights_take(a->dev, &a->up, up, err);
    }
    if (!s)
        s = weights_take(a->dev, &a->down, down, err);
    mem_free(ones);
    return s;
}

enum pv_status vision_adaptor_open(struct vision_adaptor **out,
                                   const struct vision_adaptor_config *c,
                                   const struct vision_adaptor_tensors *t, struct device *dev,
                                   struct pv_error *err)
{
    struct vision_adaptor *a = mem_zalloc(sizeof *a);
    enum pv_status s;
    if (!a)
        return fail_nomem(err, sizeof *a);
    a->c = *c;
    a->dev = dev;
    s = t ? take_tensors(a, t, err) : draw_tensors(a, err);
    if (s)
        vision_adaptor_close(&a);
    else
        *out = a;
    return s;
}

void vision_adaptor_close(struct vision_adaptor **a)
{
    struct vision_adaptor *old = *a;
    *a = NULL;
    if (!old)
        return;
    weights_drop(old->dev, &old->up);
    weights_drop(old->dev, &old->down);
    if (old->small)
        old->dev->ops->free(old->dev, old->small);
    mem_free(old);
}

/* ---- state ---- */

int vision_adaptor_rows(const struct vision_adaptor *a)
{
    return a->dev->ops->tower ? GPU_ROWS : CPU_ROWS;
}

static struct work_shape work_shape_of(const struct vision_adaptor *a)
{
    const struct vision_adaptor_config *c = &a->c;
    return (struct work_shape){ .rows = vision_adaptor_rows(a),
                                .in = max_int(c->in, c->middle),
                                .out = max_int(c->middle, c->out),
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 64,
                                .kv_dtype = DTYPE_BF16 };
}

static size_t carve_device(struct vision_adaptor_state *st, struct arena *arena,
                           const struct vision_adaptor *a)
{
    size_t rows = (size_t)vision_adaptor_rows(a), f = sizeof(float), total = 0;
    st->rows = tower_reserve(arena, &total, rows * sizeof *st->rows);
    st->x = tower_reserve(arena, &total, f * rows * (size_t)a->c.in);
    st->middle = tower_reserve(arena, &total, f * rows * (size_t)a->c.middle);
    st->y = tower_reserve(arena, &total, f * rows * (size_t)a->c.out);
    return total;
}

static size_t carve_host(struct vision_adaptor_state *st, struct arena *arena,
                         const struct vision_adaptor *a)
{
    size_t rows = (size_t)vision_adaptor_rows(a), f = sizeof(float), total = 0;
    st->host_rows = tower_reserve(arena, &total, rows * sizeof *st->host_rows);
    st->host_x = tower_reserve(arena, &total, f * rows * (size_t)a->c.in);
    st->host_y = tower_reserve(arena, &total, f * rows * (size_t)a->c.out);
    return total;
}

size_t vision_adaptor_state_size(const struct vision_adaptor *a)
{
    struct work_shape shape = work_shape_of(a);
    struct vision_adaptor_state none;
    return carve_device(&none, NULL, a) + carve_host(&none, NULL, a) +
           a->dev->ops->work_size(a->dev, &shape);
}

enum pv_status vision_adaptor_state_open(struct vision_adaptor_state **out,
                                         const struct vision_adaptor *a, struct pv_error *err)
{
    struct work_shape shape = work_shape_of(a);
    struct vision_adaptor_state *st = mem_zalloc(sizeof *st);
    struct arena there;
    enum pv_status s;
    if (!st)
        return fail_nomem(err, sizeof *st);
    st->a = a;
    s = tower_memory_open(a->dev, &st->block, carve_device(st, NULL, a), &there, &st->arena,
                          carve_host(st, NULL, a), err);
    if (!s) {
        carve_device(st, &there, a);
        carve_host(st, &st->arena, a);
        s = a->dev->ops->work_open(a->dev, &st->work, &shape, err);
    }
    if (s)
        vision_adaptor_state_close(&st);
    else
        *out = st;
    return s;
}

void vision_adaptor_state_close(struct vision_adaptor_state **st)
{
    struct vision_adaptor_state *old = *st;
    *st = NULL;
    if (!old)
        return;
    old->a->dev->ops->work_close(old->a->dev, &old->work);
    tower_memory_close(old->a->dev, old->block, &old->arena);
    mem_free(old);
}

void vision_adaptor_state_work_on(struct vision_adaptor_state *st, struct device *group)
{
    st->a->dev->ops->work_on(st->work, group);
}

/* ---- running ---- */

/* The rows of the job into st->x. */
static void gather(struct vision_adaptor_state *st, const struct adaptor_job *job)
{
    const struct vision_adaptor_config *c = &st->a->c;
    const struct device_ops *ops = st->a->dev->ops;
    size_t n = (size_t)job->n, row = (size_t)c->in * sizeof(float);
    int32_t parts = job->from_width / c->in;
    if (!job->from_device) {
        for (size_t i = 0; i < n; i++)
            memcpy((char *)st->host_x + i * row,
                   job->from + (size_t)job->rows[i] * (size_t)job->from_width, row);
        ops->put(st->work, st->x, st->host_x, n * row);
        return;
    }
    for (size_t i = 0; i < n; i++)
        st->host_rows[i] = job->rows[i] * parts;
    ops->put(st->work, st->rows, st->host_rows, n * sizeof *st->rows);
    ops->gather(st->work, st->x, job->from, st->rows, job->n, c->in);
}

/* st->y to the caller's rows. */
static enum pv_status hand_out(struct vision_adaptor_state *st, const struct adaptor_job *job,
                               struct pv_error *err)
{
    const struct vision_adaptor_config *c = &st->a->c;
    const struct device_ops *ops = st->a->dev->ops;
    bool narrow = c->out < job->out_width;
    size_t n = (size_t)job->n, out = (size_t)c->out, width = (size_t)job->out_width;
    enum pv_status s;
    ops->get(st->work, narrow ? st->host_y : job->out, st->y, n * out * sizeof *st->y);
    s = ops->wait(st->work, err);
    if (s || !narrow)
        return s;
    for (size_t i = 0; i < n; i++) {
        memcpy(job->out + i * width, st->host_y + i * out, out * sizeof *job->out);
        memset(job->out + i * width + out, 0, (width - out) * sizeof *job->out);
    }
    return PV_OK;
}

enum pv_status vision_adaptor_run(struct vision_adaptor_state *st, const struct adaptor_job *job,
                                  struct pv_error *err)
{
    const struct vision_adaptor *a = st->a;
    const struct device_ops *ops = a->dev->ops;
    const struct layer_room room = { .ops = ops, .work = st->work, .eps = a->c.eps };
    struct matmul_job up = { &a->up, st->middle, (size_t)a->c.middle };
    struct matmul_job down = { &a->down, st->y, (size_t)a->c.out };
    if (job->n > vision_adaptor_rows(a))
        return fail(err, PV_E_LIMIT, "%d rows at once: the adaptor's state has room for %d", job->n,
                    vision_adaptor_rows(a));
    gather(st, job);
    tower_norm(&room, st->x, st->x, a->norm, a->norm_bias, job->n, a->c.in);
    ops->matmul(st->work, &up, 1, st->x, job->n);
    ops->gelu(st->work, st->middle, job->n, a->c.middle, GELU_ERF);
    ops->matmul(st->work, &down, 1, st->middle, job->n);
    return hand_out(st, job, err);
}
