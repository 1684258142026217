/* The public session handle: opening it, and adding to its timeline. generate.c makes the KV cache
 * agree with the timeline and appends the answer. */
#include "engine/session.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sized.h"
#include "engine/captions.h"
#include "engine/media_rows.h"
#include "format/family.h"

#include <string.h>

void pv_session_params_init(struct pv_session_params *p, size_t size)
{
    static const struct pv_session_params usual = { .kv_type = PV_KV_AUTO };
    sized_init(p, size, &usual, sizeof usual);
}

void pv_chat_options_init(struct pv_chat_options *p, size_t size)
{
    static const struct pv_chat_options usual = { .no_thinking = false };
    sized_init(p, size, &usual, sizeof usual);
}

/* ---- opening ---- */

static void give_way(void *user, uint64_t room)
{
    drafting_fit(&((struct pv_session *)user)->draft, room);
}

/* Bytes that count against the memory limit. */
static uint64_t count_bytes(void *user)
{
    const struct pv_session *s = user;
    uint64_t used = timeline_media_size(&s->seq.line) + drafting_size(&s->draft);
    for (int i = 0; i < s->n_pending; i++)
        used += loaded_media_size(&s->pending[i].media->l);
    return used;
}

static enum pv_status open_parts(struct pv_session *s, struct pv_error *err)
{
    struct pv_engine *e = s->engine;
    enum pv_status st =
        sequence_open(&s->seq, e->pool, e->context, decoder_ways_differ(s->model->dec), err);
    s->budget =
        (struct budget){ .engine = e, .held = count_bytes, .give_way = give_way, .user = s };
    if (!st)
        st = answer_open(&s->answer, pv_model_vocab_size(s->model), err);
    if (st)
        return st;
    task_stepper_init(&s->target, e->target);
    st = dialogue_open(&s->dialogue, s->model, (size_t)e->context, err);
    if (!st && e->speculates)
        st = drafting_open(&s->draft, e, &s->budget, err);
    return st;
}

enum pv_status pv_engine_session(pv_session **out, pv_engine *engine, struct pv_error *err)
{
    struct pv_session *s = mem_zalloc(sizeof *s);
    enum pv_status st;
    if (!s)
        return fail_nomem(err, sizeof *s);
    s->engine = engine;
    s->number = atomic_fetch_add(&engine->last_session, 1) + 1;
    s->model = engine->model;
    s->speculates = engine->speculates;
    st = open_parts(s, err);
    if (st) {
        pv_session_close(&s);
        return st;
    }
    *out = s;
    return PV_OK;
}

enum pv_status pv_session_open(pv_session **out, pv_model *model,
                               const struct pv_session_params *params, struct pv_error *err)
{
    struct pv_session_params own = pv_session_defaults(), *p = &own;
    struct pv_engine_params ep = pv_engine_defaults();
    struct pv_engine *e;
    enum pv_status s = sized_read(p, sizeof *p, params, "a session", err);
    if (s)
        return s;
    ep.max_context = p->max_context;
    ep.max_requests = 1;
    ep.chunk = p->chunk;
    ep.kv_type = p->kv_type;
    ep.draft = p->draft;
    ep.speculate = p->speculate;
    ep.cache = p->cache;
    s = pv_engine_open(&e, model, &ep, err);
    if (s)
        return s;
    s = pv_engine_session(out, e, err);
    if (s)
        pv_engine_close(&e);
    else
        (*out)->owns_engine = true;
    return s;
}

static void drop_pending(struct pv_session *s)
{
    for (int i = 0; i < s->n_pending; i++) {
        media_clear(&s->pending[i].m);
        shared_media_close(&s->pending[i].media);
    }
    s->n_pending = 0;
}

void pv_session_close(pv_session **session)
{
    struct pv_session *s = *session;
    if (!s)
        return;
    drop_pending(s);
    budget_close(&s->budget);
    drafting_close(&s->draft);
    dialogue_close(&s->dialogue);
    sequence_close(&s->seq);
    answer_close(&s->answer);
    if (s->owns_engine)
        pv_engine_close(&s->engine);
    mem_free(s);
    *session = NULL;
}

void pv_session_reset(pv_session *s)
{
    drop_pending(s);
    timeline_clear(&s->seq.line);
    s->seq.answer0 = 0;
    s->answer.n = 0;
    s->message0 = 0;
    s->messages = false;
}

