/* Proof of what the plain definitions say every bit of: the signals of views (tensor/cosine.h), for
 * widths with and without a tail, rows without a direction, and groups of all sizes; and patches
 * cut from frames (video/patches.h), with borders that no patch has, pairs of frames and merging.
 */
#include "check_cuda.h"

#include "tensor/cosine.h"
#include "video/patches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { APART = 5, PAD_WIDTH = 3 };
static const int tiny_widths[] = { 1, 7, 8, 19, 64, 130, 200 };
static const int true_widths[] = { 7, 130, 896, 1003, 2048, 3584, 5120 };
enum { N_WIDTHS = sizeof tiny_widths / sizeof tiny_widths[0] };

/* Rows of features, some of them as they may come: zero, equal, very small, infinite, NaN. */
static float *odd_rows(struct cuda_check *t, struct gbuf *g, int n, int stride)
{
    float *x = normal_floats(t, (size_t)n * (size_t)stride, 1);
    for (int r = 0; r < n; r++)
        for (int k = 0; k < stride; k++) {
            float *v = &x[(size_t)r * (size_t)stride + (size_t)k];
            if (r % 17 == 3)
                *v = 0;
            else if (r % 17 == 7 && r > 7)
                *v = x[(size_t)7 * (size_t)stride + (size_t)k];
            else if (r % 17 == 11)
                *v *= 1e-30f;
            else if (r % 17 == 13 && k == 0)
                *v = r % 2 ? INFINITY : NAN;
        }
    gbuf_open(t, g, sizeof *x * (size_t)n * (size_t)stride);
    t->dev->ops->upload(t->dev, g->p, x, g->size);
    return x;
}

static void compare(struct cuda_check *t, struct gbuf *g, const void *want, const char *what,
                    int width)
{
    void *got = malloc(g->size);
    check_wait(t, t->w);
    gbuf_get(g, got, g->size);
    if (memcmp(got, want, g->size))
        check_fail(&t->c, "%s: width %d has other bits than the definition", what, width);
    free(got);
}

/* ---- cosines ---- */

static void check_apart(struct cuda_check *t, int n, int width)
{
    int stride = width + PAD_WIDTH;
    struct gbuf gx, gout;
    float *x = odd_rows(t, &gx, n, stride);
    double *want = malloc(sizeof *want * (size_t)n);
    gbuf_open(t, &gout, sizeof *want * (size_t)(n - APART));
    cosines_apart_ref(want, x, (size_t)stride, width, APART, 0, n - APART);
    t->ops->cosines_apart(t->w, gout.p, gx.p, (size_t)stride, n, width, APART);
    compare(t, &gout, want, "cosines apart", width);
    gbuf_close(&gx);
    gbuf_close(&gout);
    free(want);
    free(x);
}

/* Groups of 1, 2, ... rows and of the most, which are not side by side. */
static void check_spread(struct cuda_check *t, int n, int width)
{
    static const int sizes[] = { 1, 2, 25, 4, GROUP_MOST, 30, 16, 20 };
    int stride = width + PAD_WIDTH, n_groups = 0, at = 0;
    int32_t *rows = malloc(sizeof *rows * (size_t)n), bounds[256] = { 0 };
    struct gbuf gx, gout, grows, gbounds;
    float *x = odd_rows(t, &gx, n, stride);
    double *want = malloc(sizeof *want * (size_t)n);
    for (int i = 0; i < n; i++)
        rows[i] = (int)((int64_t)i * 7 % n); /* n is no multiple of 7 */
    while (at < n && n_groups < 255) {
        int size = sizes[n_groups % 8];
        size = size < n - at ? size : n - at;
        cosine_spread_ref(want, x, (size_t)stride, width, rows + at, size);
        bounds[++n_groups] = at += size;
    }
    gbuf_open(t, &gout, sizeof *want * (size_t)n);
    gbuf_open(t, &grows, sizeof *rows * (size_t)n);
    gbuf_open(t, &gbounds, sizeof *bounds * (size_t)(n_groups + 1));
    gbuf_put(&grows, rows, grows.size);
    gbuf_put(&gbounds, bounds, gbounds.size);
    t->ops->cosine_spread(t->w, gout.p, gx.p, (size_t)stride, width, grows.p, gbounds.p, n_groups);
    compare(t, &gout, want, "spread of cosines", width);
    gbuf_close(&gx);
    gbuf_close(&gout);
    gbuf_close(&grows);
    gbuf_close(&gbounds);
    free(rows);
    free(want);
    free(x);
}

