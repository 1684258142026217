/* The picture of 'prevue-lab view'. Frames come one at a time and are drawn down their column, so
 * only one is held; the page is made when the first says how large they are. */
#include "view_report.h"

#include "base/png.h"
#include "command.h"
#include "progress.h"

#include "base/mem.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    USUAL_COLUMNS = 12,
    FRAMES_WIDTH = 1440, /* of a row of frames, about */
    MOST_FRAME_WIDTH = 256,
    LEAST_PAGE_WIDTH = 1050,
    SCALE = 2, /* of letters */
    LINE = 10 * SCALE,
    MARGIN = 20,
    GAP = 6,
    LABEL_LINES = 6,
    LABEL_SIZE = 32, /* bytes of a line */
    LEAST_LABEL = 16 * GLYPH_ADVANCE * SCALE,
    LINE_SIZE = 1024
};

static const struct colour ground = { 22, 24, 29 }, bright = { 236, 238, 242 },
                           dim = { 158, 164, 174 };

void report_cells(const struct view_report *r, const struct pv_frame *f, int wide, struct tile *t)
{
    double aspect = (double)f->height / r->height / ((double)f->width / r->width);
    t->rows = r->height;
    t->columns = r->width;
    t->cell_w = wide / r->width > 3 ? wide / r->width : 3;
    t->cell_h = (int)fmin(fmax(lround(t->cell_w * aspect), 1), 64);
}

double report_heat(const struct heat *h, double score)
{
    double t = fmin(fmax((score - h->low) / (h->top - h->low), 0), 1);
    return h->attention ? sqrt(t) : t;
}

/* ---- labels ---- */

struct label {
    char line[LABEL_LINES][LABEL_SIZE];
};

static struct label frames_label(const struct view_sheet *s)
{
    const struct view_report *r = s->report;
    struct label l = { { "frames" } };
    snprintf(l.line[1], LABEL_SIZE, "%d of %dx%d", r->units, r->height, r->width);
    if (r->frames > r->units)
        snprintf(l.line[2], LABEL_SIZE, "tokens, in pairs");
    else
        snprintf(l.line[2], LABEL_SIZE, "tokens");
    if (s->columns < r->units)
        snprintf(l.line[3], LABEL_SIZE, "%d shown, evenly", s->columns);
    return l;
}

/* The next two lines are the ramp and its scale. */
static struct label heat_label(const struct heat *h)
{
    struct label l = { { "heat" } };
    snprintf(l.line[0], LABEL_SIZE, "heat: %s", h->name);
    snprintf(l.line[1], LABEL_SIZE, "%s", h->what);
    return l;
}

static struct label view_label(const struct view_report *r, const struct kept_view *v)
{
    struct label l;
    memset(&l, 0, sizeof l);
    snprintf(l.line[0], LABEL_SIZE, "%s", v->name);
    snprintf(l.line[1], LABEL_SIZE, "keeps %.1f%%:", 100 * (1 - report_ratio(r, v)));
    snprintf(l.line[2], LABEL_SIZE, "%d of %d", v->kept, report_tokens(r));
    if (v->attention >= 0)
        snprintf(l.line[3], LABEL_SIZE, "%.0f%% of attention", v->attention * 100);
    snprintf(l.line[4], LABEL_SIZE, "%.0f%% top/bottom", v->rows * 100);
    snprintf(l.line[5], LABEL_SIZE, "%.0f%% start/end", v->frames * 100);
    return l;
}

static int label_width(const struct label *l)
{
    int most = 0;
    for (int i = 0; i < LABEL_LINES; i++) {
        int w = text_width(l->line[i], SCALE);
        most = w > most ? w : most;
    }
    return most;
}

static void draw_label(struct canvas *c, const struct label *l, int y)
{
    for (int i = 0; i < LABEL_LINES; i++)
        draw_text(c, MARGIN, y + i * LINE, SCALE, i ? dim : bright, l->line[i]);
}

