/* The public session handle: opening, and what is added to its timeline. generate.c makes the KV
 * cache agree with the timeline and appends the answer. */
#include "engine/session.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

struct pv_session_params pv_session_defaults(void)
{
    return (struct pv_session_params){ .kv_type = PV_KV_AUTO };
}

struct pv_chat_options pv_chat_defaults(void)
{
    return (struct pv_chat_options){ .size = sizeof(struct pv_chat_options) };
}

/* ---- opening ---- */

static enum pv_status open_parts(struct pv_session *s, struct pv_error *err)
{
    struct pv_engine *e = s->engine;
    const struct config *c = decoder_config(s->model->dec);
    size_t n = (size_t)e->context, vocab = (size_t)c->vocab;
    enum pv_status st = kvcache_attach(&s->kv, e->pool, e->context, err);
    if (!st)
        st = timeline_open(&s->line, e->context, err);
    if (st)
        return st;
    task_stepper_init(&s->target, e->target);
    s->digest = mem_alloc(n * sizeof *s->digest);
    s->kv_ids = mem_alloc(n * sizeof *s->kv_ids);
    s->logits = mem_alloc(vocab * sizeof *s->logits);
    s->candidates = mem_alloc(vocab * sizeof *s->candidates);
    if (!s->digest || !s->kv_ids || !s->logits || !s->candidates)
        return fail_nomem(err, n * sizeof *s->digest + vocab * sizeof *s->candidates);
    st = dialogue_open(&s->words, s->model, n, err);
    if (!st && e->speculates)
        st = draft_side_open(&s->draft, s, e->draft, err);
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

enum pv_status pv_session_open(pv_session **out, pv_model *model, const struct pv_session_params *p,
                               struct pv_error *err)
{
    struct pv_engine_params ep = pv_engine_defaults();
    struct pv_engine *e;
    enum pv_status st;
    ep.max_context = p->max_context;
    ep.max_requests = 1;
    ep.chunk = p->chunk;
    ep.kv_type = p->kv_type;
    ep.draft = p->draft;
    ep.speculate = p->speculate;
    st = pv_engine_open(&e, model, &ep, err);
    if (st)
        return st;
    st = pv_engine_session(out, e, err);
    if (st)
        pv_engine_close(&e);
    else
        (*out)->owns_engine = true;
    return st;
}

static void drop_pending(struct pv_session *s)
{
    for (int i = 0; i < s->n_pending; i++)
        seen_clear(&s->pending[i]);
    s->n_pending = 0;
}

void pv_session_close(pv_session **session)
{
    struct pv_session *s = *session;
    if (!s)
        return;
    drop_pending(s);
    draft_side_close(&s->draft);
    dialogue_close(&s->words);
    kvcache_close(&s->kv);
    timeline_close(&s->line);
    atomic_fetch_sub(&s->engine->session_bytes, s->counted_bytes);
    mem_free(s->digest);
    mem_free(s->kv_ids);
    mem_free(s->logits);
    mem_free(s->candidates);
    mem_free(s->tree_logits);
    mem_free(s->draft_q);
    mem_free(s->verify_scratch);
    trace_close(&s->trace);
    if (s->owns_engine)
        pv_engine_close(&s->engine);
    mem_free(s);
    *session = NULL;
}

void pv_session_reset(pv_session *s)
{
    drop_pending(s);
    timeline_clear(&s->line);
    s->answer0 = 0;
    s->n_answer = 0;
    s->message0 = 0;
    s->messages = false;
}

/* ---- memory ---- */

/* Its own memory, told to the engine. */
static void count_bytes(struct pv_session *s)
{
    uint64_t used = s->drawing_bytes + timeline_media_size(&s->line) + draft_side_size(&s->draft);
    for (int i = 0; i < s->n_pending; i++)
        used += seen_size(&s->pending[i]);
    atomic_fetch_add(&s->engine->session_bytes, used - s->counted_bytes);
    s->counted_bytes = used;
}

uint64_t session_bytes_left(struct pv_session *s)
{
    struct pv_engine *e = s->engine;
    uint64_t limit = s->model->limits.memory_bytes, used;
    count_bytes(s);
    used = atomic_load(&e->fixed_bytes) + atomic_load(&e->tower_bytes) +
           atomic_load(&e->session_bytes);
    return used < limit ? limit - used : 0;
}

enum pv_status session_claim(struct pv_session *s, uint64_t need, const char *what,
                             struct pv_error *err)
{
    uint64_t left = session_bytes_left(s);
    if (need > left)
        return fail(err, PV_E_LIMIT,
                    "%s needs %llu bytes of memory, %llu of the limit of %llu are left", what,
                    (unsigned long long)need, (unsigned long long)left,
                    (unsigned long long)s->model->limits.memory_bytes);
    draft_side_fit(&s->draft, left - need);
    return PV_OK;
}

enum pv_status session_tower(struct pv_session *s, struct encoder *e, size_t *held,
                             const struct media *m, struct pv_error *err)
{
    size_t size = encoder_size(e, m);
    char what[96];
    enum pv_status st;
    snprintf(what, sizeof what, "a vision tower for pictures of %d x %d pixels", m->width,
             m->height);
    st = session_claim(s, size > *held ? size - *held : 0, what, err);
    if (!st)
        st = encoder_reserve(e, m, err);
    if (!st)
        *held = size;
    return st;
}

enum pv_status session_reserve_tower(struct pv_session *s, const struct media *m,
                                     struct pv_error *err)
{
    size_t held;
    enum pv_status st;
    pthread_mutex_lock(s->model->step_lock); /* a request may be using it */
    held = atomic_load(&s->engine->tower_bytes);
    st = session_tower(s, s->engine->encoder, &held, m, err);
    atomic_store(&s->engine->tower_bytes, held);
    pthread_mutex_unlock(s->model->step_lock);
    return st;
}

enum pv_status session_media_rows(struct pv_session *s, const struct medium *m, int row, int n,
                                  float *out, bool there, struct pv_error *err)
{
    struct encoder *e = s->engine->encoder;
    uint64_t key = session_medium(s, m);
    enum pv_status st;
    pthread_mutex_lock(s->model->step_lock);
    st = there ? encoder_rows_there(e, &m->m, key, row, n, out, err)
               : encoder_rows(e, &m->m, key, row, n, out, err);
    s->tower_s += encoder_take_seconds(e);
    pthread_mutex_unlock(s->model->step_lock);
    return st;
}

uint64_t session_medium(const struct pv_session *s, const struct medium *m)
{
    return s->number << 32 | (uint32_t)m->key;
}

double session_take_tower(struct pv_session *s)
{
    double seconds;
    pthread_mutex_lock(s->model->step_lock);
    seconds = s->tower_s;
    s->tower_s = 0;
    pthread_mutex_unlock(s->model->step_lock);
    return seconds;
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
    st = timeline_append(&s->line, ids, n, err);
    if (!st)
        s->messages = false;
    return st;
}

enum pv_status pv_session_chat(pv_session *s, const struct pv_chat_options *o, struct pv_error *err)
{
    if (o->size != sizeof *o)
        return fail(err, PV_E_ARG, "chat options of %zu bytes, expected %zu", o->size, sizeof *o);
    return dialogue_set_options(s->words, o, err);
}

/* ---- media ---- */

static enum pv_status begin_media(struct pv_session *s, const struct pv_video_params *p,
                                  struct seen_bounds *b, struct pv_error *err)
{
    const struct pv_model *m = s->model;
    int rows = s->line.n;
    if (!m->vision)
        return fail(err, PV_E_UNSUPPORTED, "%s has no vision tower: it cannot see",
                    model_file_path(m->file));
    if (s->n_pending == SESSION_MAX_PENDING)
        return fail(err, PV_E_LIMIT, "more than %d videos and pictures in one message",
                    SESSION_MAX_PENDING);
    for (int i = 0; i < s->n_pending; i++)
        rows += s->pending[i].m.n_rows;
    timeline_forget(&s->line, s->kv_ids, s->n_kv_ids);
    *b = (struct seen_bounds){ .limits = p->limits ? p->limits : &m->limits,
                               .max_rows = s->line.context > rows ? s->line.context - rows : 0,
                               .max_bytes = session_bytes_left(s),
                               .threads = m->threads };
    return PV_OK;
}

static void end_media(struct pv_session *s, const struct seen *seen, double seconds)
{
    s->pending[s->n_pending++] = *seen;
    draft_side_fit(&s->draft, session_bytes_left(s));
    s->frames += seen->info.frames;
    s->lost_frames += seen->info.lost;
    s->video_s += seconds;
}

/* The parameters with the caller's limits complete, kept in *limits. */
static struct pv_video_params with_limits(const struct pv_video_params *p, struct pv_limits *limits)
{
    struct pv_video_params r = *p;
    if (p->limits) {
        *limits = model_fill_limits(*p->limits);
        r.limits = limits;
    }
    return r;
}

static enum pv_status add_video(pv_session *s, const struct video_source *from,
                                const struct pv_video_params *p, struct pv_video_info *info,
                                struct pv_error *err)
{
    struct seen_bounds bounds;
    struct pv_limits limits;
    struct pv_video_params params = with_limits(p, &limits);
    struct seen seen;
    double t0 = clock_now();
    enum pv_status st = begin_media(s, &params, &bounds, err);
    if (!st)
        st = seen_file(&seen, vision_config(s->model->vision), from, &params, &bounds, err);
    if (st)
        return st;
    seen.params.limits = NULL;
    if (info)
        *info = seen.info;
    end_media(s, &seen, clock_now() - t0);
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
    struct seen_bounds bounds;
    struct pv_limits limits;
    struct pv_video_params params = with_limits(p, &limits);
    struct seen seen;
    double t0 = clock_now();
    enum pv_status st = begin_media(s, &params, &bounds, err);
    if (!st)
        st = seen_frames(&seen, vision_config(s->model->vision), frames, n, fps, &params, &bounds,
                         err);
    if (st)
        return st;
    seen.params.limits = NULL;
    end_media(s, &seen, clock_now() - t0);
    return PV_OK;
}

/* Pending media get their final form and room in the encoder. */
static enum pv_status finish_pending(struct pv_session *s, struct pv_error *err)
{
    const struct vision_config *c = vision_config(s->model->vision);
    int n_stills = 0;
    enum pv_status st = PV_OK;
    for (int i = 0; i < s->n_pending; i++)
        n_stills += !s->pending[i].m.video;
    for (int i = 0; i < s->n_pending && !st; i++) {
        st = seen_finish(&s->pending[i], c, n_stills == 1, err);
        if (!st)
            st = session_reserve_tower(s, &s->pending[i].m, err);
    }
    return st;
}

/* How the pending media stand in their message. Their keys are those that timeline_adopt is going
 * to give: of an equal medium, or the next free one. */
static void describe_pending(const struct pv_session *s, struct chat_media *media)
{
    const struct vision_config *c = vision_config(s->model->vision);
    bool marks = c->kind == VISION_QWEN2_5;
    int fresh = s->line.last_key;
    for (int i = 0; i < s->n_pending; i++) {
        const struct media *m = &s->pending[i].m;
        int key = timeline_key(&s->line, m);
        for (int j = 0; j < i && !key; j++)
            key = media_equal(&s->pending[j].m, m) ? -media[j].row_id : 0;
        media[i] = (struct chat_media){ .video = m->video,
                                        .row_id = -(key ? key : ++fresh),
                                        .n_rows = m->n_rows,
                                        .before = marks ? c->vision_start : -1,
                                        .after = marks ? c->vision_end : -1 };
    }
}

enum pv_status pv_add_text(pv_session *s, const char *role, const char *utf8, struct pv_error *err)
{
    struct chat_media media[SESSION_MAX_PENDING];
    struct id_span span = { 0 };
    enum pv_status st = PV_OK;
    if (s->n_pending > 0) {
        if (strcmp(role, "user") != 0)
            return fail(err, PV_E_ARG,
                        "videos and pictures go into a user message, not one of %.32s", role);
        st = finish_pending(s, err);
        if (!st)
            st = timeline_reserve(&s->line, s->n_pending, err);
        if (!st)
            describe_pending(s, media);
    }
    if (!st)
        st = dialogue_add(s->words, s->line.n == 0, role, media, s->n_pending, utf8, &span, err);
    if (!st)
        st = timeline_room(&s->line, span.n, err);
    if (st)
        return st;
    for (int i = 0; i < s->n_pending; i++)
        timeline_adopt(&s->line, &s->pending[i].m);
    st = timeline_append(&s->line, span.ids, span.n, err);
    drop_pending(s);
    if (!st)
        s->messages = true;
    return st;
}
