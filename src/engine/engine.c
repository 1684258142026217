/* Opening and closing of engines. The target's pages and scratch memory are allocated at the
 * beginning; what drafters need is opened by the first request that drafts. */
#include "engine/engine.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/sized.h"
#include "spec/grow.h"
#include "spec/tree.h"

static const uint64_t usual_vision_bytes = (uint64_t)1 << 30;
static const uint64_t usual_media_bytes = (uint64_t)256 << 20;
static const uint64_t most_state_bytes = (uint64_t)256 << 20;

enum {
    DEFAULT_REQUESTS = 16,
    MAX_REQUESTS = 64,
    MANY_LOGITS = 128, /* most rows of logits per step, over all requests */
    LANE_ROWS = 4096 /* most prompt rows per step in the lane: cancelling may have to wait for it */
};

void pv_engine_params_init(struct pv_engine_params *p, size_t size)
{
    static const struct pv_engine_params usual = { .max_context = 0 };
    sized_init(p, size, &usual, sizeof usual);
}

/* ---- sizes ---- */

int engine_rows(const struct pv_engine *e)
{
    int joint = e->max_requests > 1 ? max_int(TREE_MAX, e->max_requests) : 0;
    return max_int(e->chunk, e->speculates ? TREE_MAX : 1) + joint;
}

static int engine_logits(const struct pv_engine *e)
{
    if (!e->speculates)
        return e->max_requests;
    return e->max_requests > 1 ? MANY_LOGITS : TREE_MAX;
}

static int draft_rows(const struct pv_engine *e)
{
    int joint = e->max_requests > 1 ? TREE_MAX : 0;
    return max_int(e->chunk, TREE_MAX) + joint;
}

static int draft_logits(const struct pv_engine *e)
{
    return min_int(GROW_LEVEL * e->max_requests, max_int(GROW_LEVEL, MANY_LOGITS));
}

static int pages_of(int64_t tokens)
{
    return (int)((tokens + KV_CHUNK - 1) / KV_CHUNK);
}

/* Number of tokens whose keys and values fit into so many bytes, limited to the possible maximum.
 */
static int64_t tokens_of(const struct pv_engine *e, uint64_t bytes)
{
    uint64_t page = kvpool_cost(decoder_config(e->model->dec), e->kv, 1);
    uint64_t most = (uint64_t)CONFIG_MAX_CONTEXT * MAX_REQUESTS / KV_CHUNK;
    return (int64_t)(bytes / page < most ? bytes / page : most) * KV_CHUNK;
}

/* Size of a cache that is of use to several requests. */
static uint64_t cache_bytes(const struct pv_engine *e, int64_t asked, uint64_t usual)
{
    if (asked != 0)
        return asked > 0 ? (uint64_t)asked : 0;
    return e->max_requests > 1 ? usual : 0;
}

static enum pv_status choose_sizes(struct pv_engine *e, const struct pv_engine_params *p,
                                   int64_t *tokens, struct pv_error *err)
{
    const struct pv_model *m = e->model;
    int most = pv_model_max_context(m);
    e->context = p->max_context;
    if (e->context == 0)
        e->context = min_int(most, MODEL_DEFAULT_CONTEXT);
    most = min_int(m->limits.context_tokens, CONFIG_MAX_CONTEXT);
    if (e->context < 1 || e->context > most)
        return fail(err, PV_E_LIMIT, "a context of %d tokens was asked for, 1 to %d are possible",
                    e->context, most);
    e->chunk = p->chunk ? p->chunk : model_chunk(m);
    if (e->chunk < 1 || e->chunk > MODEL_MAX_CHUNK)
        return fail(err, PV_E_ARG, "steps of %d rows were asked for, 1 to %d are possible",
                    e->chunk, MODEL_MAX_CHUNK);
    e->chunk = min_int(e->chunk, e->context);
    e->max_requests = p->max_requests ? p->max_requests : DEFAULT_REQUESTS;
    if (e->max_requests < 1 || e->max_requests > MAX_REQUESTS)
        return fail(err, PV_E_ARG, "%d requests at a time were asked for, 1 to %d are possible",
                    e->max_requests, MAX_REQUESTS);
    e->vision_bytes = cache_bytes(e, p->vision_bytes, usual_vision_bytes);
    e->media_bytes = cache_bytes(e, p->media_bytes, usual_media_bytes);
    *tokens = p->kv_tokens ? p->kv_tokens : e->context;
    if (p->kv_bytes)
        *tokens = tokens_of(e, p->kv_bytes);
    if (*tokens < e->context || *tokens > (int64_t)CONFIG_MAX_CONTEXT * MAX_REQUESTS)
        return fail(err, PV_E_LIMIT,
                    "a KV cache of %lld tokens was asked for: it must hold at least one context of "
                    "%d",
                    (long long)*tokens, e->context);
    return PV_OK;
}

