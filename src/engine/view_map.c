/* Finds which video tokens the drafter of a method would get, without answering, and which ones the
 * drafter of a finished answer got. */
#include "engine/view_map.h"

#include "engine/draft_read.h"
#include "engine/generate.h"
#include "engine/speculate.h"

#include "base/mem.h"
#include "spec/method_rules.h"
#include "spec/position_bias.h"

#include <string.h>

/* Count the kept tokens, and summarise their places. */
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
        if (out->visible[i])
            kept[out->kept++] = i;
    b = position_bias_of(kept, out->kept, out->frames, per, out->width);
    out->kept_rows = b.kept_rows;
    out->kept_frames = b.kept_frames;
    out->all_rows = b.all_rows;
    out->all_frames = b.all_frames;
    mem_free(kept);
    return PV_OK;
}

/* The span in which the first video begins; -1 if there is none. */
static int first_video(const struct timeline *t)
{
    for (int k = 0; k < t->n_spans; k++)
        if (t->media[t->span[k].item].m.video)
            return k;
    return -1;
}

static void set_shape(struct pv_view_map *out, const struct media *video)
{
    out->frames = video->n_units;
    out->width = video->line;
    out->height = video->unit_rows / out->width;
}

static enum pv_status choose_view(struct pv_session *s, const struct pv_method *m,
                                  struct pv_view_map *out, struct pv_error *err)
{
    struct pv_gen_params p = pv_gen_defaults();
    struct speculation sp;
    const struct timeline *t = &s->seq.line;
    int first = first_video(t);
    bool scored;
    enum pv_status st;
    p.method = m;
    if (first < 0)
        return fail(err, PV_E_ARG, "the prompt has no video");
    st = speculation_open(&sp, s, &p, err);
    if (!st && sp.phase == DRAFT_OFF)
        st = fail(err, PV_E_ARG, "method '%s' has no drafter that uses a view", m->name);
    if (!st)
        st = speculation_prefill(&sp, WANT_ARGMAX, err);
    if (!st)
        st = draft_see(&sp, err);
    if (st)
        return st;
    scored = view_signal_scores(&sp.signal);
    const struct media *video = &t->media[t->span[first].item].m;
    set_shape(out, video);
    for (int i = 0; i < video->n_units * video->unit_rows; i++) /* closes the gaps between runs */
        s->draft.visible[t->span[first].row0 + i] = s->draft.visible[timeline_row(t, first, i)];
    out->visible = s->draft.visible + t->span[first].row0;
    out->scores = scored ? s->draft.scores : NULL;
    return count_kept(out, err);
}

void view_copy_clear(struct view_copy *copy)
{
    mem_free(copy->visible);
    mem_free(copy->scores);
    *copy = (struct view_copy){ NULL, NULL };
}

enum pv_status view_of_answer(const struct pv_session *s, struct view_copy *copy,
                              struct pv_view_map *out, struct pv_error *err)
{
    const struct timeline *t = &s->seq.line;
    int first = first_video(t), n;
    struct pv_view_map map = { 0 };
    enum pv_status st;
    if (first < 0)
        return fail(err, PV_E_ARG, "the prompt has no video");
    if (s->draft.n_visible == 0)
        return fail(err, PV_E_ARG, "the answer had no drafter that uses a view");
    view_copy_clear(copy);
    set_shape(&map, &t->media[t->span[first].item].m);
    n = map.frames * map.height * map.width;
    copy->visible = mem_alloc((size_t)n * sizeof *copy->visible);
    copy->scores = mem_alloc((size_t)n * sizeof *copy->scores);
    if (!copy->visible || !copy->scores)
        return fail_nomem(err, (size_t)n * (sizeof *copy->visible + sizeof *copy->scores));
    for (int i = 0; i < n; i++)
        copy->visible[i] = s->draft.visible[timeline_row(t, first, i)];
    map.visible = copy->visible;
    if (s->draft.scored && n <= s->draft.n_rows) {
        memcpy(copy->scores, s->draft.scores, (size_t)n * sizeof *copy->scores);
        map.scores = copy->scores;
    }
    st = count_kept(&map, err);
    if (!st)
        *out = map;
    return st;
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
