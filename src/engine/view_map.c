/* What the drafter of a method would see, without answering: for pictures of it. */
#include "engine/draft_read.h"
#include "engine/generate.h"
#include "engine/speculate.h"

#include "base/mem.h"
#include "spec/method_rules.h"
#include "spec/position_bias.h"

/* Counts the tokens kept, and where they lie. */
static enum pv_status count_kept(struct pv_view_map *out, struct pv_error *err)
{
    int per = out->height * out->width, m = out->frames * per;
    size_t size = (size_t)(m > 0 ? m : 1) * sizeof(int);
    int *kept = mem_alloc(size);
    struct position_bias b;
    if (!kept)
        return fail_nomem(err, size);
    out->kept = 0;
    for (int i = 0; i < m; i++)
        if (out->seen[i])
            kept[out->kept++] = i;
    b = position_bias_of(kept, out->kept, out->frames, per, out->width);
    out->kept_rows = b.kept_rows;
    out->kept_frames = b.kept_frames;
    out->all_rows = b.all_rows;
    out->all_frames = b.all_frames;
    mem_free(kept);
    return PV_OK;
}

static enum pv_status choose_view(struct pv_session *s, const struct pv_method *m,
                                  struct pv_view_map *out, struct pv_error *err)
{
    struct pv_gen_params p = pv_gen_defaults();
    struct speculation sp;
    const struct timeline *t = &s->seq.line;
    int first = -1;
    bool scored;
    enum pv_status st;
    p.method = m;
    for (int k = t->n_spans - 1; k >= 0; k--)
        if (t->media[t->span[k].medium].m.video)
            first = k;
    if (first < 0)
        return fail(err, PV_E_ARG, "the prompt has no video");
    st = speculation_open(&sp, s, &p, err);
    if (!st && sp.phase == DRAFT_OFF)
        st = fail(err, PV_E_ARG, "method '%s' has no drafter that could see", m->name);
    if (!st)
        st = speculation_prefill(&sp, WANT_ARGMAX, err);
    if (!st)
        st = draft_see(&sp, err);
    if (st)
        return st;
    scored = sp.signal.kind == SIGNAL_ATTENTION || sp.signal.kind == SIGNAL_ALIGNMENT;
    const struct media *video = &t->media[t->span[first].medium].m;
    out->frames = video->n_units;
    out->width = video->line;
    out->height = video->unit_rows / out->width;
    for (int i = 0; i < video->n_units * video->unit_rows; i++) /* closes the gaps between runs */
        s->draft.seen[t->span[first].row0 + i] = s->draft.seen[timeline_row(t, first, i)];
    out->seen = s->draft.seen + t->span[first].row0;
    out->scores = scored ? s->draft.scores : NULL;
    return count_kept(out, err);
}

struct view_call {
    struct pv_session *s;
    const struct pv_method *m;
    struct pv_view_map *out;
};

static enum pv_status view_task(void *arg, struct pv_error *err)
{
    struct view_call *c = arg;
    return choose_view(c->s, c->m, c->out, err);
}

enum pv_status pv_session_view(pv_session *s, const struct pv_method *m, struct pv_view_map *out,
                               struct pv_error *err)
{
    struct pv_method own;
    struct view_call call = { s, &own, out };
    struct pv_gen_params p = pv_gen_defaults();
    struct timeline_mark before = timeline_mark(&s->seq.line);
    bool dialogue = s->messages;
    enum pv_status st = method_read(&own, m, err);
    if (st)
        return st;
    if (dialogue)
        st = generate_ask(s, &p, err);
    if (!st)
        st = session_run(s, view_task, &call, err);
    timeline_return(&s->seq.line, before);
    s->messages = dialogue;
    return st;
}
