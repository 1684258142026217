/* The arrangement of LLaVA-OneVision's tokens. Video frames and still pictures are treated alike:
 * tokens on a grid, which is stitched from tiles and cut out of its border, then shrunk bilinearly:
 * token (i, j) of the result lies at ((i + 0.5) * scale - 0.5), the same for j, and takes the four
 * nearest, without antialiasing, the border repeated.
 *
 * The counts must be those of the reference to the token, so its arithmetic is followed in doubles,
 * with Python's round to seven digits and Python's floor division. */
#include "vision/llava.h"

#include "base/minmax.h"
#include "vision/tower.h"

#include <math.h>
#include <string.h>

/* A grid of h x w tokens, whose first is (y0, x0) of the tiles put side by side. */
struct token_grid {
    const float *tiles; /* [rows * cols, side * side, out] */
    int cols, side;     /* tiles of a row; tokens of a tile's side */
    int y0, x0, h, w;
};

static const double shrink_above = 1.1; /* ratio of the sides */

/* ---- sizes ---- */

/* int(round(x, 7)) of Python for x >= 0. */
static int round_down(double x)
{
    double whole = floor(x);
    return (int)whole + (whole + 1 - x <= 0.5e-7);
}

/* int(x // y) of Python: x / y may round up to a whole number that is too large. */
static int floor_div(double x, double y)
{
    return (int)floor((x - fmod(x, y)) / y + 0.5);
}

/* The tiles of a picture of height x width pixels without the border that fills them up. */
static struct token_grid picture_grid(const struct vision_config *c, const struct tiling *t,
                                      int height, int width)
{
    int side = vision_side(c);
    struct token_grid g = {
        .cols = t->cols, .side = side, .h = t->rows * side, .w = t->cols * side
    };
    if ((double)width / height > (double)g.w / g.h) {
        int inner = round_down(height * ((double)g.w / width));
        g.y0 = (g.h - inner) / 2;
        g.h -= 2 * g.y0;
    } else {
        int inner = round_down(width * ((double)g.h / height));
        g.x0 = (g.w - inner) / 2;
        g.w -= 2 * g.x0;
    }
    return g;
}

/* What the grid is shrunk to when it has clearly more tokens than the model allows. */
static void shrunk_size(const struct vision_config *c, const struct token_grid *g, int *h, int *w)
{
    double ratio = sqrt((double)g->h * g->w / ((double)c->max_tiles * g->side * g->side));
    *h = ratio > shrink_above ? floor_div(g->h, ratio) : g->h;
    *w = ratio > shrink_above ? floor_div(g->w, ratio) : g->w;
}

int llava_frame_tokens(const struct vision_config *c)
{
    int side = vision_pooled_side(c);
    return side * side + (c->newline == NEWLINE_LINE ? side : c->newline == NEWLINE_FRAME);
}

int llava_image_tokens(const struct vision_config *c, const struct tiling *t, int height, int width)
{
    struct token_grid g = picture_grid(c, t, height, width);
    int h, w;
    shrunk_size(c, &g, &h, &w);
    return g.side * g.side + h * (w + 1);
}

/* ---- tokens ---- */

static const float *token_at(const struct token_grid *g, int y, int x, size_t out)
{
    int ty = (g->y0 + y) / g->side, tx = (g->x0 + x) / g->side;
    int in_y = (g->y0 + y) % g->side, in_x = (g->x0 + x) % g->side;
    size_t tile = (size_t)ty * (size_t)g->cols + (size_t)tx;
    return g->tiles +
           ((tile * (size_t)g->side + (size_t)in_y) * (size_t)g->side + (size_t)in_x) * out;
}

/* Token i of n taken from `from` ones: the first of its two neighbours; *part: of the second. */
static int tap(int i, int n, int from, float *part)
{
    double at = (i + 0.5) * from / n - 0.5;
    int first;
    at = at < 0 ? 0 : at;
    first = (int)at;
    first = first < from - 1 ? first : from - 1;
    *part = (float)(at - first);
    return first;
}

