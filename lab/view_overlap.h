/* Draws the timeline of model and drafter: two lanes per method, time to the right. */
#ifndef PV_LAB_VIEW_OVERLAP_H
#define PV_LAB_VIEW_OVERLAP_H

#include "trial.h"
#include "view_draw.h"

struct overlap {
    const char *clip, *model; /* all pointers are borrowed */
    const struct contenders *who;
    const struct trial_result *found;
    double from, seconds; /* part to draw; both 0: the whole, and a second part with some rounds */
};

/* The kinds of spans, and their colours. */
enum { N_SPAN_KINDS = 6 };
struct span_kind {
    const char *name;
    struct colour ink;
};
extern const struct span_kind span_kinds[N_SPAN_KINDS];
/* The index of a span's kind; the last one, "other", if there is none. */
int span_kind_of(const char *what);

/* Whether this side of method k has spans. */
bool overlap_has(const struct overlap *o, int k, enum pv_side side);
/* Seconds that this side of method k spent on spans of a kind. */
double overlap_seconds(const struct overlap *o, int k, enum pv_side side, int kind);
/* When the last span of method k ends. */
double overlap_end(const struct overlap *o, int k);

/* Write it as a PNG file, or as an HTML page that can be zoomed. Not in a CORE build. */
enum pv_status overlap_picture(const struct overlap *o, const char *path, struct pv_error *err);
enum pv_status overlap_page(const struct overlap *o, const char *path, struct pv_error *err);

#endif