static enum pv_status check_memory(struct pv_engine *e, int64_t tokens, struct pv_error *err)
{
    const struct pv_model *m = e->model;
    uint64_t need = sizeof *e + kvpool_cost(decoder_config(m->dec), e->kv, pages_of(tokens)) +
                    decoder_state_size(m->dec, engine_rows(e), engine_logits(e), e->context, e->kv);
    if (need > m->limits.memory_bytes)
        return fail(err, PV_E_LIMIT,
                    "a context of %lld tokens needs %llu bytes of memory, the limit is %llu",
                    (long long)tokens, (unsigned long long)need,
                    (unsigned long long)m->limits.memory_bytes);
    atomic_store(&e->fixed_bytes, need);
    return PV_OK;
}

/* ---- opening ---- */

/* If prompt rows use other kernels than rows of answers (on a GPU), give them a state of their own
 * if there is memory for it: then both run at the same time. */
static enum pv_status open_lane(struct pv_engine *e, struct pv_error *err)
{
    const struct decoder *dec = e->model->dec;
    int rows = min_int(e->chunk, LANE_ROWS);
    size_t size = decoder_state_size(dec, rows, engine_logits(e), e->context, e->kv);
    struct pv_error none;
    if (e->max_requests == 1 || !decoder_ways_differ(dec) ||
        size > e->model->limits.memory_bytes - atomic_load(&e->fixed_bytes) ||
        decoder_state_open_priority(&e->lane_state, dec, rows, engine_logits(e), e->context, e->kv,
                                    WORK_BULKY, &none))
        return PV_OK;
    atomic_fetch_add(&e->fixed_bytes, size);
    return scheduler_add_lane(e->scheduler, e->lane_state, err);
}

/* States are of use only while the pool has the keys and values of their rows, so there is room for
 * as many rows as it has; within bounds, because they are kept to save time alone. */
static enum pv_status open_states(struct pv_engine *e, struct pv_error *err)
{
    const struct config *c = decoder_config(e->model->dec);
    uint64_t left = e->model->limits.memory_bytes - atomic_load(&e->fixed_bytes), size;
    if (!e->model->head || !e->speculates)
        return PV_OK;
    size = state_cache_size((int64_t)kvpool_pages(e->pool) * KV_CHUNK, c->hidden,
                            head_features_of(head_file_config(e->model->head_file), c->n_layers));
    size = size < most_state_bytes ? size : most_state_bytes;
    size = size < left / 4 ? size : left / 4;
    e->states = state_cache_open(size);
    if (!e->states)
        return fail_nomem(err, sizeof e->states);
    atomic_fetch_add(&e->fixed_bytes, (size_t)size);
    return PV_OK;
}

static enum pv_status open_parts(struct pv_engine *e, int64_t tokens,
                                 const struct pv_cache_params *cache, struct pv_error *err)
{
    struct pv_model *m = e->model;
    enum pv_status s =
        kvpool_open(&e->pool, m->dev, decoder_config(m->dec), e->kv, pages_of(tokens), err);
    if (!s)
        s = decoder_state_open(&e->state, m->dec, engine_rows(e), engine_logits(e), e->context,
                               e->kv, err);
    if (!s && m->vision)
        s = encoder_open(&e->encoder, m->vision, m->audio_encoder, err);
    if (!s && m->vision) {
        e->tower_rows =
            vision_cache_open((size_t)config_media_width(decoder_config(m->dec)), e->vision_bytes);
        s = e->tower_rows ? PV_OK : fail_nomem(err, sizeof e->tower_rows);
    }
    if (!s && m->vision && e->media_bytes > 0) {
        e->media = media_cache_open(e->media_bytes);
        s = e->media ? PV_OK : fail_nomem(err, sizeof e->media);
    }
    if (!s)
        s = open_states(e, err);
    if (!s)
        s = engine_disk_open(&e->disk, cache, m, e->kv, err);
    if (!s)
        s = scheduler_open(&e->scheduler, e->max_requests, err);
    if (!s)
        s = scheduler_add_batch(e->scheduler, &e->target, m->dec, e->state, e->pool, m->step_lock,
                                err);
    if (!s)
        s = open_lane(e, err);
    return s;
}

