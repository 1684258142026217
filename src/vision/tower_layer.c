/* The transformer layer of the towers, per row x:
 *
 *   a = attn(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v),  n = norm(x)
 *   x = x + W_o a + b_o
 *   x = x + W_2 gelu(W_1 m + b_1) + b_2,                          m = norm(x)
 *   x = x + W_2 (silu(W_g m + b_g) * (W_1 m + b_1)) + b_2         where the MLP has a gate
 *
 * with rope or without. The norm is LayerNorm where it has a bias, else RMSNorm. Attention is
 * without a mask inside a segment: a slice, a window or a chunk of sound. x holds all rows of a
 * call; q, k and v only those of the segments that are attended together; everything between two
 * matrices only TOWER_CHUNK rows. Kernels are row-invariant, so none of these cuts changes a bit.
 */
#include "vision/tower_layer.h"

#include "base/minmax.h"
#include "tensor/weights.h"

void tower_norm(const struct layer_room *r, float *y, const float *x, const float *weight,
                const float *bias, int n, int dim)
{
    if (bias)
        r->ops->layernorm(r->work, y, x, weight, bias, n, dim, r->eps);
    else
        r->ops->rmsnorm(r->work, y, x, weight, n, dim, r->eps);
}

/* q, k and v in one go, if the device can: n rows from `row` on, to rows from `at` on. */
static bool project_at_once(const struct layer_room *r, const struct tower_layer *l, size_t row,
                            int at, int n)
{
    size_t to = (size_t)at * (size_t)r->hidden, half = (size_t)r->head_dim / 2;
    struct tower_qkv t = { .w = l,
                           .x = r->x + row * (size_t)r->hidden,
                           .to = { r->q + to, r->k + to, r->v + to },
                           .cos = r->cos ? r->cos + row * half : NULL,
                           .sin = r->cos ? r->sin + row * half : NULL,
                           .n = n,
                           .hidden = r->hidden,
                           .n_heads = r->n_heads,
                           .head_dim = r->head_dim,
                           .eps = r->eps };
    return r->ops->tower_qkv && r->ops->tower_qkv(r->work, &t);
}

/* q, k and v of rows [row0, row0 + n) of x, to the beginning of their buffers. */
static void project_qkv(const struct layer_room *r, const struct tower_layer *l, int row0, int n)
{
    size_t hidden = (size_t)r->hidden, half = (size_t)r->head_dim / 2;
    for (int at = 0; at < n; at += TOWER_CHUNK) {
        int m = min_int(TOWER_CHUNK, n - at);
        size_t to = (size_t)at * hidden, row = (size_t)(row0 + at);
        struct matmul_job qkv[] = { { &l->q, r->q + to, hidden },
                                    { &l->k, r->k + to, hidden },
                                    { &l->v, r->v + to, hidden } };
        if (project_at_once(r, l, row, at, m))
            continue;
        tower_norm(r, r->xn, r->x + row * hidden, l->norm1, l->norm1_bias, m, r->hidden);
        r->ops->matmul(r->work, qkv, 3, r->xn, m);
        for (int i = 0; r->cos && i < 2; i++)
            r->ops->rope(r->work, qkv[i].y, m, r->n_heads, r->head_dim, NULL, 0,
                         r->cos + row * half, r->sin + row * half);
    }
}

/* What follows attention in one go, if the device can: the n rows x, to which `a` was attended. */
static bool finish_at_once(const struct layer_room *r, const struct tower_layer *l, float *x,
                           const float *a, int n)
{
    struct tower_tail t = { .w = l,
                            .x = x,
                            .a = a,
                            .n = n,
                            .hidden = r->hidden,
                            .eps = r->eps,
                            .gelu = r->gelu,
                            .room = r->up,
                            .room_size = sizeof(float) * TOWER_CHUNK * (size_t)r->ffn };
    return r->ops->tower_tail && r->ops->tower_tail(r->work, &t);
}

/* What follows attention, for the rows [row0, row0 + n) of x. */
static void finish_rows(const struct layer_room *r, const struct tower_layer *l, int row0, int n)
{
    size_t hidden = (size_t)r->hidden, ffn = (size_t)r->ffn;
    for (int at = 0; at < n; at += TOWER_CHUNK) {
        int m = min_int(TOWER_CHUNK, n - at);
        float *x = r->x + (size_t)(row0 + at) * hidden;
        struct matmul_job o = { &l->o, r->tmp, hidden };
        struct matmul_job down = { &l->down, r->tmp, hidden };
        struct matmul_job up_gate[] = { { &l->up, r->up, ffn }, { &l->gate, r->gate, ffn } };
        if (finish_at_once(r, l, x, r->q + (size_t)at * hidden, m))
            continue;
        r->ops->matmul(r->work, &o, 1, r->q + (size_t)at * hidden, m);
        r->ops->add(r->work, x, r->tmp, m, r->hidden);
        tower_norm(r, r->xn, x, l->norm2, l->norm2_bias, m, r->hidden);
        r->ops->matmul(r->work, up_gate, l->gate.data ? 2 : 1, r->xn, m);
        if (l->gate.data)
            r->ops->silu_mul(r->work, r->gate, r->up, m, r->ffn);
        else
            r->ops->gelu(r->work, r->up, m, r->ffn, r->gelu);
        r->ops->matmul(r->work, &down, 1, l->gate.data ? r->gate : r->up, m);
        r->ops->add(r->work, x, r->tmp, m, r->hidden);
    }
}

