/* The computation of vision towers: before, in and after their layers. */
#include "vision/tower.h"

#include "base/minmax.h"
#include "video/patches.h"

#include <string.h>

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

/* The bytes of all frames of a call, and what they become. */
static void put_frames(struct tower_pass *p)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    struct patch_plan plan = { .patch = c->patch, .temporal = c->temporal, .merge = c->merge };
    size_t frame = (size_t)p->frames->height * (size_t)p->frames->width * 3;
    float table[3][256];
    memcpy(plan.mean, c->mean, sizeof plan.mean);
    memcpy(plan.std, c->std, sizeof plan.std);
    patches_table(table, &plan);
    if (st->next_pixels) {
        uint8_t *other = st->pixels;
        st->pixels = st->next_pixels;
        st->next_pixels = other;
    }
    p->ops->put(st->work, st->table, table, sizeof table);
    (p->ops->put_ahead ? p->ops->put_ahead : p->ops->put)(
        st->work, st->pixels, p->frames->rgb, (size_t)p->n_slices * (size_t)c->temporal * frame);
}

/* Patches [at, at + n) of the call, in st->up. */
static void put_patches(struct tower_pass *p, int at, int n)
{
    const struct vision_config *c = &p->v->c;
    size_t row = (size_t)tower_patch_size(c);
    struct patch_job job = { .out = p->st->up,
                             .frames = p->st->pixels,
                             .table = p->st->table,
                             .patch = c->patch,
                             .temporal = c->temporal,
                             .merge = c->merge,
                             .from = at,
                             .n = n };
    if (!p->frames) {
        p->ops->put(p->st->work, p->st->up, p->patches + (size_t)at * row,
                    sizeof(float) * (size_t)n * row);
        return;
    }
    job.height = p->frames->height;
    job.width = p->frames->width;
    p->ops->patches(p->st->work, &job);
}

void tower_embed(struct tower_pass *p, float *y)
{
    const struct vision *v = p->v;
    struct vision_state *st = p->st;
    size_t hidden = (size_t)v->c.hidden;
    int chunk = tower_chunk(v);
    if (p->frames)
        put_frames(p);
    for (int at = 0; at < p->n; at += chunk) {
        int n = min_int(chunk, p->n - at);
        struct matmul_job job = { &v->patch, y + (size_t)at * hidden, hidden };
        put_patches(p, at, n);
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
