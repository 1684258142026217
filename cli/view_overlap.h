/* A picture of what model and drafter did when: two lanes for each method, time to the right. */
#ifndef PV_CLI_VIEW_OVERLAP_H
#define PV_CLI_VIEW_OVERLAP_H

#include "trial.h"
#include "view_draw.h"

struct overlap {
    const char *clip, *model; /* borrowed, as all of it */
    const struct contenders *who;
    const struct trial_result *found;
    double from, seconds; /* of a picture; both 0: one part with all of it and one of some rounds */
};

/* The kinds of spans, and their colours. */
enum { N_SPAN_KINDS = 6 };
struct span_kind {
    const char *name;
    struct colour ink;
};
extern const struct span_kind span_kinds[N_SPAN_KINDS];
/* The last one, "other", for what has no kind. */
int span_kind_of(const char *what);

/* Does this side of method k do anything? */
bool overlap_has(const struct overlap *o, int k, enum pv_side side);
/* Seconds that this side of method k spent on spans of a kind. */
double overlap_seconds(const struct overlap *o, int k, enum pv_side side, int kind);
/* When the last span of method k ends. */
double overlap_end(const struct overlap *o, int k);

/* As a PNG file, or as a page to zoom in. Not in a CORE build. */
enum pv_status overlap_picture(const struct overlap *o, const char *path, struct pv_error *err);
enum pv_status overlap_page(const struct overlap *o, const char *path, struct pv_error *err);

#endif
