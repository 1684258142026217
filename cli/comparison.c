/* The same figures as a table and as JSON. Ratios are computed from sums over clips, so long
 * answers have more weight than short ones; times of one clip are medians over its repeats. */
#include "comparison.h"

#include <stdio.h>
#include <string.h>

/* ---- sums ---- */

void tally_add(struct tally *t, const struct contenders *who, const struct trial_result *r)
{
    for (int k = 0; k < who->n; k++) {
        figures_add(&t->sum[k], &r->cell[k]);
        if (t->clips == 0 || t->identity[k] == SAME)
            t->identity[k] = r->identity[k];
    }
    t->clips++;
}

bool tally_differs(const struct tally *t, const struct contenders *who)
{
    bool differs = false;
    for (int k = 0; k < who->n; k++)
        differs = differs || t->identity[k] == DIFFERENT;
    return differs;
}

/* ---- the table ---- */

const char *identity_word(const struct pv_method *m, enum identity identity)
{
    if (method_simulates(m) > 0)
        return "SIMULATED";
    if (method_prunes_model(m))
        return "LOSSY";
    if (m->lossy) /* compared with plain decoding over the same cache */
        return identity == SAME ? "yes LOSSY" : identity == DIFFERENT ? "NO LOSSY" : "LOSSY";
    return identity == SAME ? "yes" : identity == DIFFERENT ? "NO" : "-";
}

static int label_width(const struct contenders *who)
{
    int width = (int)strlen("parallel");
    for (int k = 0; k < who->n; k++) {
        int n = (int)strlen(who->items[k].label);
        width = n > width ? n : width;
    }
    return width;
}

/* Columns behind the method's name, each with two lines of title. The table without the wide ones
 * has at most 100 characters a line. */
enum column {
    COL_RATIO,
    COL_IDENTICAL,
    COL_TOKENS,
    COL_PASSES,
    COL_ACCEPTED,
    COL_TOKENS_PER_PASS,
    COL_RUN,
    COL_ACCEPTANCE,
    COL_SEES,
    COL_DRAFT_S,
    COL_VERIFY_S,
    COL_DECODE_S,
    COL_TOTAL_S,
    COL_SPEED,
    COL_DECODE_UP,
    COL_TOTAL_UP,
    N_COLUMNS
};

static const struct {
    const char *first, *second;
    int width;
    bool wide; /* in the wide table only */
} columns[N_COLUMNS] = {
    [COL_RATIO] = { "", "ratio", 6, false },
    [COL_IDENTICAL] = { "", "identical", 9, false },
    [COL_TOKENS] = { "", "tokens", 7, true },
    [COL_PASSES] = { "", "passes", 7, true },
    [COL_ACCEPTED] = { "accepted", "/pass", 9, true },
    [COL_TOKENS_PER_PASS] = { "tokens", "/pass", 7, false },
    [COL_RUN] = { "mean", "run", 7, true },
    [COL_ACCEPTANCE] = { "accept-", "ance", 7, false },
    [COL_SEES] = { "draft", "sees", 6, false },
    [COL_DRAFT_S] = { "draft", "s", 8, true },
    [COL_VERIFY_S] = { "verify", "s", 8, true },
    [COL_DECODE_S] = { "decode", "s", 8, false },
    [COL_TOTAL_S] = { "total", "s", 8, false },
    [COL_SPEED] = { "tokens", "/s", 8, false },
    [COL_DECODE_UP] = { "decode", "speed-up", 8, false },
    [COL_TOTAL_UP] = { "total", "speed-up", 8, false },
};

enum { CELL_SIZE = 32 };

static void format_cell(char out[CELL_SIZE], enum column at, const struct tally *t,
                        const struct pv_method *m, int k)
{
    const struct figures *f = &t->sum[k];
    const struct {
        const char *format;
        double value;
    } cells[N_COLUMNS] = {
        [COL_RATIO] = { "%.4g", m->ratio },
        [COL_TOKENS] = { "%.8g", f->v[FIG_TOKENS] },
        [COL_PASSES] = { "%.8g", f->v[FIG_PASSES] },
        [COL_ACCEPTED] = { "%.2f", accepted_per_pass(f) },
        [COL_TOKENS_PER_PASS] = { "%.2f", tokens_per_pass(f) },
        [COL_RUN] = { "%.2f", mean_run(f) },
        [COL_ACCEPTANCE] = { "%.1f%%", 100 * acceptance(f) },
        [COL_SEES] = { "%.0f", f->v[FIG_DRAFT_VIDEO_TOKENS] / t->clips },
        [COL_DRAFT_S] = { "%.3f", f->v[FIG_DRAFT_S] },
        [COL_VERIFY_S] = { "%.3f", f->v[FIG_VERIFY_S] },
        [COL_DECODE_S] = { "%.3f", f->v[FIG_DECODE_S] },
        [COL_TOTAL_S] = { "%.3f", total_seconds(f) },
        [COL_SPEED] = { "%.1f", tokens_per_second(f) },
        [COL_DECODE_UP] = { "%.2fx", decode_speedup(f, &t->sum[0]) },
        [COL_TOTAL_UP] = { "%.2fx", total_speedup(f, &t->sum[0]) },
    };
    if (at == COL_IDENTICAL)
        snprintf(out, CELL_SIZE, "%s", identity_word(m, t->identity[k]));
    else if (at == COL_RATIO && !method_prunes(m))
        snprintf(out, CELL_SIZE, "-");
    else
        snprintf(out, CELL_SIZE, cells[at].format, cells[at].value);
}

