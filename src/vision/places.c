/* Where patches lie in their picture, and what follows from it: the order of the rows, the angles
 * of rope and the learned positions.
 *
 * Rows come as merge units: the merge * merge patches of one output token side by side. In a tower
 * with windows all layers run with the units in window order, so that windows and slices are both
 * runs of rows; before the merger the units go back.
 *
 * Rope turns pair (j, j + d/2) of a head by row * f_j for the first half of the pairs and by
 * column * f_j for the second, f_j = 10000^(-4j/d), in the grid of patches. */
#include "vision/tower.h"
#include "vision/windows.h"

#include <math.h>
#include <string.h>

static const double rope_theta = 10000;

struct place {
    int y, x; /* in the grid of patches */
};

/* Row i of a slice as it came: units from left to right and downwards, each in the same order. */
static struct place place_came(const struct tower_pass *p, int i)
{
    int merge = p->v->c.merge, unit = merge * merge, gw = p->w / merge, u = i / unit,
        sub = i % unit;
    return (struct place){ u / gw * merge + sub / merge, u % gw * merge + sub % merge };
}

/* Row i of the first slice as the layers see it. */
static struct place place_of(const struct tower_pass *p, int i)
{
    int unit = p->v->c.merge * p->v->c.merge;
    return place_came(p, p->st->order ? p->st->order[i / unit] * unit + i % unit : i);
}

/* ---- order ---- */

/* Bounds of windows in rows, and the order of the units of all slices. */
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
    }
}

void places_plan(struct tower_pass *p)
{
    for (int s = 0; s <= p->n_slices; s++)
        p->st->slices[s] = s * p->h * p->w;
    if (p->st->order)
        plan_windows(p);
}

/* Units of `from` to `to` in this order. */
static void move_units(struct tower_pass *p, float *to, const float *from, const int *order)
{
    int unit = p->v->c.merge * p->v->c.merge, units = p->n / unit;
    p->ops->put(p->st->work, p->st->units, order, sizeof *p->st->units * (size_t)units);
    p->ops->gather(p->st->work, to, from, p->st->units, units, unit * p->v->c.hidden);
}

void places_order(struct tower_pass *p, float *to, const float *from)
{
    move_units(p, to, from, p->st->order);
}

void places_restore(struct tower_pass *p, float *to, const float *from)
{
    struct vision_state *st = p->st;
    int units = p->n / (p->v->c.merge * p->v->c.merge);
    for (int i = 0; i < units; i++)
        st->inverse[st->order[i]] = i;
    move_units(p, to, from, st->inverse);
}

/* ---- rope ---- */

void places_frequencies(struct vision *v)
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
void places_rope(struct tower_pass *p)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    int rows = p->h * p->w;
    int chunk = tower_chunk(p->v);
    size_t half = (size_t)c->head_dim / 2, slice = sizeof(float) * (size_t)rows * half;
    for (int at = 0; at < rows; at += chunk) {
        int n = rows - at < chunk ? rows - at : chunk;
        size_t size = sizeof(float) * (size_t)n * half;
        for (int i = 0; i < n; i++) {
            struct place at_patch = place_of(p, at + i);
            rope_row(p->v, st->host_cos + (size_t)i * half, st->host_sin + (size_t)i * half,
                     at_patch.y, at_patch.x);
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

/* ---- learned positions ---- */

/* Coordinate i of n on a line of `from` points whose ends are the line's ends: the first of its two
 * neighbours; *part: of the second. */
static int stretch(int i, int n, int from, float *part)
{
    float at =
        n > 1 ? (float)i * ((float)(from - 1) / (float)(n - 1)) : 0; /* f32, as torch has it */
    int first = (int)at;
    first = first < from - 1 ? first : from - 1;
    *part = at - (float)first;
    return first;
}

/* Which rows of the table a patch takes, and in which shares. */
static void tap_position(const struct tower_pass *p, struct place at, int side, int rows[4],
                         float weights[4])
{
    float down, right;
    int y = stretch(at.y, p->h, side, &down), x = stretch(at.x, p->w, side, &right);
    int below = y + 1 < side ? y + 1 : y, next = x + 1 < side ? x + 1 : x;
    rows[0] = y * side + x;
    rows[1] = y * side + next;
    rows[2] = below * side + x;
    rows[3] = below * side + next;
    weights[0] = (1 - down) * (1 - right);
    weights[1] = (1 - down) * right;
    weights[2] = down * (1 - right);
    weights[3] = down * right;
}

/* The table stretched over the picture. */
static void add_stretched(struct tower_pass *p, float *x)
{
    const struct vision *v = p->v;
    struct vision_state *st = p->st;
    int chunk = tower_chunk(v), slice = p->h * p->w, side = 1;
    while (side * side < v->c.positions)
        side++;
    for (int at = 0; at < p->n; at += chunk) {
        int n = p->n - at < chunk ? p->n - at : chunk;
        for (int i = 0; i < n; i++)
            tap_position(p, place_came(p, (at + i) % slice), side, st->host_taps[i],
                         st->host_weights[i]);
        p->ops->put(st->work, st->taps, st->host_taps, sizeof *st->taps * (size_t)n);
        p->ops->put(st->work, st->weights, st->host_weights, sizeof *st->weights * (size_t)n);
        p->ops->blend(st->work, st->xn, v->position, (const int(*)[4])st->taps,
                      (const float(*)[4])st->weights, n, v->c.hidden);
        p->ops->add(st->work, x + (size_t)at * (size_t)v->c.hidden, st->xn, n, v->c.hidden);
    }
}

void places_learned(struct tower_pass *p, float *x)
{
    const struct vision *v = p->v;
    int slice = p->h * p->w;
    if (v->position && v->c.positions)
        add_stretched(p, x);
    for (int i = 0; v->position && !v->c.positions && i < p->n_slices; i++)
        p->ops->add(p->st->work, x + (size_t)i * (size_t)slice * (size_t)v->c.hidden, v->position,
                    slice, v->c.hidden);
}