static void layer_block(const struct layer_room *r, const struct tower_layer *l, const int *bounds,
                        int n_segments)
{
    struct tower_block b = { .w = l,
                             .x = r->x,
                             .n = bounds[n_segments],
                             .hidden = r->hidden,
                             .ffn = r->ffn,
                             .n_heads = r->n_heads,
                             .head_dim = r->head_dim,
                             .cos = r->cos,
                             .sin = r->sin,
                             .eps = r->eps,
                             .gelu = r->gelu,
                             .n_segments = n_segments,
                             .bounds = bounds };
    r->ops->tower(r->work, &b);
}

/* One layer over the segments, as many of them together as fill a chunk. */
static void layer_parts(const struct layer_room *r, const struct tower_layer *l, const int *bounds,
                        int n_segments)
{
    for (int first = 0; first < n_segments;) {
        int row0 = bounds[first], end = first + 1;
        while (end < n_segments && bounds[end + 1] - row0 <= TOWER_CHUNK)
            end++;
        for (int i = first; i <= end; i++)
            r->segments[i - first] = bounds[i] - row0;
        project_qkv(r, l, row0, bounds[end] - row0);
        struct full_attn_job job = { .out = r->q,
                                     .q = r->q,
                                     .k = r->k,
                                     .v = r->v,
                                     .n_heads = r->n_heads,
                                     .d = r->head_dim,
                                     .scale = 1.0f / __builtin_sqrtf((float)r->head_dim),
                                     .dtype = r->attn,
                                     .n_segments = end - first,
                                     .bounds = r->segments };
        r->ops->attention_full(r->work, &job);
        finish_rows(r, l, row0, bounds[end] - row0);
        first = end;
    }
}

void tower_layer_run(const struct layer_room *r, const struct tower_layer *l, const int *bounds,
                     int n_segments)
{
    if (r->ops->tower)
        layer_block(r, l, bounds, n_segments);
    else
        layer_parts(r, l, bounds, n_segments);
}

/* ---- weights ---- */

size_t tower_layer_floats(const struct vision_layer_tensors *t)
{
    const struct tensor *all[] = { t->norm1,   t->norm1_bias, t->norm2,    t->norm2_bias,
                                   t->q_bias,  t->k_bias,     t->v_bias,   t->o_bias,
                                   t->up_bias, t->gate_bias,  t->down_bias };
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        n += weights_count(all[i]);
    return n;
}

enum pv_status tower_take_parts(struct device *dev, const struct tower_part *parts, size_t n,
                                float **at, struct pv_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct tower_part *p = &parts[i];
        struct matrix m;
        enum pv_status s;
        if (!p->t)
            continue;
        m = weights_matrix(p->t, p->out, p->in, weights_small(dev, at, p->bias));
        m.many_rows = true;
        s = weights_take(dev, p->m, m, err);
        if (s)
            return s;
    }
    return PV_OK;
}

enum pv_status tower_take_layer(struct device *dev, struct tower_layer *l,
                                const struct vision_layer_tensors *t, int hidden, int ffn,
                                float **at, struct pv_error *err)
{
    const struct tower_part parts[] = {
        { &l->q, t->q, t->q_bias, hidden, hidden },
        { &l->k, t->k, t->k_bias, hidden, hidden },
        { &l->v, t->v, t->v_bias, hidden, hidden },
        { &l->o, t->o, t->o_bias, hidden, hidden },
        { &l->gate, t->gate, t->gate_bias, ffn, hidden },
        { &l->up, t->up, t->up_bias, ffn, hidden },
        { &l->down, t->down, t->down_bias, hidden, ffn },
    };
    enum pv_status s;
    l->norm1 = weights_small(dev, at, t->norm1);
    l->norm1_bias = weights_small(dev, at, t->norm1_bias);
    l->norm2 = weights_small(dev, at, t->norm2);
    l->norm2_bias = weights_small(dev, at, t->norm2_bias);
    s = tower_take_parts(dev, parts, sizeof parts / sizeof *parts, at, err);
    if (!s && dev->ops->join)
        dev->ops->join(dev, (struct matrix *[]){ &l->q, &l->k, &l->v }, 3);
    return s;
}

void tower_drop_layer(struct device *dev, struct tower_layer *l)
{
    struct matrix *own[] = { &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        weights_drop(dev, own[i]);
}

/* Keys and values are rounded no more than the weights were: F32 keeps them whole, 16-bit weights
 * round them to their own type, as the reference does when it runs in it. Blocks of 8 bits and less
 * are as coarse as BF16, which is the type with the fastest attention where there is one. */
enum dtype tower_attention_dtype(const struct tensor *k)
{
    return k->dtype == DTYPE_F32 || k->dtype == DTYPE_F16 ? k->dtype : DTYPE_BF16;
}

/* ---- memory of a state ---- */

void *tower_reserve(struct arena *a, size_t *total, size_t size)
{
    if (size == 0)
        return NULL;
    *total += arena_cost(size);
    return a ? arena_push(a, size) : NULL;
}

enum pv_status tower_memory_open(struct device *dev, void **block, size_t device_size,
                                 struct arena *on_device, struct arena *on_host, size_t host_size,
                                 struct pv_error *err)
{
    enum pv_status s = device_alloc(dev, block, device_size, err);
    if (s)
        return s;
    if (!arena_open(on_host, host_size))
        return fail_nomem(err, host_size);
    arena_init(on_device, *block, device_size);
    return PV_OK;
}

void tower_memory_close(struct device *dev, void *block, struct arena *on_host)
{
    if (block)
        dev->ops->free(dev, block);
    arena_close(on_host);
}