static void table_row(struct buf *b, const struct tally *t, const struct contender *c, int k,
                      int width, bool wide)
{
    buf_printf(b, "%-*s", width, c->label);
    for (int i = 0; i < N_COLUMNS; i++) {
        char cell[CELL_SIZE];
        if (columns[i].wide && !wide)
            continue;
        format_cell(cell, (enum column)i, t, &c->method, k);
        buf_printf(b, " %*s", columns[i].width, cell);
    }
    buf_puts(b, "\n");
}

static void table_title(struct buf *b, const char *name, bool second, int width, bool wide)
{
    buf_printf(b, "%-*s", width, name);
    for (int i = 0; i < N_COLUMNS; i++)
        if (!columns[i].wide || wide)
            buf_printf(b, " %*s", columns[i].width, second ? columns[i].second : columns[i].first);
    buf_puts(b, "\n");
}

/* What only the parallel schedule has, of the methods that used it. */
static void parallel_table(struct buf *b, const struct tally *t, const struct contenders *who,
                           int width)
{
    bool any = false;
    for (int k = 0; k < who->n; k++) {
        const struct figures *f = &t->sum[k];
        double clips = t->clips;
        if (!(f->v[FIG_PARALLEL_ROUNDS] > 0))
            continue;
        if (!any)
            buf_printf(b, "\n%-*s %6s %7s %7s %8s %8s %8s %8s\n", width, "parallel", "rounds",
                       "window", "threads", "start-up", "wasted", "longest", "wait s");
        any = true;
        buf_printf(b, "%-*s %6.8g %7.1f %7.1f %8.8g %8.8g %8.8g %8.3f\n", width,
                   who->items[k].label, f->v[FIG_PARALLEL_ROUNDS], f->v[FIG_WINDOW] / clips,
                   f->v[FIG_DRAFT_THREADS] / clips, f->v[FIG_STARTUP_TOKENS], f->v[FIG_WASTED],
                   f->v[FIG_LONGEST_RUN], f->v[FIG_WAIT_S]);
    }
}

/* What a drafted token costs, of the methods whose drafters run rows of their own. */
static void drafting_table(struct buf *b, const struct tally *t, const struct contenders *who,
                           int width)
{
    bool any = false;
    for (int k = 0; k < who->n; k++) {
        const struct figures *f = &t->sum[k];
        if (!(f->v[FIG_DRAFT_ROWS] > 0))
            continue;
        if (!any)
            buf_printf(b, "\n%-*s %8s %8s %9s %9s %9s\n", width, "drafting", "tokens", "rows",
                       "slots/row", "ms/row", "ms/token");
        any = true;
        buf_printf(b, "%-*s %8.8g %8.8g %9.1f %9.4f %9.4f\n", width, who->items[k].label,
                   f->v[FIG_PROPOSED], f->v[FIG_DRAFT_ROWS],
                   f->v[FIG_DRAFT_SLOTS] / f->v[FIG_DRAFT_ROWS],
                   1e3 * f->v[FIG_DRAFT_S] / f->v[FIG_DRAFT_ROWS],
                   1e3 * quotient(f->v[FIG_DRAFT_S], f->v[FIG_PROPOSED]));
    }
}

/* How far lossy answers are those of plain decoding. */
static void lossy_table(struct buf *b, const struct tally *t, const struct contenders *who,
                        int width)
{
    bool any = false;
    for (int k = 0; k < who->n; k++) {
        const struct figures *f = &t->sum[k];
        if (!(f->v[FIG_LOSSY] > 0))
            continue;
        if (!any)
            buf_printf(b, "\n%-*s %9s %9s %9s %9s\n", width, "lossy", "agreement", "same text",
                       "KV kept", "prefill s");
        any = true;
        buf_printf(b, "%-*s %8.1f%% %8.1f%% %8.1f%% %9.3f\n", width, who->items[k].label,
                   100 * agreement(f), 100 * f->v[FIG_SAME_TEXT] / f->v[FIG_LOSSY],
                   100 * f->v[FIG_VIDEO_KEPT] / f->v[FIG_LOSSY], f->v[FIG_PREFILL_S]);
    }
}

