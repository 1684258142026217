/* Computes a window of rows of the prompt that the drafter sees, together. Their inputs are the
 * rows that the target's tower computed in this session (drafting_features), on the target's device
 * if both models share it; or else session_media_rows finds them. */
#include "engine/draft_adapt.h"

#include "base/mem.h"
#include "engine/media_rows.h"

#include <string.h>

/* Whether the target's rows are kept on the adaptor's device. */
static bool reads_there(const struct drafting *d)
{
    return d->model->dev == d->engine->model->dev;
}

static size_t target_width(const struct drafting *d)
{
    return (size_t)config_media_width(decoder_config(d->engine->model->dec));
}

static size_t draft_width(const struct drafting *d)
{
    return (size_t)config_media_width(decoder_config(d->model->dec));
}

enum pv_status draft_adapt_reserve(struct drafting *d, struct pv_error *err)
{
    struct adapted_rows *a = &d->adapted;
    const struct vision_adaptor *adaptor = d->model->adaptor;
    size_t rows = (size_t)vision_adaptor_rows(adaptor);
    size_t size = rows * ((draft_width(d) + target_width(d)) * sizeof(float) + sizeof *a->at +
                          sizeof *a->of_item);
    uint64_t need = vision_adaptor_state_size(adaptor) + size;
    enum pv_status s;
    if (a->state)
        return PV_OK;
    s = budget_claim(d->budget, need, "the draft model's vision adaptor", err);
    if (s)
        return s;
    a->rows = mem_alloc(rows * draft_width(d) * sizeof *a->rows);
    a->lent = mem_alloc(rows * target_width(d) * sizeof *a->lent);
    a->at = mem_alloc(rows * sizeof *a->at);
    a->of_item = mem_alloc(rows * sizeof *a->of_item);
    if (!a->rows || !a->lent || !a->at || !a->of_item)
        s = fail_nomem(err, size);
    if (!s)
        s = vision_adaptor_state_open(&a->state, adaptor, err);
    if (s)
        adapted_rows_close(a);
    else
        a->bytes = need;
    return s;
}

void draft_adapt_begin(struct drafting *d)
{
    d->adapted.n = 0;
}

/* Get rows of one media item, of_item [n], that were not kept: they are computed again, stretch by
 * stretch, and stored one after the other in `lent`. */
static enum pv_status lend_rows(struct pv_session *s, const struct media_item *m, int n,
                                struct pv_error *err)
{
    struct adapted_rows *a = &s->draft.adapted;
    size_t width = target_width(&s->draft);
    for (int i = 0; i < n;) {
        int some = 1;
        enum pv_status st;
        while (i + some < n && a->of_item[i + some] == a->of_item[i] + some)
            some++;
        st = session_media_rows(s, m, a->of_item[i], some, a->lent + (size_t)i * width, false, err);
        if (st)
            return st;
        i += some;
    }
    for (int i = 0; i < n; i++)
        a->of_item[i] = i;
    return PV_OK;
}

/* Compute the window's rows from `to` on, from rows of_item [n] of one media item. */
static enum pv_status adapt_item(struct pv_session *s, const struct media_item *m, int to, int n,
                                 struct pv_error *err)
{
    struct drafting *d = &s->draft;
    struct adapted_rows *a = &d->adapted;
    size_t width = target_width(d);
    bool locks = d->place != DRAFT_DIVIDED && d->model->gpu < 0; /* a GPU has streams instead */
    int lo = a->of_item[0], hi = lo;
    struct adaptor_job job = { .from_width = (int)width,
                               .from_device = d->model->gpu < 0 || reads_there(d),
                               .rows = a->of_item,
                               .n = n,
                               .out = a->rows + (size_t)to * draft_width(d),
                               .out_width = (int)draft_width(d) };
    enum pv_status st = PV_OK;
    for (int i = 1; i < n; i++) {
        lo = a->of_item[i] < lo ? a->of_item[i] : lo;
        hi = a->of_item[i] > hi ? a->of_item[i] : hi;
    }
    job.from = drafting_features(d, m, lo, hi - lo + 1, width, reads_there(d));
    if (job.from) {
        for (int i = 0; i < n; i++)
            a->of_item[i] -= lo;
    } else {
        st = lend_rows(s, m, n, err);
        job.from = a->lent;
        job.from_device = d->model->gpu < 0;
    }
    if (st)
        return st;
    if (locks)
        pthread_mutex_lock(d->model->step_lock);
    st = vision_adaptor_run(a->state, &job, err);
    if (locks)
        pthread_mutex_unlock(d->model->step_lock);
    return st;
}

/* Fill the window with the visible rows of media from row `from` of the prompt on, as many as fit.
 */
static enum pv_status fill_window(struct pv_session *s, int from, int end, struct pv_error *err)
{
    struct adapted_rows *a = &s->draft.adapted;
    const struct timeline *t = &s->seq.line;
    int most = vision_adaptor_rows(s->draft.model->adaptor), n = 0;
    enum pv_status st = PV_OK;
    a->n = 0;
    for (int i = from; i < end && n < most; i++)
        if (s->draft.visible[i] && t->ids[i] < 0)
            a->at[n++] = i;
    for (int k = 0; k < n && !st;) {
        int some = 0, row;
        const struct media_item *m = timeline_item(t, a->at[k], &row);
        while (k + some < n && t->ids[a->at[k + some]] == t->ids[a->at[k]]) {
            timeline_item(t, a->at[k + some], &row);
            a->of_item[some++] = row;
        }
        st = adapt_item(s, m, k, some, err);
        k += some;
    }
    a->n = st ? 0 : n;
    return st;
}

/* Index of row `row` of the prompt in the window; -1 if it is not there. */
static int find_row(const struct adapted_rows *a, int row)
{
    int lo = 0, hi = a->n;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (a->at[middle] < row)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < a->n && a->at[lo] == row ? lo : -1;
}

enum pv_status draft_adapt_rows(struct pv_session *s, int from, int n, int end, float *out,
                                struct pv_error *err)
{
    struct adapted_rows *a = &s->draft.adapted;
    size_t width = draft_width(&s->draft);
    for (int done = 0; done < n;) {
        int at = find_row(a, from + done), some = 0;
        if (at < 0) {
            enum pv_status st = fill_window(s, from + done, end, err);
            if (st)
                return st;
            at = 0;
        }
        while (done + some < n && at + some < a->n && a->at[at + some] == from + done + some)
            some++;
        memcpy(out + (size_t)done * width, a->rows + (size_t)at * width,
               (size_t)some * width * sizeof *out);
        done += some;
    }
    return PV_OK;
}
