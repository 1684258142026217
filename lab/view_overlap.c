/* The timeline as a picture. A span shorter than a pixel colours its part of it, so that a long
 * answer is a mixture of colours in the right shares; where spans are wide enough, their edges can
 * be seen, and their numbers of rows read. */
#include "view_overlap.h"

#include "base/png.h"
#include "bench_trace.h"
#include "command.h"
#include "progress.h"

#include "base/mem.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SCALE = 2, /* of letters */
    LINE = 10 * SCALE,
    MARGIN = 20,
    GAP = 16,
    LANE = 26,
    LANE_STEP = LANE + 3,
    LANES_WIDTH = 1360,
    TICK_APART = 110,   /* pixels, at least */
    EDGED = 4,          /* pixels from which a span has an edge */
    DETAIL_ROUNDS = 20, /* of the model's, about */
    MAX_PANELS = 2,
    TEXT_SIZE = 256
};

static const struct colour ground = { 22, 24, 29 }, bright = { 236, 238, 242 },
                           dim = { 158, 164, 174 }, idle = { 38, 41, 48 }, dark = { 16, 17, 20 };

const struct span_kind span_kinds[N_SPAN_KINDS] = {
    { "vision", { 240, 228, 66 } }, { "prefill", { 86, 180, 233 } }, { "verify", { 0, 158, 115 } },
    { "draft", { 230, 159, 0 } },   { "wait", { 98, 103, 114 } },    { "other", { 204, 121, 167 } },
};

int span_kind_of(const char *what)
{
    int k = 0;
    if (!strcmp(what,
                "decode")) /* a pass of the model with one row, as a verification of nothing */
        what = "verify";
    while (k < N_SPAN_KINDS - 1 && strcmp(span_kinds[k].name, what) != 0)
        k++;
    return k;
}

bool overlap_has(const struct overlap *o, int k, enum pv_side side)
{
    for (size_t i = 0; i < o->found->n_spans[k]; i++)
        if (o->found->span[k][i].side == side)
            return true;
    return false;
}

double overlap_seconds(const struct overlap *o, int k, enum pv_side side, int kind)
{
    double sum = 0;
    for (size_t i = 0; i < o->found->n_spans[k]; i++) {
        const struct trial_span *s = &o->found->span[k][i];
        sum += s->side == side && span_kind_of(s->what) == kind ? s->end - s->begin : 0;
    }
    return sum;
}

double overlap_end(const struct overlap *o, int k)
{
    double end = 0;
    for (size_t i = 0; i < o->found->n_spans[k]; i++)
        end = fmax(end, o->found->span[k][i].end);
    return end;
}

/* ---- panels: parts of the time ---- */

struct panel {
    double from, seconds;
    bool decoding; /* time counts from the end of each method's own prefills */
    int y;
};

struct sheet {
    const struct overlap *o;
    struct canvas page;
    struct panel panel[MAX_PANELS];
    int n_panels, label_width, lanes;
    double *part; /* [LANES_WIDTH, N_SPAN_KINDS]: of each pixel of a lane */
};

/* When both sides have read the prompt. */
static double prefill_end(const struct overlap *o, int k)
{
    double end = 0;
    for (size_t i = 0; i < o->found->n_spans[k]; i++) {
        const struct trial_span *s = &o->found->span[k][i];
        if (!strcmp(s->what, "prefill"))
            end = fmax(end, s->end);
    }
    return end;
}

/* So long that about DETAIL_ROUNDS verifications fit; 0: there are not so many. */
static double detail_seconds(const struct overlap *o)
{
    double sum = 0, most = 0, seconds;
    int n = 0;
    for (int k = 0; k < o->who->n; k++) {
        most = fmax(most, overlap_end(o, k) - prefill_end(o, k));
        for (size_t i = 0; i < o->found->n_spans[k]; i++) {
            const struct trial_span *s = &o->found->span[k][i];
            bool counts = s->side == PV_SIDE_MODEL && !strcmp(s->what, "verify") &&
                          overlap_has(o, k, PV_SIDE_DRAFTER);
            sum += counts ? s->end - s->begin : 0;
            n += counts;
        }
    }
    seconds = n ? DETAIL_ROUNDS * sum / n : 0;
    return seconds < most ? seconds : 0;
}

static void choose_panels(struct sheet *s)
{
    const struct overlap *o = s->o;
    double end = 0, detail = detail_seconds(o);
    for (int k = 0; k < o->who->n; k++)
        end = fmax(end, overlap_end(o, k));
    s->n_panels = 1;
    s->panel[0] = (struct panel){ .from = o->from, .seconds = fmax(end - o->from, 1e-6) };
    if (o->seconds > 0)
        s->panel[0].seconds = o->seconds;
    else if (!(o->from > 0) && detail > 0)
        s->panel[s->n_panels++] = (struct panel){ .seconds = detail, .decoding = true };
}

