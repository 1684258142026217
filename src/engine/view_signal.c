/* Attention is measured by column taps of the steps that run the question's rows: one tap for all
 * layers, or one per layer. Each step returns sums, which are added up over the steps of the
 * prompt. */
#include "engine/view_signal.h"

/* Scores of one layer. */
static size_t layer_size(const struct drafting *d)
{
    return (size_t)d->score_groups * (size_t)d->n_rows;
}

bool view_signal_scores(const struct view_signal *v)
{
    return v->kind == SIGNAL_ATTENTION || v->kind == SIGNAL_ALIGNMENT || v->by_drafter;
}

int view_signal_taps(const struct view_signal *v, struct drafting *d, int n, const int *rows,
                     struct column_tap *tap)
{
    bool by_layer = v->kind == SIGNAL_LAYER_ATTENTION;
    int layers = v->layers, n_taps = by_layer ? layers : 1;
    for (int i = 0; i < n_taps; i++)
        tap[i] = (struct column_tap){
            .layer0 = by_layer ? i : 0,
            .layer1 = by_layer ? i + 1 : layers,
            .n_rows = n,
            .rows = rows,
            .n_keys = d->n_rows,
            .keys = d->rows,
            .over_keys = v->over_video,
            .by_group = by_layer && d->score_groups > 1,
            .sums = by_layer ? d->layer_scores + (size_t)(layers + i) * layer_size(d) : d->sums,
        };
    return n_taps;
}

void view_signal_add(const struct view_signal *v, struct drafting *d, int n_taps)
{
    bool by_layer = v->kind == SIGNAL_LAYER_ATTENTION;
    size_t n = by_layer ? layer_size(d) : (size_t)d->n_rows;
    for (int t = 0; t < n_taps; t++) {
        float *to = by_layer ? d->layer_scores + (size_t)t * n : d->scores;
        const float *from = by_layer ? d->layer_scores + (size_t)(n_taps + t) * n : d->sums;
        for (size_t i = 0; i < n; i++)
            to[i] += from[i];
    }
}
