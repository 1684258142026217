/* The transformer layer of the vision towers, per row x:
 *
 *   a = attn(rope(W_q n + b_q), rope(W_k n + b_k), W_v n + b_v),  n = norm(x)
 *   x = x + W_o a + b_o
 *   x = x + W_2 gelu(W_1 m + b_1) + b_2,                          m = norm(x)
 *   x = x + W_2 (silu(W_g m + b_g) * (W_1 m + b_1)) + b_2         where the MLP has a gate
 *
 * with rope or without. The norm is LayerNorm where it has a bias, else RMSNorm. Attention is
 * without a mask inside a segment: a slice or a window. x holds all rows of a call; q, k and v only
 * those of the segments that are attended together; everything between two matrices only
 * TOWER_CHUNK rows. Kernels are row-invariant, so none of these cuts changes a bit. */
#include "vision/tower.h"

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

int tower_patch_size(const struct vision_config *c)
{
    return 3 * c->temporal * c->patch * c->patch;
}

int tower_widest(const struct vision_config *c)
{
    int cols = 1;
    for (int i = 0; i < c->n_grid; i++)
        if (c->grid[i][1] / c->image > cols)
            cols = c->grid[i][1] / c->image;
    return cols * vision_side(c);
}

void tower_embed(struct tower_pass *p, float *y)
{
    const struct vision *v = p->v;
    struct vision_state *st = p->st;
    size_t row = (size_t)tower_patch_size(&v->c), hidden = (size_t)v->c.hidden;
    int chunk = tower_chunk(v);
    for (int at = 0; at < p->n; at += chunk) {
        int n = min_int(chunk, p->n - at);
        struct matmul_job job = { &v->patch, y + (size_t)at * hidden, hidden };
        p->ops->put(st->work, st->up, p->patches + (size_t)at * row,
                    sizeof(float) * (size_t)n * row);
        p->ops->matmul(st->work, &job, 1, st->up, n);
    }
}

static void norm(struct tower_pass *p, float *y, const float *x, const float *weight,
                 const float *bias, int n, int dim)
{
    const struct vision_config *c = &p->v->c;
    if (bias)
        p->ops->layernorm(p->st->work, y, x, weight, bias, n, dim, c->eps);
    else
        p->ops->rmsnorm(p->st->work, y, x, weight, n, dim, c->eps);
}

/* q, k and v of rows [row0, row0 + n) of x, to the beginning of their buffers. */
static void project_qkv(struct tower_pass *p, const struct tower_layer *l, int row0, int n)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    size_t hidden = (size_t)c->hidden, half = (size_t)c->head_dim / 2;
    for (int at = 0; at < n; at += TOWER_CHUNK) {
        int m = min_int(TOWER_CHUNK, n - at);
        size_t to = (size_t)at * hidden, row = (size_t)(row0 + at);
        struct matmul_job qkv[] = { { &l->q, st->q + to, hidden },
                                    { &l->k, st->k + to, hidden },
                                    { &l->v, st->v + to, hidden } };
        norm(p, st->xn, st->x + row * hidden, l->norm1, l->norm1_bias, m, c->hidden);
        p->ops->matmul(st->work, qkv, 3, st->xn, m);
        for (int i = 0; st->cos && i < 2; i++)
            p->ops->rope(st->work, qkv[i].y, m, c->n_heads, c->head_dim, NULL, 0,
                         st->cos + row * half, st->sin + row * half);
    }
}

/* What follows attention in one go, if the device can: the n rows x, to which `a` was attended. */
static bool finish_at_once(struct tower_pass *p, const struct tower_layer *l, float *x,
                           const float *a, int n)
{
    const struct vision_config *c = &p->v->c;
    struct tower_tail t = { .w = l,
                            .x = x,
                            .a = a,
                            .n = n,
                            .hidden = c->hidden,
                            .eps = c->eps,
                            .gelu = c->family->tower->gelu,
                            .room = p->st->up,
                            .room_size = sizeof(float) * TOWER_CHUNK * (size_t)c->ffn };
    return p->ops->tower_tail && p->ops->tower_tail(p->st->work, &t);
}

/* What follows attention, for the rows [row0, row0 + n) of x. */
static void finish_rows(struct tower_pass *p, const struct tower_layer *l, int row0, int n)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    size_t hidden = (size_t)c->hidden, ffn = (size_t)c->ffn;
    for (int at = 0; at < n; at += TOWER_CHUNK) {
        int m = min_int(TOWER_CHUNK, n - at);
        float *x = st->x + (size_t)(row0 + at) * hidden;
        struct matmul_job o = { &l->o, st->tmp, hidden };
        struct matmul_job down = { &l->down, st->tmp, hidden };
        struct matmul_job up_gate[] = { { &l->up, st->up, ffn }, { &l->gate, st->gate, ffn } };
        if (finish_at_once(p, l, x, st->q + (size_t)at * hidden, m))
            continue;
        p->ops->matmul(st->work, &o, 1, st->q + (size_t)at * hidden, m);
        p->ops->add(st->work, x, st->tmp, m, c->hidden);
        norm(p, st->xn, x, l->norm2, l->norm2_bias, m, c->hidden);
        p->ops->matmul(st->work, up_gate, l->gate.data ? 2 : 1, st->xn, m);
        if (l->gate.data)
            p->ops->silu_mul(st->work, st->gate, st->up, m, c->ffn);
        else
            p->ops->gelu(st->work, st->up, m, c->ffn, c->family->tower->gelu);
        p->ops->matmul(st->work, &down, 1, l->gate.data ? st->gate : st->up, m);
        p->ops->add(st->work, x, st->tmp, m, c->hidden);
    }
}