/* ---- one lane ---- */

static void draw_parts(struct sheet *s, int y)
{
    for (int x = 0; x < LANES_WIDTH; x++) {
        const double *part = s->part + (size_t)x * N_SPAN_KINDS;
        double sum = 0, rgb[3] = { 0 };
        for (int i = 0; i < N_SPAN_KINDS; i++) {
            sum += part[i];
            rgb[0] += part[i] * span_kinds[i].ink.r;
            rgb[1] += part[i] * span_kinds[i].ink.g;
            rgb[2] += part[i] * span_kinds[i].ink.b;
        }
        if (sum > 0)
            draw_rect(&s->page, (struct rect){ s->label_width + x, y, 1, LANE },
                      (struct colour){ (uint8_t)lround(rgb[0] / sum), (uint8_t)lround(rgb[1] / sum),
                                       (uint8_t)lround(rgb[2] / sum) },
                      fmin(sum, 1));
    }
}

/* Its edge, and how many rows it has. */
static void draw_span(struct sheet *s, double x0, double x1, int y, int rows)
{
    int left = (int)lround(fmax(x0, 0)), right = (int)lround(fmin(x1, LANES_WIDTH));
    char text[16];
    if (right - left < EDGED)
        return;
    if (x0 > 0)
        draw_rect(&s->page, (struct rect){ s->label_width + left, y, 1, LANE }, dark, 0.7);
    snprintf(text, sizeof text, "%d", rows);
    if (rows > 0 && text_width(text, SCALE) + 2 <= right - left)
        draw_text(&s->page,
                  s->label_width + (left + right + SCALE - text_width(text, SCALE)) / 2 + 1,
                  y + (LANE - GLYPH_HEIGHT * SCALE) / 2 + 1, SCALE, dark, text);
}

static void draw_lane(struct sheet *s, const struct panel *p, int k, enum pv_side side, int y)
{
    const struct trial_result *r = s->o->found;
    double from = p->decoding ? prefill_end(s->o, k) : p->from, scale = LANES_WIDTH / p->seconds;

    draw_rect(&s->page, (struct rect){ s->label_width, y, LANES_WIDTH, LANE }, idle, 1);
    memset(s->part, 0, sizeof *s->part * LANES_WIDTH * N_SPAN_KINDS);
    for (size_t i = 0; i < r->n_spans[k]; i++) {
        const struct trial_span *at = &r->span[k][i];
        double x0 = fmax((at->begin - from) * scale, 0);
        double x1 = fmin((at->end - from) * scale, LANES_WIDTH);
        int kind = span_kind_of(at->what);
        for (int x = (int)x0; at->side == side && x < x1; x++)
            s->part[x * N_SPAN_KINDS + kind] += fmin(x + 1, x1) - fmax(x, x0);
    }
    draw_parts(s, y);
    for (size_t i = 0; i < r->n_spans[k]; i++) {
        const struct trial_span *at = &r->span[k][i];
        if (at->side == side && at->end > from && strcmp(at->what, "wait") != 0)
            draw_span(s, (at->begin - from) * scale, (at->end - from) * scale, y, at->rows);
    }
}

/* ---- the page ---- */

