/* Views: which video tokens the drafter gets. A view is a function from what is known after the
 * target's prefill to an ascending list of video tokens. Views with a ratio keep an exact number,
 * except those that follow a published implementation which does not. */
#ifndef PV_SPEC_VIEW_H
#define PV_SPEC_VIEW_H

#include "base/status.h"

/* The place of a view in the table: those of the library, then those that views_add has added. */
enum view_kind {
    VIEW_UNKNOWN = -1,
    VIEW_FULL,
    VIEW_NONE,
    VIEW_TEXT, /* Sparrow: no pictures either */
    VIEW_RANDOM,
    VIEW_UNIFORM,
    VIEW_ATTENTION, /* the tokens that the prompt's text attends to most */
    VIEW_SPECVLM,   /* tokens that hold a share of the attention; the others evenly spaced */
    VIEW_HOLISTIC,  /* HIPPO: scores of attention, change in time and contrast in space */
    VIEW_ALIGNMENT, /* ParallelVLM: tokens that the target's first layers moved to the text */
    VIEW_COUNT      /* of the library */
};

/* Terms of holistic's score. */
enum { HOLISTIC_ATTENTION = 1, HOLISTIC_TIME = 2, HOLISTIC_SPACE = 4, HOLISTIC_ALL = 7 };

struct view_input;
struct view_choice;

/* The caller has checked the input: it has tokens, numbers in range, and what the view needs. */
typedef enum pv_status view_fn(const struct view_input *in, struct view_choice *out,
                               struct pv_error *err);

/* A view: its row of the table in view.c. The rest of the program asks for these properties and
 * never for a particular view. */
struct view {
    struct pv_view_info info; /* the public part */
    view_fn *choose;
    /* The signal comes from the target's first layers. If the method does not say how many, this
     * many are used; for a target with no more layers than that, this share of them. 0: all. */
    int layers;
    double layer_share;
    bool early; /* the tokens can be chosen when those layers are done, before the prefill's end */
    bool grid;  /* it needs view_input.grid_width */
    bool on_device; /* it needs features only as view_input.cosines, which the device can compute */
};

/* Cosines of the tokens' features, for holistic. */
struct view_cosines {
    const double *next;   /* [m]: with the token at the same place of the next frame */
    const double *spread; /* [m]: variance of its cosines with the tokens of its crop */
};

struct view_input {
    int n_frames, frame_tokens; /* m = n_frames * frame_tokens tokens, frame by frame, raster */
    double ratio;               /* share of the tokens that are pruned */
    double lambda;              /* specvlm: share of the attention that stage I keeps */
    uint64_t seed;              /* random */
    const float *scores;        /* [m], if view_wants_scores: the text's attention to each token
                                   (holistic: softmax over video keys), or its alignment */
    const float *features;      /* [m, width], if view_wants_features */
    /* holistic: the result of holistic_measure, instead of features; or NULL */
    const struct view_cosines *cosines;
    int width;
    int grid_width;          /* holistic: tokens of one row of a frame, divides frame_tokens */
    unsigned holistic_terms; /* HOLISTIC_*; 0: all */
    bool crop_literal;       /* holistic: crops of 5, 5, ... and a remainder, not near-equal ones */
};

enum { VIEWS_MOST_ADDED = 16 };

/* Add n rows, which must stay valid for as long as the process runs. Call it before a model is
 * opened; it is not safe beside other calls. False: a name is taken, or there would be more than
 * VIEWS_MOST_ADDED. */
bool views_add(const struct view *rows, int n);

/* "specvlm", ...; NULL past the last. */
const char *view_name(enum view_kind kind);
enum view_kind view_named(const char *name);
/* NULL past the last. */
const struct view *view_find(enum view_kind kind);
/* True for holistic whatever its terms are, although a term that is off needs no input. */
bool view_wants_scores(enum view_kind kind);
bool view_wants_features(enum view_kind kind);
/* How many of the target's n_layers layers the view's signal comes from; `layer` as in
 * pv_method. */
int view_layers(enum view_kind kind, double layer, int n_layers);

/* Tokens kept of m: floor((1 - ratio) m + 1e-9), at least 1 unless ratio is 1. */
int view_budget(int m, double ratio);
/* Choose tokens: kept [m] receives *n of them, ascending. *stage1 (may be NULL): for specvlm, how
 * many stage I chose. PV_E_NOMEM, or PV_E_ARG if an input that the view needs is missing. */
enum pv_status view_choose(enum view_kind kind, const struct view_input *in, int *kept, int *n,
                           int *stage1, struct pv_error *err);

#endif
