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

/* ---- opening ---- */

static enum pv_status choose_sizes(struct pv_session *s, const struct pv_session_params *p,
                                   int *context, struct pv_error *err)
{
    const struct pv_model *m = s->model;
    int most = pv_model_max_context(m);
    *context = p->max_context;
    if (*context == 0)
        *context = most < MODEL_DEFAULT_CONTEXT ? most : MODEL_DEFAULT_CONTEXT;
    most = m->limits.context_tokens < CONFIG_MAX_CONTEXT ? m->limits.context_tokens
                                                         : CONFIG_MAX_CONTEXT;
    if (*context < 1 || *context > most)
        return fail(err, PV_E_LIMIT, "a context of %d tokens was asked for, 1 to %d are possible",
                    *context, most);
    s->chunk = p->chunk ? p->chunk : model_chunk(s->model);
    if (s->chunk < 1 || s->chunk > MODEL_MAX_CHUNK)
        return fail(err, PV_E_ARG, "steps of %d rows were asked for, 1 to %d are possible",
                    s->chunk, MODEL_MAX_CHUNK);
    if (s->chunk > *context)
        s->chunk = *context;
    return PV_OK;
}

/* Rows of the largest step, and rows whose logits one step may want: a tree is verified at once. */
static int state_rows(const struct pv_session *s)
{
    return s->speculates && s->chunk < TREE_MAX ? TREE_MAX : s->chunk;
}

static int state_logits(const struct pv_session *s)
{
    return s->speculates ? TREE_MAX : 1;
}

static enum pv_status check_memory(struct pv_session *s, int context, enum dtype kv,
                                   struct pv_error *err)
{
    const struct pv_model *m = s->model;
    uint64_t need = kvcache_size(decoder_config(m->dec), kv, context) +
                    decoder_state_size(m->dec, state_rows(s), state_logits(s), context, kv);
    if (need > m->limits.memory_bytes)
        return fail(err, PV_E_LIMIT,
                    "a context of %d tokens needs %llu bytes of memory, the limit is %llu", context,
                    (unsigned long long)need, (unsigned long long)m->limits.memory_bytes);
    s->fixed_bytes = need;
    return PV_OK;
}

static enum pv_status open_parts(struct pv_session *s, int context, enum dtype kv,
                                 struct pv_error *err)
{
    struct pv_model *m = s->model;
    const struct config *c = decoder_config(m->dec);
    size_t n = (size_t)context, vocab = (size_t)c->vocab;
    size_t embeds = m->vision ? (size_t)s->chunk * (size_t)c->hidden : 0;
    void *rows = NULL;
    enum pv_status st = kvcache_open(&s->kv, m->dev, c, kv, context, err);
    if (!st)
        st =
            decoder_state_open(&s->state, m->dec, state_rows(s), state_logits(s), context, kv, err);
    if (!st)
        st = timeline_open(&s->line, context, err);
    if (!st && m->vision)
        st = encoder_open(&s->encoder, m->vision, err);
    if (!st && m->vision)
        st = device_alloc(m->dev, &rows, embeds * sizeof *s->embeds, err);
    s->embeds = rows;
    if (st)
        return st;
    s->kv_ids = mem_alloc(n * sizeof *s->kv_ids);
    s->decoded = mem_zalloc(n * sizeof *s->decoded);
    s->logits = mem_alloc(vocab * sizeof *s->logits);
    s->candidates = mem_alloc(vocab * sizeof *s->candidates);
    if (!s->kv_ids || !s->decoded || !s->logits || !s->candidates)
        return fail_nomem(err, n * sizeof *s->kv_ids + vocab * sizeof *s->candidates);
    return dialogue_open(&s->words, m, n, err);
}

enum pv_status pv_session_open(pv_session **out, pv_model *model, const struct pv_session_params *p,
                               struct pv_error *err)
{
    enum dtype kv = model_kv_dtype(model, p->kv_type);
    struct pv_session *s;
    enum pv_status st;
    int context;
    if ((unsigned)p->kv_type > PV_KV_F32)
        return fail(err, PV_E_ARG, "type %d is not one of a KV cache", (int)p->kv_type);
    if (model->gpu >= 0 && kv != DTYPE_BF16)
        return fail(err, PV_E_UNSUPPORTED, "a KV cache of %s was asked for: on a GPU it is bf16",
                    dtype_name(kv));
    s = mem_zalloc(sizeof *s);
    if (!s)
        return fail_nomem(err, sizeof *s);
    s->model = model;
    s->speculates = p->speculate || p->draft;
    st = choose_sizes(s, p, &context, err);
    if (!st)
        st = check_memory(s, context, kv, err);
    if (!st)
        st = open_parts(s, context, kv, err);
    if (!st && s->speculates)
        st = draft_side_open(&s->draft, s, p->draft, err);
    if (st) {
        pv_session_close(&s);
        return st;
    }
    *out = s;
    return PV_OK;
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
    encoder_close(&s->encoder);
    decoder_state_close(&s->state);
    kvcache_close(&s->kv);
    timeline_close(&s->line);
    mem_free(s->kv_ids);
    mem_free(s->decoded);
    if (s->embeds)
        s->model->dev->ops->free(s->model->dev, s->embeds);
    mem_free(s->logits);
    mem_free(s->candidates);
    mem_free(s->tree_logits);
    mem_free(s->draft_q);
    mem_free(s->verify_scratch);
    trace_close(&s->trace);
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

uint64_t session_bytes_left(const struct pv_session *s)
{
    uint64_t limit = s->model->limits.memory_bytes;
    uint64_t used = s->fixed_bytes + s->tower_bytes + s->drawing_bytes +
                    timeline_media_size(&s->line) + draft_side_size(&s->draft);
    for (int i = 0; i < s->n_pending; i++)
        used += seen_size(&s->pending[i]);
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
    timeline_forget(&s->line, s->kv_ids, s->kv.len);
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

enum pv_status pv_add_video(pv_session *s, const char *path, const struct pv_video_params *p,
                            struct pv_video_info *info, struct pv_error *err)
{
    struct seen_bounds bounds;
    struct pv_limits limits;
    struct pv_video_params params = with_limits(p, &limits);
    struct seen seen;
    double t0 = clock_now();
    enum pv_status st = begin_media(s, &params, &bounds, err);
    if (!st)
        st = seen_file(&seen, vision_config(s->model->vision), path, &params, &bounds, err);
    if (st)
        return st;
    seen.params.limits = NULL;
    if (info)
        *info = seen.info;
    end_media(s, &seen, clock_now() - t0);
    return PV_OK;
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
            st = session_tower(s, s->encoder, &s->tower_bytes, &s->pending[i].m, err);
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
