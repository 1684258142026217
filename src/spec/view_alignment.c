/* ParallelVLM's UV-Prune, in its telescoped form. The paper scores video token i by
 *
 *   sum over text tokens j and layers l = 1 .. L of  cos(v_i^l, x_j^l) - cos(v_i^(l-1), x_j^(l-1))
 *
 * of which all layers but the first and the last cancel; and the sum of the cosines with all text
 * tokens is one product with the sum of their unit vectors u:
 *
 *   score_i = v_i^L / |v_i^L| . u^L - v_i^0 / |v_i^0| . u^0,   u^l = sum_j x_j^l / |x_j^l|
 *
 * The text follows the video, so u is not known when the video's rows come by, and their unit
 * vectors are kept as IEEE half: the elements of a unit vector lie within 1, where half has eleven
 * bits at the size at which bfloat16 has eight. Hidden states are dominated by a few large elements
 * that all tokens have in common, and eight bits of those hide what tells the tokens apart: of 1440
 * tokens kept in tests/unit/test_view_alignment.c bfloat16 changes 50, half 7. */
#include "spec/view_alignment.h"

#include "base/mem.h"
#include "spec/view_parts.h"
#include "tensor/half.h"

#include <math.h>

struct alignment {
    int n_video, width;
    uint16_t *video[ALIGNMENT_SNAPSHOTS]; /* [n_video, width], half; 0 until the row comes */
    double *text[ALIGNMENT_SNAPSHOTS];    /* [width] */
};

int alignment_layers(double l, int n_layers)
{
    double n = l < 1 ? floor(l * n_layers + 0.5) : floor(l);
    return !(n >= 1) ? 1 : n > n_layers ? n_layers : (int)n;
}

enum pv_status alignment_open(struct alignment **out, int n_video, int width, struct pv_error *err)
{
    size_t rows = (size_t)n_video * (size_t)width * sizeof(uint16_t);
    size_t sums = (size_t)width * sizeof(double);
    struct alignment *a = mem_zalloc(sizeof *a);
    if (!a)
        return fail_nomem(err, sizeof *a);
    *a = (struct alignment){ .n_video = n_video, .width = width };
    for (int at = 0; at < ALIGNMENT_SNAPSHOTS; at++) {
        a->video[at] = mem_zalloc(rows ? rows : 1);
        a->text[at] = mem_zalloc(sums);
        if (!a->video[at] || !a->text[at]) {
            alignment_close(&a);
            return fail_nomem(err, rows + sums);
        }
    }
    *out = a;
    return PV_OK;
}

void alignment_close(struct alignment **a)
{
    if (!*a)
        return;
    for (int at = 0; at < ALIGNMENT_SNAPSHOTS; at++) {
        mem_free((*a)->video[at]);
        mem_free((*a)->text[at]);
    }
    mem_free(*a);
    *a = NULL;
}

/* 1 / |x|, 0 for a row without a direction. */
static double inverse_length(const float *x, int width)
{
    double inverse = 1 / sqrt(features_dot(x, x, width));
    return isfinite(inverse) ? inverse : 0; /* of an infinite row it is 0 */
}

void alignment_add(struct alignment *a, enum alignment_snapshot at, const int *token,
                   const float *rows, int n)
{
    size_t width = (size_t)a->width;
    for (int i = 0; i < n; i++) {
        const float *x = rows + (size_t)i * width;
        double scale = token[i] == ALIGNMENT_NEITHER ? 0 : inverse_length(x, a->width);
        if (scale == 0)
            continue;
        if (token[i] == ALIGNMENT_TEXT) {
            for (size_t k = 0; k < width; k++)
                a->text[at][k] += x[k] * scale;
        } else {
            uint16_t *v = a->video[at] + (size_t)token[i] * width;
            for (size_t k = 0; k < width; k++)
                v[k] = f16_from_f32((float)(x[k] * scale));
        }
    }
}

void alignment_finish(const struct alignment *a, float *scores)
{
    size_t width = (size_t)a->width;
    for (int i = 0; i < a->n_video; i++) {
        double cosines[ALIGNMENT_SNAPSHOTS] = { 0 };
        for (int at = 0; at < ALIGNMENT_SNAPSHOTS; at++) {
            const uint16_t *v = a->video[at] + (size_t)i * width;
            for (size_t k = 0; k < width; k++)
                cosines[at] += f16_to_f32(v[k]) * a->text[at][k];
        }
        scores[i] = (float)(cosines[ALIGNMENT_AFTER] - cosines[ALIGNMENT_BEFORE]);
    }
}
