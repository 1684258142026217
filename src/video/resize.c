/* Antialiased bicubic resizing in two passes, one along each side.
 *
 * Each output pixel along an axis is a weighted mean of the input pixels under a cubic kernel that
 * is stretched by the scale when shrinking: Pillow's resampling, which torch took over. An input
 * row passes through the horizontal pass as soon as it is read, into a ring that holds only the
 * rows the vertical pass still needs, so that it stays in cache and memory does not grow with the
 * height. An axis whose size does not change is one tap of weight 1, which changes no bit.
 *
 * RESIZE_PILLOW has Pillow's bits: weights of 22 bits after the point, sums in 32-bit integers,
 * 8-bit values between the passes. There the order of the passes matters: where an edge overshoots
 * and is clipped between them, by tens of grey levels. Pillow 13 takes the vertical pass first when
 * the height loses more than twice the pixels that the width loses; then the ring holds input rows
 * and the horizontal pass makes the output. (Older versions, and torch, never do.)
 *
 * RESIZE_FLOAT is torchvision on float tensors: weights computed and summed in float, horizontal
 * pass first, clamped and rounded to even at the end only.
 *
 * Built with -O3: the loops below are written for the vectoriser of a plain x86-64 or arm64. */
#include "video/resize.h"

#include "base/mem.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    POINT_BITS = 22, /* of Pillow's weights, after the point */
    /* A weight is high * 2^11 + low: two 16-bit factors, which multiply fast. Both have the sign of
     * the weight, so that no sum of theirs is larger than the sum of |weight| * 255 < 2^31. */
    LOW_BITS = 11,
    LANES = 8 /* taps come in groups of as many */
};

/* Weights along one side: output i is the sum over k < count[i] of weight[i * stride + k] *
 * input[first[i] + k]. `first` and `first + count` never decrease. */
struct axis {
    int in, out;
    int max_taps;
    size_t stride; /* max_taps rounded up to LANES; the weights past count are 0 */
    int *first, *count;
    int32_t *fixed;      /* RESIZE_PILLOW */
    int16_t *high, *low; /* the same, split */
    float *real;         /* RESIZE_FLOAT */
};

/* Red, green, blue and nothing: left to itself the vectoriser spreads taps, not channels. */
typedef float pixel4 __attribute__((vector_size(16)));

struct resizer {
    enum resize_kind kind;
    struct axis x, y;
    bool vertical_first;
    int ring_rows;
    size_t ring_len; /* values of one of them: out_width * 3, or in_width * 3 if vertical_first */
    int16_t *plane;  /* [3, plane_len]: an input row by channels */
    size_t plane_len;
    uint8_t *ring; /* [ring_rows, ring_len]: row r of the first pass at r % ring_rows */
    int32_t *sum;  /* [ring_len] */
    uint8_t *line; /* [ring_len]: between the passes, if vertical_first */
    pixel4 *pixel; /* [in_width]: an input row */
    float *ring_real, *sum_real;
};

