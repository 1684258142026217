/* The result of 'prevue-lab view', and its two output formats (picture and page). */
#ifndef PV_LAB_VIEW_REPORT_H
#define PV_LAB_VIEW_REPORT_H

#include "view_draw.h"

#include "base/file.h"

enum { MAX_VIEWS = 16, MAX_HEATS = 4 };

/* A heat map: the score of each token, from which views choose. */
struct heat {
    const char *name; /* of one of the views that use it */
    const char *what; /* what the score means */
    float *scores;    /* [units, height, width], owned; attention in units of its mean */
    bool attention;   /* scores are attention, at least 0; otherwise they may be negative */
    /* Scores with the darkest and the brightest colour: top is the 99th percentile; low is 0 for
     * attention, otherwise the 1st percentile. */
    double low, top;
};

/* A unit of time is one frame (two for Qwen) of height x width tokens; its first frame is drawn. */
struct view_report {
    const char *video, *model, *question; /* borrowed */
    int frames, units, height, width;
    int columns; /* frames per row; 0: the format's default */
    int n_views;
    struct kept_view {
        const char *name;
        bool *visible; /* [units, height, width], owned */
        int kept;
        double attention;    /* share of the attention on the kept tokens; < 0: unknown */
        double rows, frames; /* share of kept tokens in the first or last tenth of rows, frames */
    } views[MAX_VIEWS];
    double all_rows, all_frames; /* the same for all tokens */
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

/* Share of the tokens that a view removes. */
static inline double report_ratio(const struct view_report *r, const struct kept_view *v)
{
    return 1 - (double)v->kept / report_tokens(r);
}

/* The position of a score on the colour scale, 0 to 1. For attention the square root is used: it is
 * so uneven that on a linear scale nearly every token would be dark. */
double report_heat(const struct heat *h, double score);
/* Set the size of a token's cell so that a frame of this shape is about `wide` pixels wide. */
void report_cells(const struct view_report *r, const struct pv_frame *f, int wide, struct tile *t);

/* A picture with a row of frames for each view. Zero it, open it, add every unit's frame in order,
 * write it and close it. */
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

/* A self-contained HTML page. Zero it, open it, add every unit's frame in order, write it. If a
 * page is closed without being written, no file is left. */
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
