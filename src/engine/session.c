/* The public session handle: one timeline of token ids, and a KV cache that holds the keys and
 * values of some prefix of it. Generation first makes the cache agree with the timeline (reusing
 * the longest common prefix), then appends tokens one step at a time. */
#include "base/mem.h"
#include "engine/dialogue.h"
#include "lm/sampling.h"

#include <string.h>
#include <time.h>

struct pv_session {
    struct pv_model *model;
    struct kvcache kv;
    struct decoder_state *state;
    struct dialogue *words; /* NULL: no tokenizer */
    int context, chunk;
    int32_t *ids; /* [context]: the timeline */
    int n_ids;
    int32_t *kv_ids;   /* [context]: what slots 0 .. kv.len - 1 hold */
    int32_t (*pos)[3]; /* [chunk] */
    int answer0, n_answer;
    bool messages; /* the last thing added was a message: the template asks for an answer */
    float *logits; /* [vocab] of the last row, when tokens are drawn, */
    int32_t top;   /* or its largest, when they are not */
    struct candidate *candidates; /* [vocab] */
    struct pv_stats stats;
};

struct pv_session_params pv_session_defaults(void)
{
    return (struct pv_session_params){ .kv_type = PV_KV_AUTO };
}

struct pv_gen_params pv_gen_defaults(void)
{
    return (struct pv_gen_params){ .max_new_tokens = 256, .top_p = 1 };
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening ---- */

static enum pv_status choose_sizes(struct pv_session *s, const struct pv_session_params *p,
                                   struct pv_error *err)
{
    const struct pv_model *m = s->model;
    int most = pv_model_max_context(m);
    s->context = p->max_context;
    if (s->context == 0)
        s->context = most < MODEL_DEFAULT_CONTEXT ? most : MODEL_DEFAULT_CONTEXT;
    if (s->context < 1 || s->context > m->limits.context_tokens)
        return fail(err, PV_E_LIMIT, "a context of %d tokens was asked for, 1 to %d are possible",
                    s->context, m->limits.context_tokens);
    s->chunk = p->chunk ? p->chunk : MODEL_DEFAULT_CHUNK;
    if (s->chunk < 1 || s->chunk > MODEL_MAX_CHUNK)
        return fail(err, PV_E_ARG, "steps of %d rows were asked for, 1 to %d are possible",
                    s->chunk, MODEL_MAX_CHUNK);
    if (s->chunk > s->context)
        s->chunk = s->context;
    return PV_OK;
}

static enum pv_status check_memory(const struct pv_session *s, enum dtype kv, struct pv_error *err)
{
    const struct pv_model *m = s->model;
    uint64_t need = kvcache_size(decoder_config(m->dec), kv, s->context) +
                    decoder_state_size(m->dec, s->chunk, 1, s->context, kv);
    if (need > m->limits.memory_bytes)
        return fail(
            err, PV_E_LIMIT, "a context of %d tokens needs %llu bytes of memory, the limit is %llu",
            s->context, (unsigned long long)need, (unsigned long long)m->limits.memory_bytes);
    return PV_OK;
}

static enum pv_status open_parts(struct pv_session *s, enum dtype kv, struct pv_error *err)
{
    struct pv_model *m = s->model;
    size_t n = (size_t)s->context, vocab = (size_t)pv_model_vocab_size(m);
    enum pv_status st = kvcache_open(&s->kv, m->dev, decoder_config(m->dec), kv, s->context, err);
    if (st)
        return st;
    st = decoder_state_open(&s->state, m->dec, s->chunk, 1, s->context, kv, err);
    if (st)
        return st;
    s->ids = mem_alloc(n * sizeof *s->ids);
    s->kv_ids = mem_alloc(n * sizeof *s->kv_ids);
    s->pos = mem_alloc((size_t)s->chunk * sizeof *s->pos);
    s->logits = mem_alloc(vocab * sizeof *s->logits);
    s->candidates = mem_alloc(vocab * sizeof *s->candidates);
    if (!s->ids || !s->kv_ids || !s->pos || !s->logits || !s->candidates)
        return fail_nomem(err, 2 * n * sizeof *s->ids + vocab * sizeof *s->candidates);
    return dialogue_open(&s->words, m, n, err);
}

enum pv_status pv_session_open(pv_session **out, pv_model *model, const struct pv_session_params *p,
                               struct pv_error *err)
{
    enum dtype kv = model_kv_dtype(model, p->kv_type);
    struct pv_session *s;
    enum pv_status st;
    if ((unsigned)p->kv_type > PV_KV_F32)
        return fail(err, PV_E_ARG, "type %d is not one of a KV cache", (int)p->kv_type);
    s = mem_zalloc(sizeof *s);
    if (!s)
        return fail_nomem(err, sizeof *s);
    s->model = model;
    st = choose_sizes(s, p, err);
    if (!st)
        st = check_memory(s, kv, err);
    if (!st)
        st = open_parts(s, kv, err);
    if (st) {
        pv_session_close(&s);
        return st;
    }
    *out = s;
    return PV_OK;
}

void pv_session_close(pv_session **session)
{
    struct pv_session *s = *session;
    if (!s)
        return;
    dialogue_close(&s->words);
    decoder_state_close(&s->state);
    kvcache_close(&s->kv);
    mem_free(s->ids);
    mem_free(s->kv_ids);
    mem_free(s->pos);
    mem_free(s->logits);
    mem_free(s->candidates);
    mem_free(s);
    *session = NULL;
}

void pv_session_reset(pv_session *s)
{
    s->n_ids = 0;
    s->answer0 = 0;
    s->n_answer = 0;
    s->messages = false;
}

/* ---- the timeline ---- */

enum pv_status pv_add_ids(pv_session *s, const int32_t *ids, size_t n, struct pv_error *err)
{
    int vocab = pv_model_vocab_size(s->model);
    if (n > (size_t)(s->context - s->n_ids))
        return fail(err, PV_E_LIMIT, "%zu tokens after %d do not fit a context of %d tokens", n,
                    s->n_ids, s->context);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return fail(err, PV_E_ARG, "token id %d is not in the vocabulary of %d", (int)ids[i],
                        vocab);
    if (n)
        memcpy(s->ids + s->n_ids, ids, n * sizeof *ids);
    s->n_ids += (int)n;
    s->messages = false;
    return PV_OK;
}

enum pv_status pv_add_text(pv_session *s, const char *role, const char *utf8, struct pv_error *err)
{
    struct id_span span = { 0 };
    enum pv_status st = dialogue_add(s->words, s->n_ids == 0, role, utf8, &span, err);
    if (!st)
        st = pv_add_ids(s, span.ids, span.n, err);
    if (!st)
        s->messages = true;
    return st;
}

/* ---- generation ---- */

/* What a step is to bring back of its last row. */
enum want { WANT_NOTHING, WANT_ARGMAX, WANT_LOGITS };

/* One step over ids[from .. from + n) of the timeline. */
static enum pv_status run_rows(struct pv_session *s, int from, int n, enum want want,
                               struct pv_error *err)
{
    struct step_seq seq = { .kv = &s->kv, .n = n };
    int last = n - 1;
    enum pv_status st;
    for (int i = 0; i < n; i++)
        s->pos[i][0] = s->pos[i][1] = s->pos[i][2] = from + i;
    struct step step = { .n = n,
                         .ids = s->ids + from,
                         .pos = (const int32_t(*)[3])s->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = want != WANT_NOTHING,
                         .logit_rows = &last,
                         .logits = want == WANT_LOGITS ? s->logits : NULL,
                         .argmax = want == WANT_ARGMAX ? &s->top : NULL };
    pthread_mutex_lock(&s->model->step_lock);
    st = decoder_step(s->model->dec, s->state, &step, err);
    pthread_mutex_unlock(&s->model->step_lock);
    if (st)
        return st;
    memcpy(s->kv_ids + from, s->ids + from, (size_t)n * sizeof *s->ids);
    kvcache_advance(&s->kv, n);
    return PV_OK;
}

/* Make the cache hold the whole timeline. */
static enum pv_status prefill(struct pv_session *s, enum want want, struct pv_error *err)
{
    int same = 0;
    while (same < s->kv.len && same < s->n_ids - 1 && s->kv_ids[same] == s->ids[same])
        same++;
    kvcache_truncate(&s->kv, same);
    s->stats.prompt_tokens = s->n_ids;
    s->stats.reused_tokens = same;
    for (int at = same; at < s->n_ids;) {
        int n = s->n_ids - at < s->chunk ? s->n_ids - at : s->chunk;
        enum pv_status st = run_rows(s, at, n, at + n == s->n_ids ? want : WANT_NOTHING, err);
        if (st)
            return st;
        at += n;
    }
    return PV_OK;
}

static bool is_stop(const struct pv_session *s, int32_t id)
{
    const struct config *c = decoder_config(s->model->dec);
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop[i] == id)
            return true;
    return false;
}

