/* HIPPO's view. A token's score is the sum of three terms, each normalised to mean 0 and deviation
 * 1 inside its frame; the highest of the whole video stay.
 *
 *   attention   What the text of the prompt pays to it, softmax over video keys.
 *   time        1 - mean cosine with the tokens at the same place of the frames before and after
 *               (the first and the last have one neighbour, an only frame none: 0).
 *   space       Variance, over the tokens of its crop and itself among them, of its cosines.
 *
 * Features are the target's, as its decoder gets them. The paper has crops of 5 x 5 and does not
 * say what becomes of a grid that 5 does not divide. A rest of one row would have next to no
 * variance, so here the crops of an axis differ by one token at most; `crop_literal` has the rests.
 *
 * The cosines are made where the features lie, on the target's device: at 25,000 tokens of 3,584
 * numbers there are 370,000 pairs of rows to multiply.
 */
#include "spec/view_holistic.h"

#include "base/mem.h"
#include "spec/view_parts.h"
#include "tensor/cosine.h"

#include <math.h>

enum {
    CROP = 5,      /* tokens of a side */
    CROP_MOST = 7, /* of an axis that is one crop */
};
_Static_assert(CROP_MOST *CROP_MOST <= GROUP_MOST, "a crop is a group");

/* A frame whose scores spread less is flat: what is left is rounding of cosines. Attention never is
 * that small, its mean over m tokens is a 1 / m of the rows. */
static const double flat = 1e-12;

int holistic_crops(int size, bool literal)
{
    int n = literal ? (size + CROP - 1) / CROP : (2 * size + CROP) / (2 * CROP);
    return n < 1 ? 1 : n;
}

int holistic_crop_start(int size, int i, bool literal)
{
    int n = holistic_crops(size, literal), rest = size % n;
    if (literal)
        return i * CROP < size ? i * CROP : size;
    return i * (size / n) + (i < rest ? i : rest);
}

/* ---- crops ---- */

static int count_crops(const struct view_input *in)
{
    int width = in->grid_width, height = in->frame_tokens / width;
    return in->n_frames * holistic_crops(height, in->crop_literal) *
           holistic_crops(width, in->crop_literal);
}

/* The tokens of all crops, crop by crop, and where each begins: tokens [m], bounds [crops + 1]. */
static void list_crops(const struct view_input *in, int32_t *tokens, int32_t *bounds)
{
    int width = in->grid_width, height = in->frame_tokens / width, n = 0, crop = 0;
    bool literal = in->crop_literal;
    int rows = holistic_crops(height, literal), columns = holistic_crops(width, literal);
    bounds[0] = 0;
    for (int k = 0; k < in->n_frames * rows * columns; k++) {
        int frame = k / (rows * columns), i = k / columns % rows, j = k % columns;
        for (int y = holistic_crop_start(height, i, literal);
             y < holistic_crop_start(height, i + 1, literal); y++)
            for (int x = holistic_crop_start(width, j, literal);
                 x < holistic_crop_start(width, j + 1, literal); x++)
                tokens[n++] = frame * in->frame_tokens + y * width + x;
        bounds[++crop] = n;
    }
}

/* ---- on a device ---- */

/* One block of the device's memory. */
struct measuring {
    double *next, *spread;    /* [m] */
    int32_t *tokens, *bounds; /* of crops */
};

static size_t carve(struct measuring *a, uint8_t *base, size_t m, size_t crops)
{
    a->next = (double *)(void *)base;
    a->spread = a->next + m;
    a->tokens = (int32_t *)(void *)(a->spread + m);
    a->bounds = a->tokens + m;
    return m * (2 * sizeof(double) + sizeof(int32_t)) + (crops + 1) * sizeof(int32_t);
}