/* 1, 2 or 5 of a power of ten. */
static double tick_step(double least)
{
    double power = pow(10, floor(log10(least)));
    double lead = least / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static void draw_axis(struct sheet *s, const struct panel *p, int y, int bottom)
{
    double step = tick_step(p->seconds * TICK_APART / LANES_WIDTH),
           scale = LANES_WIDTH / p->seconds;
    double first = ceil(p->from / step - 1e-9);
    bool fine = step < 0.1;
    for (int i = 0; i * step * scale < LANES_WIDTH + TICK_APART; i++) {
        double t = (first + i) * step;
        int x = s->label_width + (int)lround((t - p->from) * scale);
        char text[32];
        if (x > s->label_width + LANES_WIDTH)
            break;
        snprintf(text, sizeof text, fine ? "%.4g ms" : "%.4g s", fine ? t * 1e3 : t);
        draw_rect(&s->page, (struct rect){ x, y + LINE, 1, bottom - y - LINE }, dim, 0.25);
        if (x + text_width(text, SCALE) < s->page.width)
            draw_text(&s->page, x, y, SCALE, dim, text);
    }
}

static int lanes_of(const struct overlap *o, int k)
{
    return overlap_has(o, k, PV_SIDE_DRAFTER) ? 2 : 1;
}

static void method_label(const struct overlap *o, int k, char *name, char *time)
{
    contender_title(name, TEXT_SIZE, &o->who->items[k]);
    snprintf(time, TEXT_SIZE, "%.3f s", overlap_end(o, k));
}

static void draw_panel(struct sheet *s, const struct panel *p)
{
    const struct overlap *o = s->o;
    int y = p->y;

    draw_text(&s->page, MARGIN, y, SCALE, bright,
              p->decoding ? "the first rounds of drafting and verification, enlarged"
              : o->from > 0 || o->seconds > 0 ? "a part of the answer"
                                              : "the whole answer");
    y += LINE + GAP / 2;
    draw_axis(s, p, y, y + LINE + s->lanes * LANE_STEP + o->who->n * GAP);
    y += LINE + GAP;
    for (int k = 0; k < o->who->n; k++) {
        char name[TEXT_SIZE], time[TEXT_SIZE];
        method_label(o, k, name, time);
        draw_text(&s->page, MARGIN, y + 6, SCALE, bright, name);
        draw_text(&s->page, MARGIN, y + 6 + LINE, SCALE, dim, time);
        for (int side = 0; side < lanes_of(o, k); side++) {
            const char *whose = side_name((enum pv_side)side);
            draw_text(&s->page, s->label_width - GAP - text_width(whose, SCALE), y + 6, SCALE, dim,
                      whose);
            draw_lane(s, p, k, (enum pv_side)side, y);
            y += LANE_STEP;
        }
        y += GAP;
    }
}

static void draw_head(struct sheet *s)
{
    const struct overlap *o = s->o;
    int x = MARGIN, y = MARGIN + 2 * LINE + GAP / 2;
    char line[TEXT_SIZE];

    snprintf(line, sizeof line, "%.100s with %.100s: what model and drafter do when",
             path_name(o->clip), path_name(o->model));
    draw_fitted(&s->page, MARGIN, MARGIN, s->page.width - 2 * MARGIN, SCALE, bright, line);
    draw_fitted(&s->page, MARGIN, MARGIN + LINE, s->page.width - 2 * MARGIN, SCALE, dim,
                "a number is how many tokens a step runs or drafts; each method alone, from an "
                "empty cache; "
                "below its name: seconds to the last token");
    for (int i = 0; i < N_SPAN_KINDS; i++) {
        draw_rect(&s->page, (struct rect){ x, y, LINE - 4, LINE - 4 }, span_kinds[i].ink, 1);
        draw_text(&s->page, x + LINE + 2, y, SCALE, bright, span_kinds[i].name);
        x += LINE + 2 + text_width(span_kinds[i].name, SCALE) + 2 * MARGIN;
    }
}

static enum pv_status lay_out(struct sheet *s, struct pv_error *err)
{
    const struct overlap *o = s->o;
    int width = 0, top = MARGIN + 4 * LINE, tall;

    for (int k = 0; k < o->who->n; k++) {
        char name[TEXT_SIZE], time[TEXT_SIZE];
        method_label(o, k, name, time);
        width = text_width(name, SCALE) > width ? text_width(name, SCALE) : width;
        width = text_width(time, SCALE) > width ? text_width(time, SCALE) : width;
        s->lanes += lanes_of(o, k);
    }
    s->label_width = MARGIN + width + 2 * GAP + text_width("drafter", SCALE) + GAP;
    tall = 2 * LINE + 2 * GAP + s->lanes * LANE_STEP + o->who->n * GAP + LINE;
    for (int i = 0; i < s->n_panels; i++)
        s->panel[i].y = top + i * tall;
    return canvas_open(&s->page, s->label_width + LANES_WIDTH + 3 * MARGIN,
                       top + s->n_panels * tall, ground, err);
}

enum pv_status overlap_picture(const struct overlap *o, const char *path, struct pv_error *err)
{
    size_t size = sizeof(double) * LANES_WIDTH * N_SPAN_KINDS;
    struct sheet s = { .o = o, .part = mem_alloc(size) };
    enum pv_status st = s.part ? PV_OK : fail_nomem(err, size);

    choose_panels(&s);
    if (!st)
        st = lay_out(&s, err);
    if (!st) {
        draw_head(&s);
        for (int i = 0; i < s.n_panels; i++)
            draw_panel(&s, &s.panel[i]);
        st = png_write(path, s.page.width, s.page.height, s.page.rgb, interrupted, err);
    }
    canvas_close(&s.page);
    mem_free(s.part);
    return st;
}