enum pv_status pv_engine_open(pv_engine **out, pv_model *model,
                              const struct pv_engine_params *params, struct pv_error *err)
{
    struct pv_engine_params own = pv_engine_defaults(), *p = &own;
    enum pv_status s = sized_read(p, sizeof *p, params, "an engine", err);
    enum dtype kv = model_kv_dtype(model, p->kv_type);
    struct pv_engine *e;
    int64_t tokens = 0;
    if (s)
        return s;
    if (decoder_draft_ids(model->dec))
        return fail(err, PV_E_ARG,
                    "%s scores only %d of its %d tokens: it can only be a draft model",
                    model_file_path(model->file), decoder_config(model->dec)->vocab,
                    pv_model_vocab_size(model));
    if ((unsigned)p->kv_type > PV_KV_FP8)
        return fail(err, PV_E_ARG, "unknown KV cache type %d", (int)p->kv_type);
    if (model->gpu >= 0 && kv != DTYPE_BF16 && kv != DTYPE_F8)
        return fail(err, PV_E_UNSUPPORTED,
                    "a KV cache of %s was asked for: on a GPU it is bf16 (or fp8, which is lossy)",
                    dtype_name(kv));
    e = mem_zalloc(sizeof *e);
    if (!e)
        return fail_nomem(err, sizeof *e);
    e->model = model;
    e->draft = p->draft;
    e->speculates = p->speculate || p->draft;
    e->kv = kv;
    atomic_init(&e->session_bytes, 0);
    atomic_init(&e->last_session, 0);
    atomic_init(&e->decoded, 0);
    atomic_init(&e->media_hits, 0);
    s = choose_sizes(e, p, &tokens, err);
    if (!s)
        s = check_memory(e, tokens, err);
    if (!s)
        s = open_parts(e, tokens, &p->cache, err);
    if (s) {
        pv_engine_close(&e);
        return s;
    }
    *out = e;
    return PV_OK;
}

void pv_engine_close(pv_engine **engine)
{
    struct pv_engine *e = *engine;
    if (!e)
        return;
    scheduler_close(&e->scheduler);
    for (int i = 0; i < DRAFTER_DECODERS; i++) {
        decoder_state_close(&e->drafts[i].state);
        kvpool_close(&e->drafts[i].pool);
    }
    encoder_close(&e->encoder);
    vision_cache_close(&e->tower_rows);
    media_cache_close(&e->media);
    state_cache_close(&e->states);
    decoder_state_close(&e->lane_state);
    engine_disk_close(&e->disk);
    decoder_state_close(&e->state);
    kvpool_close(&e->pool);
    mem_free(e);
    *engine = NULL;
}

/* ---- drafters ---- */

const struct decoder *engine_decoder(const struct pv_engine *e, enum drafter_decoder which)
{
    switch (which) {
    case DRAFTER_RUNS_DRAFT:
        return e->draft ? e->draft->dec : NULL;
    case DRAFTER_RUNS_TARGET:
        return e->model->dec;
    case DRAFTER_RUNS_HEAD:
        return e->model->head;
    case DRAFTER_RUNS_NOTHING:
    case DRAFTER_DECODERS:
        break;
    }
    return NULL;
}

size_t engine_drafts_size(const struct pv_engine *e, enum drafter_decoder which)
{
    const struct decoder *dec = engine_decoder(e, which);
    size_t size = 0;
    if (!dec || e->drafts[which].batch)
        return 0;
    if (which != DRAFTER_RUNS_TARGET)
        size = decoder_state_size(dec, draft_rows(e), draft_logits(e), e->context, e->kv);
    return size + kvpool_cost(decoder_config(dec), e->kv, kvpool_pages(e->pool));
}

enum pv_status engine_drafts(struct pv_engine *e, enum drafter_decoder which,
                             struct draft_engine **out, struct pv_error *err)
{
    struct draft_engine *d = &e->drafts[which];
    const struct decoder *dec = engine_decoder(e, which);
    pthread_mutex_t *lock = which == DRAFTER_RUNS_DRAFT ? e->draft->step_lock : e->model->step_lock;
    size_t size = engine_drafts_size(e, which);
    enum pv_status s = PV_OK;
    *out = d;
    if (d->batch)
        return PV_OK;
    s = kvpool_open(&d->pool, decoder_device(dec), decoder_config(dec), e->kv,
                    kvpool_pages(e->pool), err);
    if (!s && which != DRAFTER_RUNS_TARGET)
        s = decoder_state_open_priority(&d->state, dec, draft_rows(e), draft_logits(e), e->context,
                                        e->kv, WORK_URGENT, err);
    if (!s)
        s = scheduler_add_batch(e->scheduler, &d->batch, dec, d->state ? d->state : e->state,
                                d->pool, lock, err);
    if (s) {
        decoder_state_close(&d->state);
        kvpool_close(&d->pool);
        return s;
    }
    d->size = size;
    atomic_fetch_add(&e->fixed_bytes, size);
    return PV_OK;
}