static void check_cosines(struct cuda_check *t)
{
    for (int i = 0; i < N_WIDTHS; i++) {
        int width = t->full ? true_widths[i] : tiny_widths[i];
        check_apart(t, t->full ? 3001 : 41, width);
        check_apart(t, APART + 1, width);
        check_spread(t, t->full ? 2003 : 151, width);
    }
}

/* ---- unit rows ---- */

/* Some rows to units, some to the sum, the rest nowhere; in two calls, the second in parts. */
static void check_units(struct cuda_check *t, int n, int width)
{
    int n_units = n / 2, n_sums = n / 3;
    size_t row = (size_t)width;
    struct gbuf gx, gunits, gsum, gscale, grows, gto, gdots;
    float *x = odd_rows(t, &gx, n, width);
    int32_t *rows = malloc(sizeof *rows * (size_t)n), *to = malloc(sizeof *to * (size_t)n);
    uint16_t *units = calloc((size_t)n_units * row, sizeof *units);
    double *sum = calloc(row, sizeof *sum), *scale = malloc(sizeof *scale * (size_t)n);
    double *dots = malloc(sizeof *dots * (size_t)n_units);
    for (int i = 0; i < n_units + n_sums; i++) {
        const float *from;
        rows[i] = (int)((int64_t)i * 7 % n);
        to[i] = n_units - 1 - i;
        from = x + (size_t)rows[i] * row;
        scale[i] = unit_scale(from, width);
        if (i < n_units)
            unit_row(units + (size_t)to[i] * row, from, width, scale[i]);
        else
            unit_add(sum, from, scale[i], 0, width);
    }
    for (int i = 0; i < n_units; i++)
        dots[i] = unit_dot(units + (size_t)i * row, sum, width);
    gbuf_open(t, &gunits, sizeof *units * (size_t)n_units * row);
    gbuf_open(t, &gsum, sizeof *sum * row);
    gbuf_open(t, &gscale, sizeof *scale * (size_t)(n_units + n_sums));
    gbuf_open(t, &grows, sizeof *rows * (size_t)(n_units + n_sums));
    gbuf_open(t, &gto, sizeof *to * (size_t)n_units);
    gbuf_open(t, &gdots, sizeof *dots * (size_t)n_units);
    gbuf_put(&grows, rows, grows.size);
    gbuf_put(&gto, to, gto.size);
    for (int parts = 1; parts <= 3; parts += 2) {
        void *zero = calloc(1, gunits.size + gsum.size);
        gbuf_put(&gunits, zero, gunits.size);
        gbuf_put(&gsum, zero, gsum.size);
        free(zero);
        for (int k = 0; k < parts; k++) { /* some of the units, then some of the sums */
            int u0 = n_units * k / parts, u1 = n_units * (k + 1) / parts;
            int s0 = n_sums * k / parts, s1 = n_sums * (k + 1) / parts;
            struct unit_job j = { .x = gx.p,
                                  .width = width,
                                  .n_units = u1 - u0,
                                  .rows = (int32_t *)grows.p + u0,
                                  .to = (int32_t *)gto.p + u0,
                                  .units = gunits.p,
                                  .sum = gsum.p,
                                  .scale = (double *)gscale.p + u0 };
            t->ops->unit_rows(t->w, &j);
            j.n_units = 0;
            j.n_sums = s1 - s0;
            j.rows = (int32_t *)grows.p + n_units + s0;
            j.scale = (double *)gscale.p + n_units + s0;
            t->ops->unit_rows(t->w, &j);
        }
        compare(t, &gscale, scale, "scales", width);
        compare(t, &gunits, units, "unit rows", width);
        compare(t, &gsum, sum, "their sum", width);
    }
    t->ops->unit_dots(t->w, gdots.p, gunits.p, gsum.p, n_units, width);
    compare(t, &gdots, dots, "dots", width);
    gbuf_close(&gx);
    gbuf_close(&gunits);
    gbuf_close(&gsum);
    gbuf_close(&gscale);
    gbuf_close(&grows);
    gbuf_close(&gto);
    gbuf_close(&gdots);
    free(x);
    free(rows);
    free(to);
    free(units);
    free(sum);
    free(scale);
    free(dots);
}