static enum pv_status emit(struct pv_session *s, int32_t id, bool last, pv_text_fn on_text,
                           void *user, struct pv_error *err)
{
    size_t len;
    const char *text = dialogue_text(s->words, id, last, &len);
    if (!text)
        return fail(err, PV_E_NOMEM, "out of memory for the text of token %d", s->n_answer);
    if (on_text && (!last || len > 0) && !on_text(user, text, len))
        return fail(err, PV_E_CANCELLED, "generation was cancelled after %d tokens", s->n_answer);
    return PV_OK;
}

static enum pv_status decode(struct pv_session *s, const struct pv_gen_params *p, enum want want,
                             pv_text_fn on_text, void *user, struct pv_error *err)
{
    struct sampling how = { .temperature = p->temperature,
                            .top_k = p->top_k,
                            .top_p = p->top_p,
                            .min_p = p->min_p,
                            .seed = p->seed };
    int vocab = pv_model_vocab_size(s->model);
    for (;;) {
        int32_t id = want == WANT_ARGMAX
                         ? s->top
                         : sample_token(s->logits, vocab, &how, (uint64_t)s->n_ids, s->candidates);
        enum pv_status st;
        if (!p->ignore_stop && is_stop(s, id))
            return PV_OK;
        s->ids[s->n_ids++] = id;
        s->n_answer++;
        s->stats.tokens++;
        st = emit(s, id, false, on_text, user, err);
        if (st || s->n_answer >= p->max_new_tokens)
            return st;
        if (s->n_ids >= s->context)
            return fail(err, PV_E_LIMIT,
                        "the context of %d tokens is full after %d tokens of "
                        "answer",
                        s->context, s->n_answer);
        st = run_rows(s, s->n_ids - 1, 1, want, err);
        if (st)
            return st;
        s->stats.passes++;
    }
}

