/* The tower of Qwen2.5-VL. Rows come as merge units: merge * merge
 * patches of one output token side by side. All layers run with the units in window order, so that
 * windows and slices are both runs of rows; before the merger the units go back.
 *
 * Rope turns pair (j, j + d/2) of a head by row * f_j for the first half of the pairs and by
 * column * f_j for the second, f_j = 10000^(-4j/d), in the grid of patches. */
#include "tensor/quant.h"
#include "tensor/weights.h"
#include "vision/tower.h"
#include "vision/windows.h"

#include <math.h>
#include <string.h>

static const double rope_theta = 10000;

/* ---- opening ---- */

/* As f32, because the two may have any type; the matrix is small beside the layers. */
enum pv_status qwen2_5_join(struct vision *v, const struct tensor *const frames[2],
                            struct pv_error *err)
{
    size_t area = (size_t)v->c.patch * (size_t)v->c.patch, in = 3 * 2 * area;
    size_t size = sizeof(float) * (size_t)v->c.hidden * in;
    float *rows = mem_alloc(sizeof(float) * 3 * area);
    struct matrix m = { .dtype = DTYPE_F32,
                        .out = v->c.hidden,
                        .in = (int)in,
                        .row_size = sizeof(float) * in,
                        .many_rows = true };
    v->joined = mem_alloc(size);
    if (!rows || !v->joined) {
        mem_free(rows);
        return fail_nomem(err, size);
    }
    for (size_t r = 0; r < (size_t)v->c.hidden; r++)
        for (size_t t = 0; t < 2; t++) {
            size_t row_size = dtype_row_size(frames[t]->dtype, (int64_t)(3 * area));
            row_to_f32(rows, (const uint8_t *)frames[t]->data + r * row_size, frames[t]->dtype,
                       (int64_t)(3 * area));
            for (size_t channel = 0; channel < 3; channel++)
                memcpy(v->joined + r * in + (channel * 2 + t) * area, rows + channel * area,
                       sizeof(float) * area);
        }
    mem_free(rows);
    m.data = v->joined;
    return weights_take(v->dev, &v->patch, m, err);
}

/* ---- order ---- */

/* Bounds of slices and windows in rows, and the order of the units of all slices. */
static void plan_windows(struct tower_pass *p)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    int gh = p->h / c->merge, gw = p->w / c->merge, units = gh * gw, unit = c->merge * c->merge;
    int side = c->window / c->patch / c->merge, per_slice = windows_count(gh, gw, side);
    p->n_windows = p->n_slices * per_slice;
    for (int s = 0; s < p->n_slices; s++) {
        int *order = st->order + (size_t)s * (size_t)units;
        int *windows = st->windows + (size_t)s * (size_t)per_slice;
        windows_order(order, windows, gh, gw, side);
        for (int i = 0; i < units; i++)
            order[i] += s * units;
        for (int i = 0; i <= per_slice; i++) /* the next slice begins where this one ends */
            windows[i] = (windows[i] + s * units) * unit;
        st->slices[s] = s * units * unit;
    }
    st->slices[p->n_slices] = p->n;
}

/* ---- positions ---- */

void qwen2_5_frequencies(struct vision *v)
{
    int n = v->c.head_dim / 4;
    for (int j = 0; j < n; j++)
        v->inv_freq[j] = (float)pow(rope_theta, -4.0 * j / v->c.head_dim);
}

/* cos and sin of one row at (y, x) of the grid of patches. */
static void rope_row(const struct vision *v, float *cos, float *sin, int y, int x)
{
    int n = v->c.head_dim / 4;
    for (int j = 0; j < 2 * n; j++) {
        float angle = (float)(j < n ? y : x) * v->inv_freq[j % n]; /* in f32, as the reference */
        cos[j] = cosf(angle);
        sin[j] = sinf(angle);
    }
}

/* The tables of all rows: those of the first slice are made on the host, a chunk at a time, and are
 * the others' too. */
static void plan_rope(struct tower_pass *p)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    int unit = c->merge * c->merge, gw = p->w / c->merge, rows = p->h * p->w;
    int chunk = tower_chunk(p->v);
    size_t half = (size_t)c->head_dim / 2, slice = sizeof(float) * (size_t)rows * half;
    for (int at = 0; at < rows; at += chunk) {
        int n = rows - at < chunk ? rows - at : chunk;
        size_t size = sizeof(float) * (size_t)n * half;
        for (int i = 0; i < n; i++) {
            int u = st->order[(at + i) / unit], sub = (at + i) % unit;
            rope_row(p->v, st->host_cos + (size_t)i * half, st->host_sin + (size_t)i * half,
                     u / gw * c->merge + sub / c->merge, u % gw * c->merge + sub % c->merge);
        }
        p->ops->put(st->work, st->cos + (size_t)at * half, st->host_cos, size);
        p->ops->put(st->work, st->sin + (size_t)at * half, st->host_sin, size);
    }
    for (int s = 1; s < p->n_slices; s++) {
        size_t to = (size_t)s * (size_t)rows * half;
        p->ops->copy(st->work, st->cos + to, st->cos, slice);
        p->ops->copy(st->work, st->sin + to, st->sin, slice);
    }
}

/* ---- encoding ---- */

void qwen2_5_encode(struct tower_pass *p)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    int unit = c->merge * c->merge, units = p->n / unit, width = unit * c->hidden;
    plan_windows(p);
    plan_rope(p);
    tower_embed(p, st->q);
    p->ops->put(st->work, st->units, st->order, sizeof *st->units * (size_t)units);
    p->ops->gather(st->work, st->x, st->q, st->units, units, width);
    tower_layers(p);
    for (int i = 0; i < units; i++)
        st->inverse[st->order[i]] = i;
    p->ops->put(st->work, st->units, st->inverse, sizeof *st->units * (size_t)units);
    p->ops->gather(st->work, st->q, st->x, st->units, units, width);
    tower_project(p, st->q, p->v->merger_norm);
}
