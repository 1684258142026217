/* Lossy peers: methods that take video tokens away from the target itself. They change the answer,
 * so they are never chosen by anything but their name. What each does is a plan: stages, groups of
 * layers that follow one another and keep ever fewer tokens of the video. */
#ifndef PV_SPEC_LOSSY_H
#define PV_SPEC_LOSSY_H

#include "spec/view.h"

enum { LOSSY_MAX_STAGES = 4, LOSSY_MAX_NAME = 32 };

/* What a stage's tokens are chosen by, among those of the stage before. */
enum lossy_signal {
    LOSSY_ALL,        /* nothing: it has them all */
    LOSSY_FEATURES,   /* before the first layer: the vision tower's rows */
    LOSSY_LAST_ROW,   /* the attention that the prompt's last row pays them in the layer before */
    LOSSY_NEXT_LAYER, /* the same in the stage's own first layer, as if nothing were pruned there */
    LOSSY_RATERS,  /* that of the text rows that have to do with the video, in the layer before */
    LOSSY_DECODING /* by each token of the answer anew: the prefill has them all */
};

struct lossy_stage {
    int layer0, layer1;
    enum lossy_signal signal;
    double keep; /* share of the video's tokens that it has */
    bool merges; /* of those that go, the best are joined to a few that stay */
};

struct lossy_plan {
    char name[LOSSY_MAX_NAME];
    double ratio; /* share of the video's tokens that the last layers do not see */
    bool compact; /* positions have no gaps: rows are counted anew in every stage. Only for models
                     with one position per token */
    int n;
    struct lossy_stage stage[LOSSY_MAX_STAGES];
};

/* Whether pv_method.lossy asks for a plan: not if it is NULL or only names the KV cache's type. */
bool lossy_prunes(const char *text);
/* "fastv"; NULL past the last. */
const char *lossy_name(int i);
/* "fastv:0.5" for a model of so many layers. PV_E_ARG: no such method, or a ratio that is none;
 * n_layers 0: only that is checked. */
enum pv_status lossy_plan(struct lossy_plan *out, const char *text, int n_layers,
                          struct pv_error *err);

/* Tokens that a stage with this share keeps of m: at least 1. */
int lossy_budget(int m, double keep);
/* The k highest of n scores, the first of equals; kept [n]: ascending indices. */
enum pv_status lossy_highest(int *kept, const float *score, int n, int k, struct pv_error *err);

/* DyCoke's temporal merging: frames in groups of four, the first whole; of the others the tokens
 * least like those at the same place of frames 1, 1 and 3 of the group, as many as make up the
 * share `keep` of all. The share of a frame that is pruned is at most `most`. kept [m]: ascending;
 * *n of them. */
enum pv_status lossy_merge_time(const struct view_input *in, double keep, double most, int *kept,
                                int *n, struct pv_error *err);

/* SparseVLM's raters: of n_text rows of text those whose softmax, over the text, of their product
 * with a row of the video, averaged over the video's rows, is at least the mean. */
enum pv_status lossy_raters(bool *rates, const float *text, int n_text, const float *video,
                            int n_video, int width, struct pv_error *err);

/* SparseVLM's recycling: how many of the m - budget tokens that go are clustered, and to how many.
 * The budget has them in it. */
struct lossy_recycling {
    int kept;      /* by score */
    int clustered; /* the next best, */
    int clusters;  /* which become so many */
};
struct lossy_recycling lossy_recycle(int m, int budget);
/* Clusters n rows by density peaks (the 5 nearest neighbours): centre [n_clusters] ascending, and
 * rows [n, width] of a centre become the mean of its cluster's. */
enum pv_status lossy_cluster(float *rows, int n, int width, int n_clusters, int *centre,
                             struct pv_error *err);

/* DyCoke: whether the attention has turned so far from `before` that tokens are chosen anew. */
bool lossy_turned(const float *before, const float *now, int n);

#endif