static void check_unit_rows(struct cuda_check *t)
{
    for (int i = 0; i < N_WIDTHS; i++)
        check_units(t, t->full ? 3001 : 97, t->full ? true_widths[i] : tiny_widths[i]);
}

/* ---- patches ---- */

static void check_cut(struct cuda_check *t, const struct patch_plan *p, int slices, int height,
                      int width, int step)
{
    int per_slice = height / p->patch * (width / p->patch), n = slices * per_slice;
    size_t row = (size_t)patch_row_size(p), frame = (size_t)height * (size_t)width * 3;
    size_t bytes = frame * (size_t)(slices * p->temporal);
    uint8_t *rgb = malloc(bytes);
    float *want = malloc(sizeof *want * row * (size_t)n), table[3][256];
    struct gbuf gframes, gtable, gout;
    for (size_t i = 0; i < bytes; i++)
        rgb[i] = (uint8_t)rng_next(&t->c.rng);
    for (int s = 0; s < slices; s++) {
        const uint8_t *frames[2];
        for (int k = 0; k < p->temporal; k++)
            frames[k] = rgb + (size_t)(s * p->temporal + k) * frame;
        patches_make(want + (size_t)(s * per_slice) * row, p, frames, height, width);
    }
    patches_table(table, p);
    gbuf_open(t, &gframes, bytes);
    gbuf_open(t, &gtable, sizeof table);
    gbuf_open(t, &gout, sizeof *want * row * (size_t)n);
    gbuf_put(&gframes, rgb, bytes);
    gbuf_put(&gtable, table, sizeof table);
    for (int at = 0; at < n; at += step) {
        struct patch_job j = { .out = (float *)gout.p + (size_t)at * row,
                               .frames = gframes.p,
                               .table = gtable.p,
                               .height = height,
                               .width = width,
                               .patch = p->patch,
                               .temporal = p->temporal,
                               .merge = p->merge,
                               .from = at,
                               .n = n - at < step ? n - at : step };
        t->ops->patches(t->w, &j);
    }
    compare(t, &gout, want, "patches", width);
    gbuf_close(&gframes);
    gbuf_close(&gtable);
    gbuf_close(&gout);
    free(rgb);
    free(want);
}

static void check_patches(struct cuda_check *t)
{
    static const struct patch_plan plans[] = {
        { 14, 1, 1, { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } },
        { 14, 2, 2, { 0.48145466f, 0.4578275f, 0.40821073f }, { 0.26862954f, 0.26130258f, 0.3f } },
        { 16, 2, 2, { 0.5f, 0.4f, 0.3f }, { 0.5f, 0.6f, 0.7f } },
        { 3, 1, 1, { 0, 0, 0 }, { 1, 1, 1 } },
    };
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        const struct patch_plan *p = &plans[i];
        int border = p->merge == 1 ? p->patch / 2 : 0, unit = p->patch * p->merge;
        int large = t->full ? 13 : 1;
        check_cut(t, p, 3, 2 * large * unit + border, 3 * large * unit + border, 5);
        check_cut(t, p, 1, unit, 2 * unit, 8192);
    }
}

void check_cuda_views(struct cuda_check *t)
{
    static const struct {
        const char *name;
        void (*run)(struct cuda_check *t);
    } tests[] = { { "cosines", check_cosines },
                  { "unit_rows", check_unit_rows },
                  { "patches", check_patches } };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (!check_begin(&t->c, tests[i].name, ""))
            continue;
        tests[i].run(t);
        check_end(&t->c);
    }
}
