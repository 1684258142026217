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
 */
#include "spec/view_holistic.h"

#include "base/mem.h"
#include "spec/view_parts.h"

#include <math.h>

enum {
    CROP = 5,      /* tokens of a side */
    CROP_MOST = 7, /* of an axis that is one crop */
    CROP_TOKENS = CROP_MOST * CROP_MOST
};

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

void holistic_time(const struct view_input *in, double *out)
{
    int t = in->frame_tokens, m = view_tokens(in);
    for (int j = 0; j < m; j++)
        out[j] = 0;
    for (int j = 0; j < m - t; j++) { /* each pair once, for both of it */
        double c = view_cosine(in, j, j + t);
        out[j] += c;
        out[j + t] += c;
    }
    for (int j = 0; j < m && in->n_frames > 1; j++)
        out[j] = 1 - out[j] / (j < t || j >= m - t ? 1 : 2);
}

/* Around the first, so that equal values have a variance of 0 and not of rounding. */
static double variance(const double *x, int n)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++)
        mean += x[i] - x[0];
    mean /= n;
    for (int i = 0; i < n; i++) {
        double d = x[i] - x[0] - mean;
        sum += d * d;
    }
    return sum / n;
}

/* The n tokens of one crop. */
static void score_crop(const struct view_input *in, const int *token, int n, double *out)
{
    double s[CROP_TOKENS * (CROP_TOKENS + 1) / 2], square[CROP_TOKENS], row[CROP_TOKENS];
    for (int i = 0; i < n; i++) {
        const float *a = view_feature(in, token[i]);
        square[i] = features_dot(a, a, in->width);
        for (int j = 0; j <= i; j++) {
            double ab = j < i ? features_dot(a, view_feature(in, token[j]), in->width) : square[i];
            s[i * (i + 1) / 2 + j] = cosine_of(ab, square[i], square[j]);
        }
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) /* of a symmetric matrix the lower half is kept */
            row[j] = s[i > j ? i * (i + 1) / 2 + j : j * (j + 1) / 2 + i];
        out[token[i]] = variance(row, n);
    }
}

static void score_crops_of_frame(const struct view_input *in, int frame, double *out)
{
    int width = in->grid_width, height = in->frame_tokens / width;
    bool literal = in->crop_literal;
    int token[CROP_TOKENS], first = frame * in->frame_tokens;
    for (int i = 0; i < holistic_crops(height, literal); i++)
        for (int j = 0; j < holistic_crops(width, literal); j++) {
            int n = 0;
            for (int y = holistic_crop_start(height, i, literal);
                 y < holistic_crop_start(height, i + 1, literal); y++)
                for (int x = holistic_crop_start(width, j, literal);
                     x < holistic_crop_start(width, j + 1, literal); x++)
                    token[n++] = first + y * width + x;
            score_crop(in, token, n, out);
        }
}

void holistic_space(const struct view_input *in, double *out)
{
    for (int f = 0; f < in->n_frames; f++)
        score_crops_of_frame(in, f, out);
}

void holistic_normalise(double *x, int n)
{
    double mean = 0, deviation = sqrt(variance(x, n));
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
        holistic_space(in, term);
        add_term(in, term, sum);
    }
    fused.scores = sum;
    if (!s)
        s = view_attention(&fused, out, err);
    mem_free(term);
    mem_free(sum);
    return s;
}