/* Row y of the grid to st->near[place], a run of tokens at a time: those of one tile lie side by
 * side. */
static void upload_row(const struct vision *v, struct vision_state *st, const struct token_grid *g,
                       int y, int place)
{
    size_t out = (size_t)v->c.out;
    for (int x = 0; x < g->w;) {
        int n = g->side - (g->x0 + x) % g->side;
        n = n < g->w - x ? n : g->w - x;
        v->dev->ops->put(st->work, st->near + ((size_t)place * (size_t)g->w + (size_t)x) * out,
                         token_at(g, y, x, out), sizeof(float) * (size_t)n * out);
        x += n;
    }
}

/* Row i of a grid of from_h x from_w shrunk to h x w: where its w tokens come from, in rows that
 * lie in `near` after one another or, with `whole`, in all of the grid. */
static void tap_row(struct vision_state *st, int from_h, int from_w, int h, int w, int i,
                    bool whole)
{
    float down, right;
    int y = tap(i, h, from_h, &down), below = y + 1 < from_h ? from_w : 0;
    int first = whole ? y * from_w : 0, at = whole ? i * w : 0;
    for (int j = 0; j < w; j++) {
        int x = tap(j, w, from_w, &right), next = x + (x + 1 < from_w);
        const int rows[4] = { first + x, first + next, first + below + x, first + below + next };
        const float weights[4] = { (1 - down) * (1 - right), (1 - down) * right, down * (1 - right),
                                   down * right };
        memcpy(st->host_taps[at + j], rows, sizeof rows);
        memcpy(st->host_weights[at + j], weights, sizeof weights);
    }
}

static void put_taps(const struct vision *v, struct vision_state *st, int n)
{
    v->dev->ops->put(st->work, st->taps, st->host_taps, sizeof *st->taps * (size_t)n);
    v->dev->ops->put(st->work, st->weights, st->host_weights, sizeof *st->weights * (size_t)n);
}

static void blend(const struct vision *v, struct vision_state *st, float *y, const float *x, int n)
{
    v->dev->ops->blend(st->work, y, x, (const int(*)[4])st->taps, (const float(*)[4])st->weights, n,
                       v->c.out);
}

/* Row i of the grid shrunk to h x w, to `to` [w, out]. */
static void shrink_row(const struct vision *v, struct vision_state *st, const struct token_grid *g,
                       int h, int w, int i, float *to)
{
    float down;
    int y = tap(i, h, g->h, &down);
    upload_row(v, st, g, y, 0);
    if (y + 1 < g->h)
        upload_row(v, st, g, y + 1, 1);
    tap_row(st, g->h, g->w, h, w, i, false);
    put_taps(v, st, w);
    blend(v, st, st->mixed, st->near, w);
    v->dev->ops->get(st->work, to, st->mixed, sizeof(float) * (size_t)w * (size_t)v->c.out);
}

/* Frames of st->pooled to st->lined, newlines among them: each row of the result is one of the
 * pooled rows or, behind them all, the newline. */
static void add_newlines(const struct vision *v, struct vision_state *st, int n)
{
    int side = vision_pooled_side(&v->c), rows = 0, all = n * side * side;
    size_t out = (size_t)v->c.out;
    for (int i = 0; i < all; i++) {
        int end = v->c.newline == NEWLINE_LINE ? side : side * side;
        st->host_lines[rows++] = i;
        if ((i + 1) % end == 0)
            st->host_lines[rows++] = all;
    }
    v->dev->ops->put(st->work, st->lines, st->host_lines, sizeof *st->lines * (size_t)rows);
    v->dev->ops->put(st->work, st->pooled + (size_t)all * out, v->newline, sizeof(float) * out);
    v->dev->ops->gather(st->work, st->lined, st->pooled, st->lines, rows, v->c.out);
}

static void put_frame_taps(const struct vision *v, struct vision_state *st)
{
    int side = vision_side(&v->c), to = vision_pooled_side(&v->c);
    for (int i = 0; i < to; i++)
        tap_row(st, side, side, to, to, i, true);
    put_taps(v, st, to * to);
}

