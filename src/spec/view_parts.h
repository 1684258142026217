/* What the files of the views share: the form of a view, ranking, even thinning, and marks. */
#ifndef PV_SPEC_VIEW_PARTS_H
#define PV_SPEC_VIEW_PARTS_H

#include "spec/view.h"

struct view_choice {
    int *kept; /* [m], borrowed; written only by a view that succeeds */
    int n;
    int stage1;
};

view_fn view_full, view_none, view_random, view_uniform, view_window_front, view_window_middle,
    view_window_back, view_frame, view_fastvid, view_fastvid_exact, view_dycoke, view_dycoke_exact,
    view_attention, view_specvlm, view_specvlm_grid, view_holistic;

static inline int view_tokens(const struct view_input *in)
{
    return in->n_frames * in->frame_tokens;
}

/* floor(x), x >= 0, forgiving the rounding of ratios that are no binary fractions: 1000 tokens at
 * 0.9 are 100, though 1 - 0.9 is a little less than a tenth. */
int view_floor(double x);

/* The i-th of u points spread evenly over 0 .. n - 1, both ends among them; u = 1: point 0. For
 * u <= n they are distinct. The integers of torch.linspace: the first half is counted from the
 * start and the second from the end, truncated. */
int spread_point(int i, int u, int n);

static inline const float *view_feature(const struct view_input *in, int token)
{
    return in->features + (size_t)token * (size_t)in->width;
}

static inline unsigned view_terms(const struct view_input *in)
{
    return in->holistic_terms ? in->holistic_terms : HOLISTIC_ALL;
}

/* Of the features of two tokens. */
double view_cosine(const struct view_input *in, int i, int j);

struct ranked {
    double score;
    int index;
};

/* Highest first; equal ones by index; a NaN becomes -INFINITY. */
void rank_falling(struct ranked *r, int n);

/* Which tokens are kept, while a view makes up its mind, and room to rank. */
struct marks {
    bool *kept;          /* [m], owned, none at first */
    struct ranked *rank; /* [n_rank], owned */
};

enum pv_status marks_open(struct marks *k, int m, int n_rank, struct pv_error *err);
void marks_close(struct marks *k);
/* `count` of the n tokens from `from` on, evenly. */
void marks_spread(struct marks *k, int from, int n, int count);
void marks_collect(const struct marks *k, int m, struct view_choice *out);

#endif