/* Close the answer in the template's way, so that another message can follow; without room for that
 * the timeline is full, which the next call will say. */
static void end_answer(struct pv_session *s)
{
    struct id_span span = { 0 };
    if (dialogue_end(s->words, &span, NULL) == PV_OK)
        pv_add_ids(s, span.ids, span.n, NULL);
}

static enum pv_status check_params(const struct pv_session *s, const struct pv_gen_params *p,
                                   struct pv_error *err)
{
    struct sampling how = {
        .temperature = p->temperature, .top_k = p->top_k, .top_p = p->top_p, .min_p = p->min_p
    };
    if (p->max_new_tokens < 1)
        return fail(err, PV_E_ARG, "%d new tokens were asked for, at least 1 is possible",
                    p->max_new_tokens);
    if (s->n_ids == 0)
        return fail(err, PV_E_ARG, "the prompt is empty");
    if (s->n_ids >= s->context)
        return fail(err, PV_E_LIMIT, "a prompt of %d tokens leaves no room in a context of %d",
                    s->n_ids, s->context);
    return sampling_check(&how, err);
}

/* Append what comes before an answer; the timeline is as it was when there is no room. */
static enum pv_status ask(struct pv_session *s, const struct pv_gen_params *p, struct pv_error *err)
{
    struct id_span span = { 0 };
    int n_ids = s->n_ids;
    enum pv_status st = dialogue_ask(s->words, &span, err);
    if (!st)
        st = pv_add_ids(s, span.ids, span.n, err);
    if (!st)
        st = check_params(s, p, err);
    if (st) {
        s->n_ids = n_ids;
        s->messages = true;
    }
    return st;
}

enum pv_status pv_generate(pv_session *s, const struct pv_gen_params *p, pv_text_fn on_text,
                           void *user, struct pv_error *err)
{
    bool dialogue = s->messages;
    enum want want = p->temperature == 0 ? WANT_ARGMAX : WANT_LOGITS;
    enum pv_status st = check_params(s, p, err);
    double t0 = now(), t1;
    if (!st && dialogue)
        st = ask(s, p, err);
    if (st)
        return st;
    s->stats = (struct pv_stats){ 0 };
    s->answer0 = s->n_ids;
    s->n_answer = 0;
    st = prefill(s, want, err);
    t1 = now();
    s->stats.prefill_s = t1 - t0;
    s->stats.passes = 1;
    if (st)
        return st;
    st = decode(s, p, want, on_text, user, err);
    if (st == PV_E_CANCELLED) {
        size_t dropped; /* half a character is not for the next answer */
        dialogue_text(s->words, 0, true, &dropped);
    } else {
        enum pv_status held = emit(s, 0, true, on_text, user, err);
        st = st ? st : held;
    }
    s->stats.decode_s = now() - t1;
    if (dialogue)
        end_answer(s);
    return st;
}

const int32_t *pv_session_answer(const pv_session *s, size_t *n)
{
    *n = (size_t)s->n_answer;
    return s->ids + s->answer0;
}

void pv_session_stats(const pv_session *s, struct pv_stats *out)
{
    *out = s->stats;
}