/* From one end of the scale to the other; attention is told as so many times the mean. */
static void draw_ramp(const struct view_sheet *s, struct canvas *c, const struct heat *h, int y)
{
    int width = s->label_width - 2 * MARGIN;
    char top[LABEL_SIZE], low[LABEL_SIZE];
    snprintf(top, sizeof top, h->attention ? "%.3gx mean" : "%.3g", h->top);
    snprintf(low, sizeof low, "%.3g", h->low);
    for (int x = 0; x < width; x++)
        draw_rect(c, (struct rect){ MARGIN + x, y + 2 * LINE, 1, LINE - 6 },
                  heat_colour((double)x / (width - 1)), 1);
    draw_text(c, MARGIN, y + 3 * LINE, SCALE, dim, low);
    draw_text(c, MARGIN + width - text_width(top, SCALE) + SCALE, y + 3 * LINE, SCALE, dim, top);
}

/* ---- the page ---- */

static int n_rows(const struct view_report *r)
{
    return 1 + r->n_heats + r->n_views;
}

static int row_y(const struct view_sheet *s, int row)
{
    return s->top + row * s->row_height;
}

static void draw_line(struct view_sheet *s, int y, struct colour ink, const char *utf8)
{
    draw_fitted(&s->page, MARGIN, y, s->page.width - 2 * MARGIN, SCALE, ink, utf8);
}

static void draw_page(struct view_sheet *s)
{
    const struct view_report *r = s->report;
    struct label l = frames_label(s);
    int row = 0, end = row_y(s, n_rows(r));
    char line[LINE_SIZE];

    draw_line(s, MARGIN, bright, path_name(r->video));
    snprintf(line, sizeof line, "%.200s, asked: %s", path_name(r->model), r->question);
    draw_line(s, MARGIN + LINE, dim, line);
    draw_line(
        s, end, dim,
        "in colour: the video tokens that the drafter sees with this view; grey: those it does "
        "not see");
    snprintf(line, sizeof line,
             "top/bottom, start/end: kept tokens in the outer tenths of rows and of frames (of all "
             "tokens: %.0f%%, %.0f%%)",
             r->all_rows * 100, r->all_frames * 100);
    draw_line(s, end + LINE, dim, line);
    if (r->n_heats)
        draw_line(
            s, end + 2 * LINE, dim,
            "heat: how important the model finds each token; dark is low, bright is high (the top "
            "1% are equally bright)");
    draw_label(&s->page, &l, row_y(s, row++));
    for (int i = 0; i < r->n_heats; i++) {
        l = heat_label(&r->heats[i]);
        draw_label(&s->page, &l, row_y(s, row));
        draw_ramp(s, &s->page, &r->heats[i], row_y(s, row++));
    }
    for (int i = 0; i < r->n_views; i++) {
        l = view_label(r, &r->views[i]);
        draw_label(&s->page, &l, row_y(s, row++));
    }
}

/* Sizes of everything, from those of the first frame. */
static enum pv_status lay_out(struct view_sheet *s, const struct pv_frame *f, struct pv_error *err)
{
    const struct view_report *r = s->report;
    struct label l = frames_label(s);
    int wide = FRAMES_WIDTH / s->columns, width, height, tall;
    enum pv_status st;

    report_cells(r, f, wide < MOST_FRAME_WIDTH ? wide : MOST_FRAME_WIDTH, &s->tile);
    width = label_width(&l) > LEAST_LABEL ? label_width(&l) : LEAST_LABEL;
    for (int i = 0; i < r->n_views; i++) {
        l = view_label(r, &r->views[i]);
        width = label_width(&l) > width ? label_width(&l) : width;
    }
    for (int i = 0; i < r->n_heats; i++) {
        l = heat_label(&r->heats[i]);
        width = label_width(&l) > width ? label_width(&l) : width;
    }
    s->label_width = width + 2 * MARGIN;
    s->top = MARGIN + 4 * LINE;
    tall = s->tile.rows * s->tile.cell_h;
    s->row_height = (tall > LABEL_LINES * LINE ? tall : LABEL_LINES * LINE) + 2 * GAP;
    width = s->label_width + s->columns * (s->tile.columns * s->tile.cell_w + GAP) + MARGIN - GAP;
    height = row_y(s, n_rows(r)) + (r->n_heats ? 3 : 2) * LINE + MARGIN - 4;
    st = canvas_open(&s->frame, s->tile.columns * s->tile.cell_w, tall, ground, err);
    if (!st)
        st = canvas_open(&s->page, width > LEAST_PAGE_WIDTH ? width : LEAST_PAGE_WIDTH, height,
                         ground, err);
    if (!st)
        draw_page(s);
    return st;
}