enum pv_status holistic_measure(const struct view_input *in, struct device *dev,
                                struct device_work *w, const float *x, size_t stride, double *next,
                                double *spread, struct pv_error *err)
{
    int m = view_tokens(in), crops = count_crops(in);
    struct measuring there;
    size_t lists = ((size_t)m + (size_t)crops + 1) * sizeof(int32_t);
    size_t size = carve(&there, NULL, (size_t)m, (size_t)crops);
    int32_t *list = mem_alloc(lists);
    void *block = NULL;
    enum pv_status s = list ? device_alloc(dev, &block, size, err) : fail_nomem(err, lists);
    if (!s) {
        carve(&there, block, (size_t)m, (size_t)crops);
        list_crops(in, list, list + m);
        dev->ops->put(w, there.tokens, list, lists); /* the bounds follow the tokens */
        dev->ops->cosines_apart(w, there.next, x, stride, m, in->width, in->frame_tokens);
        dev->ops->cosine_spread(w, there.spread, x, stride, in->width, there.tokens, there.bounds,
                                crops);
        dev->ops->get(w, next, there.next, (size_t)m * sizeof *next);
        dev->ops->get(w, spread, there.spread, (size_t)m * sizeof *spread);
        s = dev->ops->wait(w, err);
        dev->ops->free(dev, block);
    }
    mem_free(list);
    return s;
}

/* ---- terms ---- */

void holistic_time(const struct view_input *in, double *out)
{
    int t = in->frame_tokens, m = view_tokens(in);
    for (int j = 0; j < m; j++)
        out[j] = 0;
    for (int j = 0; j < m - t; j++) { /* each pair once, for both of it */
        double c = in->cosines ? in->cosines->next[j] : view_cosine(in, j, j + t);
        out[j] += c;
        out[j + t] += c;
    }
    for (int j = 0; j < m && in->n_frames > 1; j++)
        out[j] = 1 - out[j] / (j < t || j >= m - t ? 1 : 2);
}

enum pv_status holistic_space(const struct view_input *in, double *out, struct pv_error *err)
{
    int m = view_tokens(in), crops = count_crops(in);
    size_t lists = ((size_t)m + (size_t)crops + 1) * sizeof(int32_t);
    int32_t *list = in->cosines ? NULL : mem_alloc(lists), *bounds = list ? list + m : NULL;
    if (!in->cosines && !list)
        return fail_nomem(err, lists);
    if (in->cosines) {
        for (int j = 0; j < m; j++)
            out[j] = in->cosines->spread[j];
        return PV_OK;
    }
    list_crops(in, list, bounds);
    for (int k = 0; k < crops; k++)
        cosine_spread_ref(out, in->features, (size_t)in->width, in->width, list + bounds[k],
                          bounds[k + 1] - bounds[k]);
    mem_free(list);
    return PV_OK;
}

void holistic_normalise(double *x, int n)
{
    double mean = 0, deviation = sqrt(variance_of(x, n));
    for (int i = 0; i < n; i++)
        mean += x[i];
    mean /= n;
    for (int i = 0; i < n; i++)
        x[i] = deviation > flat ? (x[i] - mean) / deviation : 0;
}

/* What is no number is no attention. */
static void score_attention(const struct view_input *in, double *out)
{
    for (int j = 0; j < view_tokens(in); j++)
        out[j] = isfinite(in->scores[j]) ? in->scores[j] : 0;
}

static void add_term(const struct view_input *in, double *term, float *sum)
{
    for (int f = 0; f < in->n_frames; f++)
        holistic_normalise(term + (size_t)f * in->frame_tokens, in->frame_tokens);
    for (int j = 0; j < view_tokens(in); j++)
        sum[j] += (float)term[j];
}

enum pv_status view_holistic(const struct view_input *in, struct view_choice *out,
                             struct pv_error *err)
{
    size_t m = (size_t)view_tokens(in);
    unsigned terms = view_terms(in);
    float *sum = mem_zalloc(m * sizeof *sum);
    double *term = mem_alloc(m * sizeof *term);
    struct view_input fused = *in;
    enum pv_status s = sum && term ? PV_OK : fail_nomem(err, m * (sizeof *sum + sizeof *term));
    if (!s && terms & HOLISTIC_ATTENTION) {
        score_attention(in, term);
        add_term(in, term, sum);
    }
    if (!s && terms & HOLISTIC_TIME) {
        holistic_time(in, term);
        add_term(in, term, sum);
    }
    if (!s && terms & HOLISTIC_SPACE) {
        s = holistic_space(in, term, err);
        if (!s)
            add_term(in, term, sum);
    }
    fused.scores = sum;
    if (!s)
        s = view_attention(&fused, out, err);
    mem_free(term);
    mem_free(sum);
    return s;
}