/* ---- the timeline ---- */

enum pv_status pv_add_ids(pv_session *s, const int32_t *ids, size_t n, struct pv_error *err)
{
    int vocab = pv_model_vocab_size(s->model);
    enum pv_status st;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return fail(err, PV_E_ARG, "token id %d is not in the vocabulary of %d", (int)ids[i],
                        vocab);
    st = timeline_append(&s->seq.line, ids, n, err);
    if (!st)
        s->messages = false;
    return st;
}

enum pv_status pv_session_chat(pv_session *s, const struct pv_chat_options *o, struct pv_error *err)
{
    struct pv_chat_options own = pv_chat_defaults();
    enum pv_status st = sized_read(&own, sizeof own, o, "a chat", err);
    return st ? st : dialogue_set_options(s->dialogue, &own, err);
}

/* ---- media ---- */

static enum pv_status begin_media(struct pv_session *s, const struct pv_video_params *p,
                                  struct load_bounds *b, struct pv_error *err)
{
    const struct pv_model *m = s->model;
    int rows = s->seq.line.n;
    uint64_t left, own = p->limits ? p->limits->memory_bytes : UINT64_MAX;
    if (!m->vision)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s has no vision tower, so it cannot take videos or pictures",
                    model_file_path(m->file));
    if (s->n_pending == SESSION_MAX_PENDING)
        return fail(err, PV_E_LIMIT, "more than %d videos and pictures in one message",
                    SESSION_MAX_PENDING);
    for (int i = 0; i < s->n_pending; i++) {
        uint64_t held = loaded_media_size(&s->pending[i].media->l);
        rows += s->pending[i].media->l.m.n_rows;
        own -= held < own ? held : own; /* the caller's limit applies per message */
    }
    timeline_forget(&s->seq.line, s->seq.kv_ids, s->seq.n_kv_ids);
    left = budget_left(&s->budget);
    left = own < left ? own : left;
    *b = (struct load_bounds){ .limits = p->limits ? p->limits : &m->limits,
                               .max_rows =
                                   s->seq.line.context > rows ? s->seq.line.context - rows : 0,
                               .max_bytes = left,
                               .decode_bytes = left ? left : 1,
                               .threads = m->threads };
    return PV_OK;
}

/* Takes the reference. */
static void end_media(struct pv_session *s, struct pv_media *media, double seconds)
{
    s->pending[s->n_pending++] = (struct pending_media){ .media = media };
    drafting_fit(&s->draft, budget_left(&s->budget));
    s->frames += media->l.info.frames;
    s->lost_frames += media->l.info.lost;
    s->video_s += seconds;
}

/* Copy the parameters, and complete the caller's limits in *limits. */
static enum pv_status read_params(struct pv_video_params *own, struct pv_limits *limits,
                                  const struct pv_video_params *theirs, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    *own = pv_video_defaults();
    if (theirs)
        s = sized_read(own, sizeof *own, theirs, "a video", err);
    if (!s && own->limits) {
        *limits = model_fill_limits(*own->limits);
        own->limits = limits;
    }
    return s;
}

static enum pv_status add_video(pv_session *s, const struct video_source *from,
                                const struct pv_video_params *p, struct pv_video_info *info,
                                struct pv_error *err)
{
    struct load_bounds bounds;
    struct pv_limits limits;
    struct pv_video_params params;
    struct pv_media *media;
    double t0 = clock_now();
    enum pv_status st = read_params(&params, &limits, p, err);
    if (!st)
        st = begin_media(s, &params, &bounds, err);
    if (!st)
        st = media_open_file(&media, s->engine, from, &params, &bounds, err);
    if (st)
        return st;
    if (info)
        *info = media->l.info;
    end_media(s, media, clock_now() - t0);
    return PV_OK;
}

enum pv_status pv_add_video(pv_session *s, const char *path, const struct pv_video_params *p,
                            struct pv_video_info *info, struct pv_error *err)
{
    return add_video(s, &(struct video_source){ .path = path }, p, info, err);
}

enum pv_status pv_add_video_data(pv_session *s, const void *data, size_t size,
                                 const struct pv_video_params *p, struct pv_video_info *info,
                                 struct pv_error *err)
{
    return add_video(s, &(struct video_source){ .data = data, .size = size }, p, info, err);
}

