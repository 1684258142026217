/* What 'prevue view' shows, and the two forms it takes. */
#ifndef PV_CLI_VIEW_REPORT_H
#define PV_CLI_VIEW_REPORT_H

#include "view_draw.h"

#include "base/file.h"

enum { MAX_VIEWS = 16, MAX_HEATS = 3 };

/* What guides views: a score of each token. */
struct heat {
    const char *name; /* of one of the views that it guides */
    const char *what; /* that is */
    float *scores;    /* [units, height, width], owned; attention in units of its mean */
    bool attention;   /* it is that, from 0 on; if not, it may be negative */
    double low, top;  /* the darkest and the brightest colour: the 99th of a hundred scores, */
};                    /* and 0, or without attention the first */

/* A unit in time is one frame, for Qwen two, of height x width tokens; it is drawn as its first
 * frame. */
struct view_report {
    const char *video, *model, *question; /* borrowed */
    int frames, units, height, width;
    int columns; /* frames in a row; 0: as the form does it */
    int n_views;
    struct kept_view {
        const char *name;
        bool *visible; /* [units, height, width], owned */
        int kept;
        double attention;    /* share of it that the kept tokens hold; < 0: not known */
        double rows, frames; /* share of them in the first or last tenth of these */
    } views[MAX_VIEWS];
    double all_rows, all_frames; /* the same of all tokens */
    int n_heats;
    struct heat heats[MAX_HEATS];
};

static inline int report_unit_tokens(const struct view_report *r)
{
    return r->height * r->width;
}

static inline int report_tokens(const struct view_report *r)
{
    return r->units * report_unit_tokens(r);
}

/* Share of the tokens that a view leaves out. */
static inline double report_ratio(const struct view_report *r, const struct kept_view *v)
{
    return 1 - (double)v->kept / report_tokens(r);
}

/* Where a score stands on the ramp, 0 to 1. That of attention by its root: it is so uneven that in
 * a line nearly every token would be dark. */
double report_heat(const struct heat *h, double score);
/* Pixels of a token in a frame of this size so that the frame is about `wide`. */
void report_cells(const struct view_report *r, const struct pv_frame *f, int wide, struct tile *t);

/* One picture: a row of frames for each view. Zeroed, then opened, given every unit's frame in
 * order, written and closed. */
struct view_sheet {
    const struct view_report *report; /* borrowed */
    struct canvas page, frame;
    struct tile tile; /* the size of its cells */
    int columns, label_width, row_height, top;
    float *heat; /* [height, width], scratch */
};
enum pv_status sheet_open(struct view_sheet *s, const struct view_report *r, struct pv_error *err);
enum pv_status sheet_add(struct view_sheet *s, int unit, const struct pv_frame *f,
                         struct pv_error *err);
enum pv_status sheet_write(struct view_sheet *s, const char *path, struct pv_error *err);
void sheet_close(struct view_sheet *s);

/* One page that needs nothing else: zeroed, then opened, given every unit's frame in order, and
 * written. Closing a page that was not written leaves no file. */
struct view_page {
    const struct view_report *report; /* borrowed */
    struct file_out file;
};
enum pv_status page_open(struct view_page *p, const struct view_report *r, const char *path,
                         struct pv_error *err);
enum pv_status page_add(struct view_page *p, const struct pv_frame *f, struct pv_error *err);
enum pv_status page_write(struct view_page *p, struct pv_error *err);
void page_close(struct view_page *p);

#endif
