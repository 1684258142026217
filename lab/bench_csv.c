/* The figures of a benchmark as rows of CSV. doc/bench.md explains the columns. */
#include "bench_csv.h"

#include <string.h>

void csv_header(struct buf *b)
{
    buf_puts(b, "machine,threads,commit,model,draft,clip,frames,method,ratio,tokens,passes,"
                "accepted_per_pass,tokens_per_pass,mean_run,acceptance,video_tokens,"
                "draft_video_tokens,prefill_s,view_s,draft_prefill_s,draft_s,verify_s,decode_s,"
                "total_s,identical,video_s,vision_s,draft_vision_s,schedule,window,draft_threads,"
                "startup_tokens,wasted,wait_s,draft_rows,draft_slots,rejections,peak_mib,"
                "accepted_by_round,lossy,agreement,video_kept\n");
}

/* A field and its comma; in quotes where it needs them. */
static void csv_text(struct buf *b, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        buf_puts(b, "\"");
    for (; *text; text++) {
        buf_add(b, text, 1);
        if (*text == '"')
            buf_add(b, text, 1);
    }
    buf_puts(b, quoted ? "\"," : ",");
}

static const char *draft_word(const struct csv_row *row, const struct pv_method *m)
{
    return pv_drafter_find(m->drafter)->needs_draft ? row->draft : drafter_name(m->drafter);
}

static void csv_figures(struct buf *b, const struct figures *f)
{
    buf_printf(b, "%.12g,%.12g,%.4f,%.4f,%.4f,%.4f,%.12g,%.12g,", f->v[FIG_TOKENS],
               f->v[FIG_PASSES], accepted_per_pass(f), tokens_per_pass(f), mean_run(f),
               acceptance(f), f->v[FIG_VIDEO_TOKENS], f->v[FIG_DRAFT_VIDEO_TOKENS]);
    buf_printf(b, "%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,", f->v[FIG_PREFILL_S], f->v[FIG_VIEW_S],
               f->v[FIG_DRAFT_PREFILL_S], f->v[FIG_DRAFT_S], f->v[FIG_VERIFY_S], f->v[FIG_DECODE_S],
               total_seconds(f));
}

static void csv_parallel(struct buf *b, const struct pv_method *m, const struct figures *f)
{
    const char *schedule = m->automatic                          ? "auto"
                           : m->schedule == PV_SCHEDULE_PARALLEL ? "parallel"
                                                                 : "serial";
    buf_puts(b, m->drafter == PV_DRAFT_NONE ? "" : schedule);
    if (f->v[FIG_PARALLEL_ROUNDS] > 0)
        buf_printf(b, ",%.6g,%.6g,%.12g,%.12g,%.6f", f->v[FIG_WINDOW], f->v[FIG_DRAFT_THREADS],
                   f->v[FIG_STARTUP_TOKENS], f->v[FIG_WASTED], f->v[FIG_WAIT_S]);
    else
        buf_puts(b, ",,,,,");
}

void csv_rows(struct buf *b, const struct csv_row *row, const struct contenders *who,
              const struct trial_result *r)
{
    for (int k = 0; k < who->n; k++) {
        const struct pv_method *m = &who->items[k].method;
        const struct figures *f = &r->cell[k];
        csv_text(b, row->machine);
        buf_printf(b, "%d,", row->threads);
        csv_text(b, row->commit);
        csv_text(b, row->model);
        csv_text(b, draft_word(row, m));
        csv_text(b, row->clip);
        buf_printf(b, "%d,", r->frames);
        csv_text(b, who->items[k].label);
        if (method_prunes(m))
            buf_printf(b, "%.6g", m->ratio);
        buf_puts(b, ",");
        csv_figures(b, f);
        buf_printf(b, "%s,%.6f,%.6f,%.6f,", identity_word(m, r->identity[k]), f->v[FIG_VIDEO_S],
                   f->v[FIG_VISION_S], f->v[FIG_DRAFT_VISION_S]);
        csv_parallel(b, m, f);
        buf_printf(b, ",%.12g,%.12g,%.12g,", f->v[FIG_DRAFT_ROWS], f->v[FIG_DRAFT_SLOTS],
                   f->v[FIG_REJECTIONS]);
        if (f->v[FIG_PEAK_BYTES] > 0)
            buf_printf(b, "%.1f", f->v[FIG_PEAK_BYTES] / (1 << 20));
        for (int i = 0; i < r->rounds[k].n; i++)
            buf_printf(b, "%c%d", i ? ' ' : ',', r->rounds[k].accepted[i]);
        buf_printf(b, "%s,%s,", r->rounds[k].n ? "" : ",", m->lossy ? m->lossy : "");
        if (method_prunes_model(m))
            buf_printf(b, "%.4f,%.4f\n", agreement(f), f->v[FIG_VIDEO_KEPT]);
        else
            buf_puts(b, ",\n");
    }
}