enum pv_status pv_add_frames(pv_session *s, const struct pv_frame *frames, size_t n, double fps,
                             const struct pv_video_params *p, struct pv_error *err)
{
    struct load_bounds bounds;
    struct pv_limits limits;
    struct pv_video_params params;
    struct pv_media *media;
    double t0 = clock_now();
    enum pv_status st = read_params(&params, &limits, p, err);
    if (!st)
        st = begin_media(s, &params, &bounds, err);
    if (!st)
        st = media_open_frames(&media, s->engine, frames, n, fps, &params, &bounds, err);
    if (st)
        return st;
    end_media(s, media, clock_now() - t0);
    return PV_OK;
}

/* Give pending media their final form, and make room for them in the encoder. */
static enum pv_status finish_pending(struct pv_session *s, struct pv_error *err)
{
    const struct vision_config *c = vision_config(s->model->vision);
    int n_stills = 0;
    enum pv_status st = PV_OK;
    for (int i = 0; i < s->n_pending; i++)
        n_stills += !s->pending[i].media->l.m.video;
    for (int i = 0; i < s->n_pending && !st; i++) {
        media_clear(&s->pending[i].m); /* of a call that failed */
        st = media_load_finish(&s->pending[i].m, &s->pending[i].media->l, c, n_stills == 1, err);
        if (!st && media_is_loaded(&s->pending[i].m)) /* otherwise the tower may not be needed */
            st = session_reserve_tower(s, &s->pending[i].m, err);
    }
    return st;
}

static int count_stretches(const struct pv_session *s)
{
    int n = 0;
    for (int i = 0; i < s->n_pending; i++)
        n += media_stretches(&s->pending[i].m);
    return n;
}

/* Describe the pending media for their message. Their keys are those that timeline_adopt will give
 * them: the key of an equal media item, or the next free one. */
static enum pv_status describe_pending(const struct pv_session *s, struct chat_media *media,
                                       struct captions *captions, struct pv_error *err)
{
    const struct vision_config *c = vision_config(s->model->vision);
    int fresh = s->seq.line.last_key;
    enum pv_status st = PV_OK;
    for (int i = 0; i < s->n_pending && !st; i++) {
        const struct media *m = &s->pending[i].m;
        int key = timeline_key(&s->seq.line, m);
        for (int j = 0; j < i && !key; j++)
            key = media_equal(&s->pending[j].m, m) ? -media[j].row_id : 0;
        media[i] = (struct chat_media){ .video = m->video,
                                        .row_id = -(key ? key : ++fresh),
                                        .n_rows = m->n_rows,
                                        .run_rows = m->run_rows,
                                        .before = c->vision_start,
                                        .after = c->vision_end };
        st = captions_make(&captions[i], &s->pending[i].media->l, err);
        media[i].captions = captions[i].list;
        media[i].note = captions[i].note.len > 0  ? captions[i].note.data
                        : m->family->media->lined ? ""
                                                  : NULL;
    }
    return st;
}

enum pv_status pv_add_text(pv_session *s, const char *role, const char *utf8, struct pv_error *err)
{
    struct chat_media media[SESSION_MAX_PENDING];
    struct captions captions[SESSION_MAX_PENDING] = { 0 };
    struct id_span span = { 0 };
    enum pv_status st = PV_OK;
    if (s->n_pending > 0) {
        if (strcmp(role, "user") != 0)
            return fail(err, PV_E_ARG,
                        "videos and pictures go into a user message, not one of %.32s", role);
        st = finish_pending(s, err);
        if (!st)
            st = timeline_reserve(&s->seq.line, s->n_pending, count_stretches(s), err);
        if (!st)
            st = describe_pending(s, media, captions, err);
    }
    if (!st)
        st = dialogue_add(s->dialogue, s->seq.line.n == 0, role, media, s->n_pending, utf8, &span,
                          err);
    for (int i = 0; i < s->n_pending; i++)
        captions_clear(&captions[i]);
    if (!st)
        st = timeline_room(&s->seq.line, span.n, err);
    if (st)
        return st;
    for (int i = 0; i < s->n_pending; i++)
        timeline_adopt(&s->seq.line, &s->pending[i].m);
    st = timeline_append(&s->seq.line, span.ids, span.n, err);
    drop_pending(s);
    if (!st)
        s->messages = true;
    return st;
}