void llava_pool_tokens(const struct vision *v, struct vision_state *st, int n)
{
    int side = vision_side(&v->c), to = vision_pooled_side(&v->c);
    size_t frame = (size_t)side * (size_t)side * (size_t)v->c.out;
    size_t pooled = (size_t)to * (size_t)to * (size_t)v->c.out;
    put_frame_taps(v, st);
    for (int f = 0; f < n; f++)
        blend(v, st, st->pooled + (size_t)f * pooled, st->tokens + (size_t)f * frame, to * to);
    if (st->lined)
        add_newlines(v, st, n);
}

/* Pool between the projector's matrices, W_2 (pool gelu(W_1 x)) + b_2: the weights of a pooled
 * token add up to one, so this is the pooled result, and the second matrix has a quarter of the
 * rows. */
static void pool_inside(struct tower_pass *p, const float *x)
{
    const struct vision *v = p->v;
    struct vision_state *st = p->st;
    const struct merger *m = &v->merger;
    int side = vision_side(&v->c), to = vision_pooled_side(&v->c), from = side * side;
    int most = max_int(tower_chunk(v) / from, 1), middle = m->mm0.out;
    struct matmul_job mm0 = { &m->mm0, st->up, (size_t)middle };
    struct matmul_job mm2 = { &m->mm2, st->pooled, (size_t)v->c.out };
    for (int f = 0; f < p->n_slices; f += most) {
        int frames = min_int(most, p->n_slices - f);
        struct gelu_blend_job pool = { .y = st->tokens +
                                            (size_t)f * (size_t)(to * to) * (size_t)middle,
                                       .x = st->up,
                                       .rows = (const int(*)[4])st->taps,
                                       .weights = (const float(*)[4])st->weights,
                                       .frames = frames,
                                       .n = to * to,
                                       .from = from,
                                       .dim = middle };
        p->ops->matmul(st->work, &mm0, 1, x + (size_t)f * (size_t)from * (size_t)v->c.hidden,
                       frames * from);
        p->ops->gelu_blend(st->work, &pool);
    }
    p->ops->matmul(st->work, &mm2, 1, st->tokens, p->n_slices * to * to);
}

/* Whether the buffers have room for pool_inside. */
static bool pools_inside(const struct tower_pass *p)
{
    const struct vision *v = p->v;
    int from = vision_side(&v->c) * vision_side(&v->c);
    return p->ops->gelu_blend && !v->merger.norm && from <= tower_chunk(v) &&
           v->merger.mm0.out <= v->c.out;
}

void llava_project_pooled(struct tower_pass *p, const float *x)
{
    if (!pools_inside(p)) {
        tower_project(p, &p->v->merger, x, 0);
        llava_pool_tokens(p->v, p->st, p->n_slices);
        return;
    }
    put_frame_taps(p->v, p->st);
    pool_inside(p, x);
    if (p->st->lined)
        add_newlines(p->v, p->st, p->n_slices);
}

void llava_stitch(const struct vision *v, struct vision_state *st, const float *views,
                  const struct tiling *t, int height, int width, float *out)
{
    struct token_grid g = picture_grid(&v->c, t, height, width);
    size_t row = (size_t)v->c.out, whole = (size_t)g.side * (size_t)g.side * row;
    int h, w;
    shrunk_size(&v->c, &g, &h, &w);
    g.tiles = views + whole;
    memcpy(out, views, sizeof(float) * whole);
    out += whole;
    for (int i = 0; i < h; i++) {
        if (h != g.h || w != g.w)
            shrink_row(v, st, &g, h, w, i, out);
        else
            for (int j = 0; j < w; j++)
                memcpy(out + (size_t)j * row, token_at(&g, i, j, row), sizeof(float) * row);
        memcpy(out + (size_t)w * row, v->newline, sizeof(float) * row);
        out += (size_t)(w + 1) * row;
    }
}

const float *llava_newline(const struct vision *v)
{
    return v->newline;
}