enum pv_status sheet_open(struct view_sheet *s, const struct view_report *r, struct pv_error *err)
{
    size_t size = (size_t)report_unit_tokens(r) * sizeof *s->heat;
    int most = r->columns ? r->columns : USUAL_COLUMNS;
    s->report = r;
    s->columns = most < r->units ? most : r->units;
    s->heat = mem_alloc(size);
    return s->heat ? PV_OK : fail_nomem(err, size);
}

/* The unit that column i shows: from the first to the last. */
static int unit_of(const struct view_sheet *s, int i)
{
    return s->columns > 1 ? (int)((int64_t)i * (s->report->units - 1) / (s->columns - 1)) : 0;
}

/* Which frame it is, and when it is shown. */
static void draw_caption(struct view_sheet *s, int x, const struct pv_frame *f)
{
    char index[24], time[32];
    int scale = SCALE, y = s->top - LINE;
    snprintf(index, sizeof index, "%lld", (long long)f->index);
    snprintf(time, sizeof time, "%.1fs", f->time);
    if (text_width(index, scale) + text_width(time, scale) > s->frame.width)
        scale = 1;
    y += scale < SCALE ? GLYPH_HEIGHT - 1 : 0; /* on the same line below */
    draw_text(&s->page, x, y, scale, bright, index);
    draw_text(&s->page, x + s->frame.width - text_width(time, scale), y, scale, dim, time);
}

static void draw_column(struct view_sheet *s, int column, int unit, const struct pv_frame *f)
{
    const struct view_report *r = s->report;
    int n = report_unit_tokens(r), x = s->label_width + column * (s->frame.width + GAP), row = 0;
    struct tile t = s->tile;

    draw_caption(s, x, f);
    draw_tile(&s->page, x, row_y(s, row++), &s->frame, &t);
    for (int k = 0; k < r->n_heats; k++) {
        const struct heat *h = &r->heats[k];
        for (int i = 0; i < n; i++)
            s->heat[i] = (float)report_heat(h, h->scores[unit * n + i]);
        t.heat = s->heat;
        draw_tile(&s->page, x, row_y(s, row++), &s->frame, &t);
        t.heat = NULL;
    }
    for (int i = 0; i < r->n_views; i++) {
        t.visible = r->views[i].visible + (size_t)unit * (size_t)n;
        draw_tile(&s->page, x, row_y(s, row++), &s->frame, &t);
    }
}

enum pv_status sheet_add(struct view_sheet *s, int unit, const struct pv_frame *f,
                         struct pv_error *err)
{
    enum pv_status st = s->page.rgb ? PV_OK : lay_out(s, f, err);
    if (st)
        return st;
    for (int i = 0; i < s->columns; i++) {
        if (unit_of(s, i) != unit)
            continue;
        draw_picture(&s->frame, f->width, f->height, f->rgb);
        draw_column(s, i, unit, f);
    }
    return PV_OK;
}

enum pv_status sheet_write(struct view_sheet *s, const char *path, struct pv_error *err)
{
    if (!s->page.rgb)
        return fail(err, PV_E_FORMAT, "%s: the video has no frames", s->report->video);
    return png_write(path, s->page.width, s->page.height, s->page.rgb, interrupted, err);
}

void sheet_close(struct view_sheet *s)
{
    mem_free(s->heat);
    canvas_close(&s->page);
    canvas_close(&s->frame);
    *s = (struct view_sheet){ 0 };
}