static void layer_block(struct tower_pass *p, const struct tower_layer *l, const int *bounds,
                        int n_segments)
{
    const struct vision_config *c = &p->v->c;
    struct tower_block b = { .w = l,
                             .x = p->st->x,
                             .n = p->n,
                             .hidden = c->hidden,
                             .ffn = c->ffn,
                             .n_heads = c->n_heads,
                             .head_dim = c->head_dim,
                             .cos = p->st->cos,
                             .sin = p->st->sin,
                             .eps = c->eps,
                             .gelu = c->family->tower->gelu,
                             .n_segments = n_segments,
                             .bounds = bounds };
    p->ops->tower(p->st->work, &b);
}

/* One layer over the segments, as many of them together as fill a chunk. */
static void layer_run(struct tower_pass *p, const struct tower_layer *l, const int *bounds,
                      int n_segments)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    for (int first = 0; first < n_segments;) {
        int row0 = bounds[first], end = first + 1;
        while (end < n_segments && bounds[end + 1] - row0 <= TOWER_CHUNK)
            end++;
        for (int i = first; i <= end; i++)
            st->segments[i - first] = bounds[i] - row0;
        project_qkv(p, l, row0, bounds[end] - row0);
        struct full_attn_job job = { .out = st->q,
                                     .q = st->q,
                                     .k = st->k,
                                     .v = st->v,
                                     .n_heads = c->n_heads,
                                     .d = c->head_dim,
                                     .scale = 1.0f / __builtin_sqrtf((float)c->head_dim),
                                     .dtype = p->v->attn,
                                     .n_segments = end - first,
                                     .bounds = st->segments };
        p->ops->attention_full(st->work, &job);
        finish_rows(p, l, row0, bounds[end] - row0);
        first = end;
    }
}

void tower_layers(struct tower_pass *p)
{
    const struct vision *v = p->v;
    const struct vision_watch *watch = &p->st->watch;
    for (int i = 0; i < v->c.n_layers; i++) {
        p->stopped = watch->go_on && !watch->go_on(watch->user);
        if (p->stopped)
            return;
        bool windows = p->st->windows && !v->c.full[i];
        const int *bounds = windows ? p->st->windows : p->st->slices;
        int n_segments = windows ? p->n_windows : p->n_slices;
        if (p->ops->tower)
            layer_block(p, &v->layer[i], bounds, n_segments);
        else
            layer_run(p, &v->layer[i], bounds, n_segments);
        for (int k = 0; k < v->c.n_deepstack; k++)
            if (v->c.deepstack[k] == i)
                tower_project(p, &v->deepstack[k], p->st->x, 1 + k);
    }
}

void tower_project(struct tower_pass *p, const struct merger *m, const float *x, int part)
{
    const struct vision *v = p->v;
    struct vision_state *st = p->st;
    int unit = v->c.merge * v->c.merge, chunk = tower_chunk(v);
    size_t out = (size_t)v->c.out, row = (size_t)vision_row_size(&v->c);
    bool kept = !p->out || row > out;
    for (int at = 0; at < p->n; at += chunk) {
        int n = min_int(chunk, p->n - at), tokens = n / unit;
        const float *rows = x + (size_t)at * (size_t)v->c.hidden;
        struct matmul_job mm0 = { &m->mm0, st->up, (size_t)m->mm0.out };
        float *to = kept ? st->tokens + (size_t)(at / unit) * row + (size_t)part * out : st->tmp;
        struct matmul_job mm2 = { &m->mm2, to, row };
        if (m->norm) {
            int per = m->norm_dim / v->c.hidden;
            norm(p, st->xn, rows, m->norm, m->norm_bias, n / per, m->norm_dim);
            rows = st->xn;
        }
        p->ops->matmul(st->work, &mm0, 1, rows, tokens);
        p->ops->gelu(st->work, st->up, tokens, m->mm0.out, GELU_ERF);
        p->ops->matmul(st->work, &mm2, 1, st->up, tokens);
        if (!kept)
            p->ops->get(st->work, p->out + (size_t)(at / unit) * out, to,
                        sizeof(float) * (size_t)tokens * out);
    }
}
