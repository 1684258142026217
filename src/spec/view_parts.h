/* Shared by the files of the views: the result of a view, ranking, even spacing, and marks. */
#ifndef PV_SPEC_VIEW_PARTS_H
#define PV_SPEC_VIEW_PARTS_H

#include "spec/view.h"

struct view_choice {
    int *kept; /* [m], borrowed; written only by a view that succeeds */
    int n;
    int stage1;
};

view_fn view_full, view_none, view_random, view_uniform, view_attention, view_specvlm,
    view_holistic;

static inline int view_tokens(const struct view_input *in)
{
    return in->n_frames * in->frame_tokens;
}

/* floor(x), x >= 0, with a tolerance for ratios that are not exact in binary: 1000 tokens at ratio
 * 0.9 are 100, although 1 - 0.9 is a little less than 0.1 in floating point. */
int view_floor(double x);

/* The i-th of u points spread evenly over 0 .. n - 1, both ends included; u = 1: point 0. For u <=
 * n they are distinct. Equals torch.linspace converted to integers: the first half is computed from
 * the start and the second from the end, then truncated. */
int spread_point(int i, int u, int n);

static inline const float *view_feature(const struct view_input *in, int token)
{
    return in->features + (size_t)token * (size_t)in->width;
}

static inline unsigned view_terms(const struct view_input *in)
{
    return in->holistic_terms ? in->holistic_terms : HOLISTIC_ALL;
}

/* Cosine of the features of two tokens. */
double view_cosine(const struct view_input *in, int i, int j);

/* Cosine of the tokens at place t of two frames. */
static inline double view_likeness(const struct view_input *in, int frame, int other, int t)
{
    return view_cosine(in, frame * in->frame_tokens + t, other * in->frame_tokens + t);
}

/* The part of n that belongs to [from, to) of `of`; the parts of a partition add up to n. */
static inline int share_between(int n, int from, int to, int of)
{
    return (int)((int64_t)n * to / of - (int64_t)n * from / of);
}

struct ranked {
    double score;
    int index;
};

/* Sort by falling score, equal ones by index; NaN counts as -INFINITY. */
void rank_falling(struct ranked *r, int n);

/* Scratch of a view: which tokens are kept so far, and memory for ranking. */
struct marks {
    bool *kept;          /* [m], owned, initially all false */
    struct ranked *rank; /* [n_rank], owned */
};

enum pv_status marks_open(struct marks *k, int m, int n_rank, struct pv_error *err);
void marks_close(struct marks *k);
/* Mark `count` evenly spaced ones of the n tokens from `from` on. */
void marks_spread(struct marks *k, int from, int n, int count);
enum { DYCOKE_GROUP = 4 }; /* frames */
/* Mark tokens of a group of n frames: `first` of the first frame, `rest` of the others. marks.rank
 * has room for a frame. */
void marks_group(struct marks *k, const struct view_input *in, int frame, int n, int first,
                 int rest);
void marks_collect(const struct marks *k, int m, struct view_choice *out);

#endif