/* --- weights ------------------------------------------------------------------------------- */

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static float cubic_float(float x)
{
    const float a = -0.5f;
    x = fabsf(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    return 0;
}

/* The taps of output i: from `low` to `high`, both cut off to whole pixels of the picture. */
static void axis_range(struct axis *a, int i, double low, double high)
{
    int first = low > 0 ? (int)low : 0;
    int end = high < a->in ? (int)high : a->in;
    a->first[i] = first;
    a->count[i] = end - first < a->max_taps ? end - first : a->max_taps;
}

/* Pillow's, in double, then rounded half away from zero. */
static void weights_fixed(struct axis *a, double *w)
{
    double scale = (double)a->in / a->out, stretch = scale > 1 ? scale : 1;

    for (int i = 0; i < a->out; i++) {
        double center = (i + 0.5) * scale, support = 2 * stretch, sum = 0;
        int32_t *fixed = a->fixed + (size_t)i * a->stride;
        axis_range(a, i, center - support + 0.5, center + support + 0.5);
        for (int k = 0; k < a->count[i]; k++) {
            w[k] = cubic((k + a->first[i] - center + 0.5) * (1 / stretch));
            sum += w[k];
        }
        for (int k = 0; k < a->count[i]; k++) {
            double value = (sum != 0 ? w[k] / sum : w[k]) * (1 << POINT_BITS);
            size_t at = (size_t)i * a->stride + (size_t)k;
            fixed[k] = (int32_t)(value < 0 ? value - 0.5 : value + 0.5);
            a->high[at] = (int16_t)(fixed[k] / (1 << LOW_BITS));
            a->low[at] = (int16_t)(fixed[k] % (1 << LOW_BITS));
        }
    }
}

/* torch's, in float: on wide pictures the rounding of `center` shows in the pixels. */
static void weights_float(struct axis *a)
{
    float scale = (float)a->in / (float)a->out, support = scale >= 1 ? 2 * scale : 2;
    float shrink = scale >= 1 ? 1 / scale : 1;

    for (int i = 0; i < a->out; i++) {
        float center = (float)(scale * (i + 0.5)), sum = 0;
        float *w = a->real + (size_t)i * a->stride;
        axis_range(a, i, (center - support) + 0.5, (center + support) + 0.5);
        for (int k = 0; k < a->count[i]; k++) {
            w[k] = cubic_float((float)((((float)(k + a->first[i]) - center) + 0.5) * shrink));
            sum += w[k];
        }
        for (int k = 0; sum != 0 && k < a->count[i]; k++)
            w[k] /= sum;
    }
}

static void axis_identity(struct axis *a, enum resize_kind kind)
{
    for (int i = 0; i < a->out; i++) {
        size_t at = (size_t)i * a->stride;
        a->first[i] = i;
        a->count[i] = 1;
        if (kind == RESIZE_FLOAT) {
            a->real[at] = 1;
        } else {
            a->fixed[at] = 1 << POINT_BITS;
            a->high[at] = 1 << (POINT_BITS - LOW_BITS);
        }
    }
}

static void axis_close(struct axis *a)
{
    mem_free(a->first);
    mem_free(a->count);
    mem_free(a->fixed);
    mem_free(a->high);
    mem_free(a->low);
    mem_free(a->real);
    *a = (struct axis){ 0 };
}

/* On failure the caller closes what there is. */
static enum pv_status axis_open(struct axis *a, enum resize_kind kind, int in, int out,
                                struct pv_error *err)
{
    double scale = (double)in / out;
    double taps = in == out ? 1 : ceil(2 * (scale > 1 ? scale : 1)) * 2 + 1;
    size_t n = (size_t)out, cells;
    double *w;

    *a = (struct axis){ .in = in, .out = out, .max_taps = taps < in ? (int)taps : in };
    a->stride = ((size_t)a->max_taps + LANES - 1) / LANES * LANES;
    /* At most 4 * in + (1 + 2 + LANES) * out: no overflow. */
    cells = n * a->stride;
    a->first = mem_alloc(n * sizeof *a->first);
    a->count = mem_alloc(n * sizeof *a->count);
    if (kind == RESIZE_FLOAT) {
        a->real = mem_zalloc(cells * sizeof *a->real);
    } else {
        a->fixed = mem_zalloc(cells * sizeof *a->fixed);
        a->high = mem_zalloc(cells * sizeof *a->high);
        a->low = mem_zalloc(cells * sizeof *a->low);
    }
    if (!a->first || !a->count || (!a->real && (!a->fixed || !a->high || !a->low)))
        return fail_nomem(err, cells * sizeof *a->fixed);
    if (in == out) {
        axis_identity(a, kind);
    } else if (kind == RESIZE_FLOAT) {
        weights_float(a);
    } else {
        w = mem_alloc((size_t)a->max_taps * sizeof *w);
        if (!w)
            return fail_nomem(err, (size_t)a->max_taps * sizeof *w);
        weights_fixed(a, w);
        mem_free(w);
    }
    return PV_OK;
}

/* --- the horizontal pass ------------------------------------------------------------------- */

static uint8_t clip(int32_t v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* The sum of p[k] * (high[k] * 2^LOW_BITS + low[k]), n a multiple of LANES. A sum of 32 bits of
 * products of 16 is one instruction for 8 taps. */
static int32_t dot(const int16_t *restrict p, const int16_t *restrict high,
                   const int16_t *restrict low, size_t n)
{
    int32_t sum_high = 0, sum_low = 0;
    for (size_t k = 0; k < n / LANES * LANES; k++) {
        sum_high += (int32_t)p[k] * (int32_t)high[k];
        sum_low += (int32_t)p[k] * (int32_t)low[k];
    }
    return sum_high * (1 << LOW_BITS) + sum_low;
}

static void row_fixed(struct resizer *r, uint8_t *restrict out, const uint8_t *restrict in)
{
    const struct axis *a = &r->x;
    int16_t *red = r->plane, *green = red + r->plane_len, *blue = green + r->plane_len;

    if (a->in == a->out) {
        memcpy(out, in, (size_t)a->in * 3);
        return;
    }
    for (int x = 0; x < a->in; x++) {
        red[x] = in[3 * x];
        green[x] = in[3 * x + 1];
        blue[x] = in[3 * x + 2];
    }
    for (int x = 0; x < a->out; x++) {
        const int16_t *high = a->high + (size_t)x * a->stride, *low = a->low + (high - a->high);
        const int16_t *from = r->plane + a->first[x];
        for (int c = 0; c < 3; c++, from += r->plane_len) {
            int32_t sum = dot(from, high, low, a->stride);
            out[3 * x + c] = clip((sum + (1 << (POINT_BITS - 1))) >> POINT_BITS);
        }
    }
}

/* The taps are summed in order, all channels of a pixel at once. */
static void row_float(struct resizer *r, float *restrict out, const uint8_t *restrict in)
{
    const struct axis *a = &r->x;

    for (int x = 0; x < a->in; x++)
        r->pixel[x] = (pixel4){ in[3 * x], in[3 * x + 1], in[3 * x + 2], 0 };
    for (int x = 0; x < a->out; x++) {
        const float *w = a->real + (size_t)x * a->stride;
        const pixel4 *p = r->pixel + a->first[x];
        pixel4 sum = { 0 };
        for (int k = 0; k < a->count[x]; k++)
            sum += w[k] * p[k];
        for (int c = 0; c < 3; c++)
            out[3 * x + c] = sum[c];
    }
}

/* --- the vertical pass --------------------------------------------------------------------- */

/* Row `tap` of output row y in the ring. */
static size_t ring_at(const struct resizer *r, int y, int tap)
{
    return (size_t)((r->y.first[y] + tap) % r->ring_rows) * r->ring_len;
}

static void column_fixed(struct resizer *r, uint8_t *restrict out, int y)
{
    const int32_t *w = r->y.fixed + (size_t)y * r->y.stride;
    int32_t *restrict sum = r->sum;
    size_t n = r->ring_len;

    for (size_t i = 0; i < n; i++)
        sum[i] = 1 << (POINT_BITS - 1);
    for (int k = 0; k < r->y.count[y]; k++) {
        const uint8_t *restrict row = r->ring + ring_at(r, y, k);
        int32_t weight = w[k];
        for (size_t i = 0; i < n; i++)
            sum[i] += weight * row[i];
    }
    for (size_t i = 0; i < n; i++)
        out[i] = clip(sum[i] >> POINT_BITS);
}

static void column_float(struct resizer *r, uint8_t *restrict out, int y)
{
    const float *w = r->y.real + (size_t)y * r->y.stride;
    float *restrict sum = r->sum_real;
    size_t n = r->ring_len;

    memset(sum, 0, n * sizeof *sum);
    for (int k = 0; k < r->y.count[y]; k++) {
        const float *restrict row = r->ring_real + ring_at(r, y, k);
        float weight = w[k];
        for (size_t i = 0; i < n; i++)
            sum[i] += weight * row[i];
    }
    for (size_t i = 0; i < n; i++) {
        float v = sum[i] < 0 ? 0 : sum[i] > 255 ? 255 : sum[i];
        out[i] = (uint8_t)rintf(v); /* half to even */
    }
}

/* --- the whole ----------------------------------------------------------------------------- */

/* Puts input row y into the ring. */
static void row_read(struct resizer *r, int y, const uint8_t *in)
{
    size_t at = (size_t)(y % r->ring_rows) * r->ring_len;
    if (r->kind == RESIZE_FLOAT)
        row_float(r, r->ring_real + at, in);
    else if (r->vertical_first)
        memcpy(r->ring + at, in, r->ring_len);
    else
        row_fixed(r, r->ring + at, in);
}

static enum pv_status scratch_open(struct resizer *r, struct pv_error *err)
{
    bool real = r->kind == RESIZE_FLOAT;
    size_t in_len = (size_t)r->x.in * 3, ring;

    r->ring_rows = r->y.max_taps;
    r->ring_len = r->vertical_first ? in_len : (size_t)r->x.out * 3;
    r->plane_len = (size_t)r->x.in + r->x.stride; /* taps of weight 0 read past the end */
    if (!mul_size((size_t)r->ring_rows, r->ring_len * (real ? sizeof(float) : 1), &ring))
        return fail(err, PV_E_LIMIT, "%d rows of a width of %zu do not fit in memory", r->ring_rows,
                    r->ring_len / 3);
    if (real) {
        r->pixel = mem_alloc((size_t)r->x.in * sizeof *r->pixel);
        r->ring_real = mem_alloc(ring);
        r->sum_real = mem_alloc(r->ring_len * sizeof *r->sum_real);
    } else {
        r->plane = mem_zalloc(3 * r->plane_len * sizeof *r->plane);
        r->ring = mem_alloc(ring);
        r->sum = mem_alloc(r->ring_len * sizeof *r->sum);
        r->line = mem_alloc(r->ring_len);
    }
    if (real ? !r->pixel || !r->ring_real || !r->sum_real
             : !r->plane || !r->ring || !r->sum || !r->line)
        return fail_nomem(err, ring);
    return PV_OK;
}

enum pv_status resizer_open(struct resizer **out, enum resize_kind kind, int in_height,
                            int in_width, int out_height, int out_width, struct pv_error *err)
{
    struct resizer *r;
    enum pv_status s;

    if (in_height < 1 || in_width < 1 || in_height > RESIZE_MAX_SIDE || in_width > RESIZE_MAX_SIDE)
        return fail(err, PV_E_ARG, "a picture of %d x %d pixels, sides must be 1 to %d", in_width,
                    in_height, RESIZE_MAX_SIDE);
    if (out_height < 1 || out_width < 1 || out_height > RESIZE_MAX_SIDE ||
        out_width > RESIZE_MAX_SIDE)
        return fail(err, PV_E_ARG, "resizing to %d x %d pixels, sides must be 1 to %d", out_width,
                    out_height, RESIZE_MAX_SIDE);
    r = mem_zalloc(sizeof *r);
    if (!r)
        return fail_nomem(err, sizeof *r);
    r->kind = kind;
    r->vertical_first = kind == RESIZE_PILLOW && out_height < in_height &&
                        in_height - out_height > 2 * (in_width - out_width);
    s = axis_open(&r->x, kind, in_width, out_width, err);
    if (!s)
        s = axis_open(&r->y, kind, in_height, out_height, err);
    if (!s)
        s = scratch_open(r, err);
    if (s)
        resizer_close(&r);
    else
        *out = r;
    return s;
}

void resizer_close(struct resizer **r)
{
    if (!*r)
        return;
    axis_close(&(*r)->x);
    axis_close(&(*r)->y);
    mem_free((*r)->plane);
    mem_free((*r)->ring);
    mem_free((*r)->sum);
    mem_free((*r)->line);
    mem_free((*r)->pixel);
    mem_free((*r)->ring_real);
    mem_free((*r)->sum_real);
    mem_free(*r);
    *r = NULL;
}

bool resizer_run_rows(struct resizer *r, uint8_t *out, resize_row_fn fn, void *user)
{
    size_t row_len = (size_t)r->x.out * 3;
    const uint8_t *row;
    bool same = r->x.in == r->x.out && r->y.in == r->y.out;
    int next = 0;

    for (int y = 0; y < r->y.out; y++, out += row_len) {
        if (same) {
            row = fn(user, y);
            if (!row)
                return false;
            memcpy(out, row, row_len);
            continue;
        }
        for (; next < r->y.first[y] + r->y.count[y]; next++) {
            row = fn(user, next);
            if (!row)
                return false;
            row_read(r, next, row);
        }
        if (r->kind == RESIZE_FLOAT) {
            column_float(r, out, y);
        } else if (r->vertical_first) {
            column_fixed(r, r->line, y);
            row_fixed(r, out, r->line);
        } else {
            column_fixed(r, out, y);
        }
    }
    return true;
}

struct picture_rows {
    const uint8_t *rgb;
    size_t row_len;
};

static const uint8_t *picture_row(void *user, int y)
{
    const struct picture_rows *p = user;
    return p->rgb + (size_t)y * p->row_len;
}

void resizer_run(struct resizer *r, uint8_t *out, const uint8_t *in)
{
    struct picture_rows p = { in, (size_t)r->x.in * 3 };
    resizer_run_rows(r, out, picture_row, &p);
}
