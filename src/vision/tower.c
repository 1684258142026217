/* What the vision towers do before and after their layers, and the layers of one call. */
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

/* The layers' part of a call. */
static struct layer_room layer_room(const struct tower_pass *p)
{
    const struct vision_config *c = &p->v->c;
    const struct vision_state *st = p->st;
    return (struct layer_room){ .ops = p->ops,
                                .work = st->work,
                                .hidden = c->hidden,
                                .ffn = c->ffn,
                                .n_heads = c->n_heads,
                                .head_dim = c->head_dim,
                                .eps = c->eps,
                                .gelu = c->family->tower->gelu,
                                .attn = p->v->attn,
                                .x = st->x,
                                .q = st->q,
                                .k = st->k,
                                .v = st->v,
                                .cos = st->cos,
                                .sin = st->sin,
                                .xn = st->xn,
                                .tmp = st->tmp,
                                .gate = st->gate,
                                .up = st->up,
                                .segments = st->segments };
}

void tower_layers(struct tower_pass *p)
{
    const struct vision *v = p->v;
    const struct vision_watch *watch = &p->st->watch;
    const struct layer_room room = layer_room(p);
    for (int i = 0; i < v->c.n_layers; i++) {
        p->stopped = watch->go_on && !watch->go_on(watch->user);
        if (p->stopped)
            return;
        bool windows = p->st->windows && !v->c.full[i];
        const int *bounds = windows ? p->st->windows : p->st->slices;
        int n_segments = windows ? p->n_windows : p->n_slices;
        tower_layer_run(&room, &v->layer[i], bounds, n_segments);
        for (int k = 0; k < v->c.n_deepstack; k++)
            if (v->c.deepstack[k] == i)
                tower_project(p, &v->deepstack[k], p->st->x, 1 + k);
    }
}

void tower_project(struct tower_pass *p, const struct merger *m, const float *x, int part)
{
    const struct vision *v = p->v;
    struct vision_state *st = p->st;
    const struct layer_room room = layer_room(p);
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
            tower_norm(&room, st->xn, rows, m->norm, m->norm_bias, n / per, m->norm_dim);
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
