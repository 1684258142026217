/* Views: which video tokens a drafter sees. Each is a function from what is known after the
 * target's prefill to an ascending list of tokens, of an exact length where the method has one. */
#ifndef PV_SPEC_VIEW_H
#define PV_SPEC_VIEW_H

#include "base/status.h"

enum view_kind {
    VIEW_FULL,
    VIEW_NONE,
    VIEW_TEXT, /* Sparrow: no pictures either */
    VIEW_RANDOM,
    VIEW_UNIFORM,
    VIEW_WINDOW_FRONT,
    VIEW_WINDOW_MIDDLE,
    VIEW_WINDOW_BACK,
    VIEW_FRAME,         /* whole frames */
    VIEW_FASTVID,       /* as SpecVLM ran it: frames that resemble the one before are dropped */
    VIEW_FASTVID_EXACT, /* the same idea, budget-exact */
    VIEW_DYCOKE,        /* as SpecVLM ran it */
    VIEW_DYCOKE_EXACT,
    VIEW_ATTENTION,    /* the tokens the prompt's text attends to most */
    VIEW_SPECVLM,      /* those that hold a share of the attention, the rest evenly */
    VIEW_HOLISTIC,     /* HIPPO: attended to, changing in time and standing out in space */
    VIEW_ALIGNMENT,    /* ParallelVLM: what the target's first layers turned to the text */
    VIEW_SPECVLM_GRID, /* as specvlm, the rest on a grid within each frame */
    VIEW_COUNT
};

/* Terms of the score of holistic. */
enum { HOLISTIC_ATTENTION = 1, HOLISTIC_TIME = 2, HOLISTIC_SPACE = 4, HOLISTIC_ALL = 7 };

struct view_input;
struct view_choice;

/* The input was checked: it has tokens, numbers within their ranges, and what the view needs. */
typedef enum pv_status view_fn(const struct view_input *in, struct view_choice *out,
                               struct pv_error *err);

/* A view: its row of the table in view.c. The rest of the program asks for these properties and
 * never for a particular view. */
struct view {
    struct pv_view_info info; /* what users of the library may know too */
    view_fn *choose;
    /* The signal comes from the target's first layers. Where the method does not say how many: this
     * many, or of a target that has no more this share. 0: all of them. */
    int layers;
    double layer_share;
    bool early; /* the view can be chosen when those layers are done, before the prefill's end */
    bool grid;  /* it needs view_input.grid_width */
    bool there; /* it needs features only as view_input.cosines, which a device makes of them */
};

/* Cosines of the tokens' features that holistic scores by. */
struct view_cosines {
    const double *next;   /* [m]: with the token at the same place of the next frame */
    const double *spread; /* [m]: variance of its cosines with the tokens of its crop */
};

struct view_input {
    int n_frames, frame_tokens; /* m = n_frames * frame_tokens tokens, frame by frame, raster */
    double ratio;               /* of the tokens that are pruned */
    double lambda;              /* specvlm: share of the attention that stage I keeps */
    uint64_t seed;              /* random */
    const float *scores;        /* [m], where view_wants_scores: of the text's attention to each
                                   token (holistic: softmax over video keys), or its alignment */
    const float *features;      /* [m, width], where view_wants_features */
    /* holistic: what holistic_measure made of the features, instead of them; or NULL */
    const struct view_cosines *cosines;
    int width;
    int grid_width;          /* holistic: tokens of one row of a frame, divides frame_tokens */
    unsigned holistic_terms; /* HOLISTIC_*; 0: all */
    bool crop_literal;       /* holistic: crops of 5, 5, ... and a rest instead of near-equal */
};

/* "specvlm", ...; NULL past the last. */
const char *view_name(enum view_kind kind);
/* VIEW_COUNT: no such name. */
enum view_kind view_named(const char *name);
/* NULL past the last. */
const struct view *view_find(enum view_kind kind);
/* For holistic both hold whatever its terms; a term that is off needs nothing. */
bool view_wants_scores(enum view_kind kind);
bool view_wants_features(enum view_kind kind);
/* Of the target's n_layers, how many the view's signal comes from; `layer` as in pv_method. */
int view_layers(enum view_kind kind, double layer, int n_layers);

/* Tokens kept of m: floor((1 - ratio) m + 1e-9), at least 1 unless ratio is 1. */
int view_budget(int m, double ratio);
/* kept [m]: the tokens, ascending; *n of them. For specvlm *stage1 is how many stage I chose (may
 * be NULL). PV_E_NOMEM, or PV_E_ARG when what the view wants is missing. */
enum pv_status view_choose(enum view_kind kind, const struct view_input *in, int *kept, int *n,
                           int *stage1, struct pv_error *err);

#endif
