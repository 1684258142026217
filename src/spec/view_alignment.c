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
 * tokens kept in tests/unit/test_view_alignment.c bfloat16 changes 50, half 7.
 *
 * All of it happens on the device that runs the prefill: the rows never leave it. */
#include "spec/view_alignment.h"

#include "base/mem.h"

#include <math.h>

struct alignment {
    struct device *dev;
    struct device_work *work;
    int n_video, width, max_rows;
    uint16_t *video[ALIGNMENT_SNAPSHOTS]; /* [n_video, width], half; 0 until the row comes */
    double *text[ALIGNMENT_SNAPSHOTS];    /* [width] */
    double *numbers; /* scales of the rows of one call, or cosines: [most of max_rows, n_video] */
    int32_t *lists;  /* [2, max_rows]: struct unit_job's rows and to */
    void *block;     /* on the device, as all of the above */
    int32_t *host;   /* [2, max_rows] */
};

int alignment_layers(double l, int n_layers)
{
    double n = l < 1 ? floor(l * n_layers + 0.5) : floor(l);
    return !(n >= 1) ? 1 : n > n_layers ? n_layers : (int)n;
}

/* ---- memory ---- */

/* A part of the block, or with base NULL only its bytes. */
static void *carve(uint8_t *base, size_t *at, size_t size)
{
    void *p = base ? base + *at : NULL;
    *at += (size + 255) / 256 * 256; /* whole accesses of a GPU */
    return p;
}

static size_t lay_out(struct alignment *a, uint8_t *base)
{
    size_t rows = (size_t)a->n_video * (size_t)a->width * sizeof(uint16_t), at = 0;
    size_t most = (size_t)(a->n_video > a->max_rows ? a->n_video : a->max_rows);
    for (int k = 0; k < ALIGNMENT_SNAPSHOTS; k++) {
        a->video[k] = carve(base, &at, rows);
        a->text[k] = carve(base, &at, (size_t)a->width * sizeof(double));
    }
    a->numbers = carve(base, &at, most * sizeof(double));
    a->lists = carve(base, &at, 2 * (size_t)a->max_rows * sizeof(int32_t));
    return at;
}

size_t alignment_size(int n_video, int width, int max_rows)
{
    struct alignment a = { .n_video = n_video, .width = width, .max_rows = max_rows };
    return lay_out(&a, NULL);
}

enum pv_status alignment_open(struct alignment **out, struct device *dev, struct device_work *work,
                              int n_video, int width, int max_rows, struct pv_error *err)
{
    size_t lists = 2 * (size_t)max_rows * sizeof(int32_t);
    struct alignment *a = mem_zalloc(sizeof *a);
    enum pv_status s;
    if (!a)
        return fail_nomem(err, sizeof *a);
    *a = (struct alignment){
        .dev = dev, .work = work, .n_video = n_video, .width = width, .max_rows = max_rows
    };
    a->host = mem_alloc(lists);
    s = a->host ? device_alloc(dev, &a->block, lay_out(a, NULL), err) : fail_nomem(err, lists);
    if (s) {
        alignment_close(&a);
        return s;
    }
    lay_out(a, a->block);
    *out = a;
    return PV_OK;
}

void alignment_close(struct alignment **a)
{
    if (!*a)
        return;
    if ((*a)->block)
        (*a)->dev->ops->free((*a)->dev, (*a)->block);
    mem_free((*a)->host);
    mem_free(*a);
    *a = NULL;
}

/* ---- scores ---- */

enum pv_status alignment_add(struct alignment *a, enum alignment_snapshot at, const int *token,
                             const float *rows, int n, struct pv_error *err)
{
    const struct device_ops *ops = a->dev->ops;
    int32_t *row = a->host, *to = a->host + a->max_rows;
    size_t size = (size_t)a->max_rows * sizeof *row;
    struct unit_job j = { .x = rows,
                          .width = a->width,
                          .rows = a->lists,
                          .to = a->lists + a->max_rows,
                          .units = a->video[at],
                          .sum = a->text[at],
                          .scale = a->numbers };
    for (int i = 0; i < n; i++)
        if (token[i] >= 0) {
            row[j.n_units] = i;
            to[j.n_units++] = token[i];
        }
    for (int i = 0; i < n; i++)
        if (token[i] == ALIGNMENT_TEXT)
            row[j.n_units + j.n_sums++] = i;
    ops->put(a->work, a->lists, a->host, size + (size_t)j.n_units * sizeof *to);
    ops->unit_rows(a->work, &j);
    return ops->wait(a->work, err); /* the rows are the caller's again */
}

enum pv_status alignment_finish(struct alignment *a, float *scores, struct pv_error *err)
{
    const struct device_ops *ops = a->dev->ops;
    size_t size = (size_t)a->n_video * sizeof(double);
    double *cosines = mem_alloc(ALIGNMENT_SNAPSHOTS * size + 1);
    enum pv_status s;
    if (!cosines)
        return fail_nomem(err, ALIGNMENT_SNAPSHOTS * size);
    for (int at = 0; at < ALIGNMENT_SNAPSHOTS; at++) {
        ops->unit_dots(a->work, a->numbers, a->video[at], a->text[at], a->n_video, a->width);
        ops->get(a->work, cosines + (size_t)at * (size_t)a->n_video, a->numbers, size);
    }
    s = ops->wait(a->work, err);
    for (int i = 0; i < a->n_video && !s; i++)
        scores[i] =
            (float)(cosines[(size_t)ALIGNMENT_AFTER * (size_t)a->n_video + (size_t)i] - cosines[i]);
    mem_free(cosines);
    return s;
}
