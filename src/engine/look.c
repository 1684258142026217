/* What the drafter of a method would see, without answering: for pictures of it. */
#include "engine/generate.h"

#include <math.h>

/* Tokens along the sides of a unit. LLaVA pools to a square. */
static void grid_of(const struct media *m, int *height, int *width)
{
    int side = (int)lround(sqrt((double)m->unit_rows));
    *height = m->kind == VISION_LLAVA ? side : m->merged_h;
    *width = m->kind == VISION_LLAVA ? side : m->merged_w;
}

static enum pv_status look(struct pv_session *s, const struct pv_method *m, struct pv_view_map *out,
                           struct pv_error *err)
{
    struct pv_gen_params p = pv_gen_defaults();
    struct speculation sp;
    const struct media_span *span = NULL;
    enum pv_status st;
    p.method = m;
    for (int k = s->line.n_spans - 1; k >= 0; k--)
        if (s->line.media[s->line.span[k].medium].m.video)
            span = &s->line.span[k];
    if (!span)
        return fail(err, PV_E_ARG, "the prompt has no video");
    st = speculation_open(&sp, s, &p, err);
    if (!st && !sp.drafter)
        st = fail(err, PV_E_ARG, "method '%s' has no drafter that could see", m->name);
    if (!st)
        st = generate_prefill(s, &p, &sp, err);
    if (!st)
        st = speculation_see(&sp, s, err);
    if (st)
        return st;
    const struct media *video = &s->line.media[span->medium].m;
    out->frames = video->n_units;
    grid_of(video, &out->height, &out->width);
    out->kept = 0;
    for (int i = 0; i < video->n_units * video->unit_rows; i++)
        out->kept += s->draft.seen[span->row0 + i];
    out->seen = s->draft.seen + span->row0;
    out->scores = sp.guided && !sp.by_layer ? s->draft.scores : NULL;
    return PV_OK;
}

enum pv_status pv_session_view(pv_session *s, const struct pv_method *m, struct pv_view_map *out,
                               struct pv_error *err)
{
    struct pv_gen_params p = pv_gen_defaults();
    struct timeline_mark before = timeline_mark(&s->line);
    bool dialogue = s->messages;
    enum pv_status st = dialogue ? generate_ask(s, &p, err) : PV_OK;
    if (!st)
        st = look(s, m, out, err);
    timeline_return(&s->line, before);
    s->messages = dialogue;
    return st;
}