void tally_table(struct buf *b, const struct tally *t, const struct contenders *who, bool wide)
{
    int width = label_width(who);
    table_title(b, "", false, width, wide);
    table_title(b, "method", true, width, wide);
    for (int k = 0; k < who->n; k++)
        table_row(b, t, &who->items[k], k, width, wide);
    drafting_table(b, t, who, width);
    parallel_table(b, t, who, width);
    lossy_table(b, t, who, width);
}

/* ---- JSON ---- */

static void add_seconds_json(struct buf *b, const struct figures *f)
{
    buf_printf(b,
               "\"seconds\":{\"video\":%.6f,\"vision\":%.6f,\"prefill\":%.6f,\"view\":%.6f,"
               "\"draft_vision\":%.6f,\"draft_prefill\":%.6f,\"draft\":%.6f,\"verify\":%.6f,"
               "\"decode\":%.6f,\"total\":%.6f}",
               f->v[FIG_VIDEO_S], f->v[FIG_VISION_S], f->v[FIG_PREFILL_S], f->v[FIG_VIEW_S],
               f->v[FIG_DRAFT_VISION_S], f->v[FIG_DRAFT_PREFILL_S], f->v[FIG_DRAFT_S],
               f->v[FIG_VERIFY_S], f->v[FIG_DECODE_S], total_seconds(f));
}

static void add_method_json(struct buf *b, const struct tally *t, const struct contender *c, int k)
{
    static const char *const words[] = { "true", "false", "null" }; /* of enum identity */
    const struct figures *f = &t->sum[k];

    method_json(b, &c->method, c->label);
    if (method_simulates(&c->method) > 0)
        buf_printf(b, ",\"simulated\":%.6g", method_simulates(&c->method));
    buf_printf(b,
               ",\"identical\":%s,\"tokens\":%.12g,\"passes\":%.12g,\"rounds\":%.12g,"
               "\"proposed\":%.12g,\"accepted\":%.12g,\"rejections\":%.12g,"
               "\"accepted_per_pass\":%.6g,\"tokens_per_pass\":%.6g,\"mean_run\":%.6g,"
               "\"acceptance\":%.6g,",
               words[t->identity[k]], f->v[FIG_TOKENS], f->v[FIG_PASSES], f->v[FIG_ROUNDS],
               f->v[FIG_PROPOSED], f->v[FIG_ACCEPTED], f->v[FIG_REJECTIONS], accepted_per_pass(f),
               tokens_per_pass(f), mean_run(f), acceptance(f));
    buf_printf(b, "\"prompt_tokens\":%.12g,\"video_tokens\":%.12g,\"draft_video_tokens\":%.12g,",
               f->v[FIG_PROMPT_TOKENS], f->v[FIG_VIDEO_TOKENS], f->v[FIG_DRAFT_VIDEO_TOKENS]);
    buf_printf(b, "\"draft_rows\":%.12g,\"draft_slots\":%.12g,", f->v[FIG_DRAFT_ROWS],
               f->v[FIG_DRAFT_SLOTS]);
    add_seconds_json(b, f);
    buf_printf(b,
               ",\"tokens_per_second\":%.6g,\"decode_speedup\":%.6g,"
               "\"total_speedup\":%.6g",
               tokens_per_second(f), decode_speedup(f, &t->sum[0]), total_speedup(f, &t->sum[0]));
    if (f->v[FIG_PARALLEL_ROUNDS] > 0) {
        buf_puts(b, ",");
        parallel_json(b, f, t->clips);
    }
    if (f->v[FIG_LOSSY] > 0)
        buf_printf(b, ",\"agreement\":%.6g,\"same_text\":%.6g,\"video_kept\":%.6g", agreement(f),
                   f->v[FIG_SAME_TEXT] / f->v[FIG_LOSSY], f->v[FIG_VIDEO_KEPT] / f->v[FIG_LOSSY]);
}

void tally_json(struct buf *b, const struct tally *t, const struct contenders *who)
{
    buf_puts(b, "\"methods\":[");
    for (int k = 0; k < who->n; k++) {
        buf_puts(b, k ? ",{" : "{");
        add_method_json(b, t, &who->items[k], k);
        buf_puts(b, "}");
    }
    buf_puts(b, "]");
}
