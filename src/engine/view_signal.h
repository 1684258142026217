/* The view signal: what the prefill of the model measures and keeps for the drafter and its view.
 * It follows from the tables of drafters and views and does not change during an answer. */
#ifndef PV_ENGINE_VIEW_SIGNAL_H
#define PV_ENGINE_VIEW_SIGNAL_H

#include "engine/drafting.h"

/* What is measured for each row of a video. */
enum signal_kind {
    SIGNAL_NONE,
    SIGNAL_ATTENTION,       /* the attention that the question pays to it */
    SIGNAL_LAYER_ATTENTION, /* the same, for every layer separately */
    SIGNAL_ALIGNMENT        /* how much closer to the text the first layers brought it */
};

struct view_signal {
    enum signal_kind kind;
    int layers;      /* it is measured in this many of the first layers */
    int query0;      /* first row of the prompt whose attention is used */
    bool over_video; /* attention: a softmax over the video's tokens only */
    bool text_after; /* alignment: only with text from query0 on */
    bool early;      /* the view may be chosen after those layers, before the prefill's end */
    bool states;     /* the drafter also needs the model's hidden states of all rows */
    bool by_drafter; /* attention, but in the drafter: the prefill measures nothing (SIGNAL_NONE),
                        and the drafter reads the whole prompt before the view is chosen */
};

/* Whether the view chooses by the scores in draft.scores. */
bool view_signal_scores(const struct view_signal *v);

/* Make taps for a prefill step of n rows at or after query0; tap [n_layers]. Returns their number.
 * view_signal_add adds their results to the scores of `d`. */
int view_signal_taps(const struct view_signal *v, struct drafting *d, int n, const int *rows,
                     struct column_tap *tap);
void view_signal_add(const struct view_signal *v, struct drafting *d, int n_taps);

#endif
