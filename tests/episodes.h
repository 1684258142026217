/* Lossless under load. In an episode requests of a world (models, prompts, methods, temperatures,
 * seeds) arrive, are cancelled and lose their pages at random while others run, with and without a
 * cache on disk. Whatever happens beside it, a request has the ids and the bits of logits that it
 * has alone, and so have the keys and values that the engine keeps of it. */
#ifndef PV_TESTS_EPISODES_H
#define PV_TESTS_EPISODES_H

#include "answers.h"
#include "base/digest.h"
#include "engine/request.h"

enum {
    MAX_JOBS = 16,
    MAX_PROMPTS = 6,
    MAX_MESSAGES = 3,
    N_DRAWS = 3,
    CACHE_BYTES = 1 << 20 /* on disk: less than there is to keep */
};

/* Temperatures and seeds. */
static const float draw_temperature[N_DRAWS] = { 0, 0.8f, 1.2f };
static const uint64_t draw_seed[N_DRAWS] = { 11, 11, 77 };

struct world_prompt {
    struct pv_message message[MAX_MESSAGES];
    size_t n;
};

/* What came of a request: ids, and digests of the logits that chose them. */
struct record {
    size_t n;
    int32_t ids[N_NEW];
    uint8_t bits[N_NEW][DIGEST_SIZE];
    int vocab;
};

struct lone {
    pv_engine *e;
    pv_request *r;
    struct record record;
};

/* Filled by the test, but for `alone`; answers have n_new tokens, at most N_NEW. */
struct world {
    pv_model *target, *draft;
    bool head; /* the target has a draft head */
    struct world_prompt prompt[MAX_PROMPTS];
    int n_prompts;
    int context, n_new, max_jobs;
    enum pv_kv_type kv;
    bool disk; /* some episodes have a cache on disk */
    struct lone alone[MAX_PROMPTS][N_DRAWS];
};

static inline void keep_bits(void *user, int token, const float *logits)
{
    struct record *r = user;
    struct digest d;
    if (token >= N_NEW)
        return;
    digest_init(&d);
    digest_add(&d, logits, (size_t)r->vocab * sizeof *logits);
    digest_finish(&d, r->bits[token]);
}

static inline pv_request *world_submit(const struct world *w, pv_engine *e, int prompt, int draw,
                                       const struct pv_method *m, struct record *record)
{
    struct pv_request_params p = pv_request_defaults();
    struct pv_gen_params g = gen_params(draw_temperature[draw]);
    struct pv_error err = { 0 };
    pv_request *r = NULL;
    record->vocab = pv_model_vocab_size(w->target);
    g.max_new_tokens = w->n_new;
    g.seed = draw_seed[draw];
    g.method = m;
    g.on_logits = keep_bits;
    g.logits_user = record;
    p.gen = &g;
    p.messages = w->prompt[prompt].message;
    p.n_messages = w->prompt[prompt].n;
    CHECK_MSG(pv_request_submit(&r, e, &p, &err) == PV_OK, "%s", err.text);
    return r;
}

/* Takes all events of a request; its last one. */
static inline struct pv_event take_events(pv_request *r, struct record *record)
{
    struct pv_event e = { 0 };
    while (pv_request_next(r, &e, -1))
        if (e.kind == PV_EVENT_TEXT && e.token.id >= 0 && record->n < N_NEW)
            record->ids[record->n++] = e.token.id;
    return e;
}

/* What every prompt gives alone, by plain decoding on an engine of its own. */
static inline bool world_run_alone(struct world *w)
{
    struct pv_engine_params p = pv_engine_defaults();
    p.max_context = w->context;
    p.max_requests = 1;
    p.chunk = 37;
    p.kv_type = w->kv;
    for (int i = 0; i < w->n_prompts; i++)
        for (int d = 0; d < N_DRAWS; d++) {
            struct lone *a = &w->alone[i][d];
            struct pv_event end;
            if (!CHECK(!pv_engine_open(&a->e, w->target, &p, NULL)))
                return false;
            a->r = world_submit(w, a->e, i, d, NULL, &a->record);
            if (!a->r)
                return false;
            end = take_events(a->r, &a->record);
            if (!CHECK_MSG(end.finish == PV_FINISH_LENGTH, "alone: %s", end.message))
                return false;
        }
    return true;
}

static inline void world_close(struct world *w)
{
    for (int i = 0; i < w->n_prompts; i++)
        for (int d = 0; d < N_DRAWS; d++) {
            pv_request_close(&w->alone[i][d].r);
            pv_engine_close(&w->alone[i][d].e);
        }
    pv_model_close(&w->draft);
    pv_model_close(&w->target);
}

/* ---- one episode ---- */

struct job {
    int prompt, draw;
    struct pv_method method;
    int64_t arrives, cancels; /* iterations; cancels 0: never */
    pv_request *r;
    struct record record;
};

struct episode {
    struct world *w;
    pv_engine *e;
    struct rng rng;
    struct job job[MAX_JOBS];
    int n, n_arrived;
    int preempts; /* one in so many iterations; 0: never */
};

static inline int below(struct rng *r, int n)
{
    return (int)(rng_next(r) % (uint64_t)n);
}

static inline struct pv_method draw_method(struct rng *r, bool head)
{
    static const struct {
        const char *name, *view; /* view NULL: the method's */
    } methods[] = { { "ar", NULL },          { "sd", NULL },    { "sd-tree", NULL },
                    { "specvlm", NULL },     { "std", NULL },   { "ngram", NULL },
                    { "sd-tree", "random" }, { "auto", NULL },  { "sd", "none" },
                    { "pearl", NULL },       { "hippo", NULL }, { "parallelvlm", NULL },
                    { "sparrow", NULL },     { "msd", NULL } };
    struct pv_method m = { .size = sizeof m };
    int k = below(r, head ? 14 : 12);
    CHECK(!pv_method_find(&m, methods[k].name, NULL));
    if (methods[k].view) {
        m.view = methods[k].view;
        m.ratio = 0.9;
    }
    if (below(r, 8) == 0) {
        m.drafter = PV_DRAFT_RANDOM;
        m.automatic = false;
        m.shape = PV_SHAPE_CHAIN;
        m.schedule = PV_SCHEDULE_SERIAL;
    }
    return m;
}

static inline void submit_job(struct episode *ep, struct job *j)
{
    j->r = world_submit(ep->w, ep->e, j->prompt, j->draw, &j->method, &j->record);
    ep->n_arrived++;
}

/* On the scheduler's thread, at the beginning of every iteration. */
static inline void watch_episode(void *user, int64_t iteration)
{
    struct episode *ep = user;
    while (ep->n_arrived < ep->n && ep->job[ep->n_arrived].arrives <= iteration)
        submit_job(ep, &ep->job[ep->n_arrived]);
    for (int i = 0; i < ep->n_arrived; i++)
        if (ep->job[i].cancels && ep->job[i].cancels <= iteration)
            pv_request_cancel(ep->job[i].r);
    if (ep->preempts && below(&ep->rng, ep->preempts) == 0)
        scheduler_preempt(ep->e->scheduler, below(&ep->rng, MAX_JOBS));
}

/* As kv_range compares, on a GPU: there V lies as K does, out of the host's reach. */
static inline bool same_on_gpu(struct device *dev, const struct kvcache *a, const struct kvcache *b,
                               int len)
{
    bool same = true;
    for (int n = 0; n < a->n_layers; n++) {
        const struct kv_layer *x = &a->layer[n], *y = &b->layer[n];
        size_t row = dtype_row_size(x->dtype, x->d), most = KV_CHUNK * row;
        uint8_t *rows = malloc(2 * most);
        for (int h = 0; h < 2 * x->n_kv && rows; h++)
            for (int slot = 0; slot < len; slot += KV_CHUNK) {
                int chunk = slot / KV_CHUNK, head = h / 2;
                size_t size = (size_t)(len - slot < KV_CHUNK ? len - slot : KV_CHUNK) * row;
                dev->ops->download(dev, rows, kv_page_at(x, h % 2 ? x->v : x->k, head, chunk),
                                   size);
                dev->ops->download(dev, rows + most,
                                   kv_page_at(y, h % 2 ? y->v : y->k, head, chunk), size);
                same = same && !memcmp(rows, rows + most, size);
            }
        same = same && rows;
        free(rows);
    }
    return same;
}

/* Keys and values that the pool still has, against those of the request alone. */
static inline void check_rows(struct episode *ep, const struct job *j)
{
    const pv_session *s = request_session(j->r);
    const pv_session *alone = request_session(ep->w->alone[j->prompt][j->draw].r);
    struct kvcache x, y;
    bool same;
    int len;
    CHECK(!kvcache_attach(&x, ep->e->pool, ep->w->context, NULL));
    len = kvcache_adopt(&x, s->target.base.work, s->seq.digest, s->seq.n_kv_ids);
    cache_open(alone, &y);
    CHECK(!s->model->dev->ops->wait(s->target.base.work, NULL)); /* copied pages are there */
    same = s->model->gpu < 0 ? kv_range(&x, &y, 0, len, false)
                             : same_on_gpu(s->model->dev, &x, &y, len);
    CHECK_MSG(len <= y.len && same, "KV of prompt %d, %s", j->prompt, j->method.name);
    kvcache_release(&x, s->seq.digest);
    kvcache_close(&x);
    cache_close(alone, &y);
}

static inline void check_job(struct episode *ep, struct job *j)
{
    const struct record *ref = &ep->w->alone[j->prompt][j->draw].record;
    struct record *got = &j->record;
    struct pv_event e = take_events(j->r, got);
    bool same = true;
    for (size_t i = 0; i < got->n && same; i++) {
        bool bits = !memcmp(got->bits[i], ref->bits[i], DIGEST_SIZE);
        same = CHECK_MSG(got->ids[i] == ref->ids[i] && bits,
                         "token %zu: id %d, expected %d, bits of logits %s", i, (int)got->ids[i],
                         (int)ref->ids[i], bits ? "equal" : "differ");
    }
    CHECK_MSG(same && (e.finish == PV_FINISH_CANCELLED || got->n == ref->n),
              "prompt %d, draw %d, method %s, %zu tokens, finish %d: %s", j->prompt, j->draw,
              j->method.name, got->n, (int)e.finish, e.message);
    CHECK(e.kind == PV_EVENT_END &&
          (e.finish == PV_FINISH_LENGTH || (j->cancels && e.finish == PV_FINISH_CANCELLED)));
    if (e.finish == PV_FINISH_LENGTH)
        check_rows(ep, j);
}

struct tally {
    int64_t preemptions, hits, rows, steps, cancelled, accepted;
    int64_t lane_steps; /* steps of prompts that ran while other requests decoded */
    int64_t read;       /* entries of the cache on disk */
};

static inline void draw_jobs(struct episode *ep)
{
    for (int i = 0; i < ep->n; i++) {
        struct job *j = &ep->job[i];
        j->prompt = below(&ep->rng, ep->w->n_prompts);
        j->draw = below(&ep->rng, N_DRAWS);
        j->method = draw_method(&ep->rng, ep->w->head);
        j->arrives = i ? ep->job[i - 1].arrives + below(&ep->rng, 12) : 0;
        j->cancels = below(&ep->rng, 8) ? 0 : j->arrives + 1 + below(&ep->rng, 40);
    }
}

/* Lets all jobs arrive and waits for them. */
static inline void run_jobs(struct episode *ep)
{
    scheduler_watch(ep->e->scheduler, watch_episode, ep);
    for (int i = 0; i < ep->n; i++) {
        struct job *j = &ep->job[i];
        /* While nothing runs nobody watches: then the next one comes from here. */
        while (!j->r) {
            scheduler_watch(ep->e->scheduler, NULL, NULL);
            for (int k = 0; k < ep->n_arrived; k++)
                pv_request_wait(ep->job[k].r, NULL);
            if (!j->r)
                submit_job(ep, j);
            scheduler_watch(ep->e->scheduler, watch_episode, ep);
        }
        pv_request_wait(j->r, NULL);
    }
    scheduler_watch(ep->e->scheduler, NULL, NULL);
}

static inline bool run_episode(struct world *w, uint64_t seed, struct tally *tally)
{
    static struct episode ep;
    struct pv_engine_params p = pv_engine_defaults();
    struct pv_engine_counts st = { .size = sizeof st };
    int failed = test_bad_checks;
    char cache[256];
    memset(&ep, 0, sizeof ep);
    ep.w = w;
    ep.rng = (struct rng){ seed };
    ep.n = 2 + below(&ep.rng, w->max_jobs - 1);
    ep.preempts = below(&ep.rng, 3) ? 0 : 2 + below(&ep.rng, 10);
    p.max_context = w->context;
    p.kv_tokens = w->context + KV_CHUNK * below(&ep.rng, 8);
    p.max_requests = 1 + below(&ep.rng, MAX_JOBS);
    p.chunk = 5 + below(&ep.rng, 60);
    p.kv_type = w->kv;
    p.draft = w->draft;
    p.speculate = true;
    if (w->disk && below(&ep.rng, 3) == 0) { /* one directory for the episodes of all worlds */
        snprintf(cache, sizeof cache, "%s/cache", scratch_dir());
        p.cache = (struct pv_cache_params){ .dir = cache, .bytes = CACHE_BYTES, .kv = true };
    }
    if (!CHECK(!pv_engine_open(&ep.e, w->target, &p, NULL)))
        return false;
    draw_jobs(&ep);
    run_jobs(&ep);
    pv_engine_stats(ep.e, &st);
    CHECK_EQ(st.pages_used, 0);
    for (int i = 0; i < ep.n; i++) {
        struct pv_stats stats = { .size = sizeof stats };
        check_job(&ep, &ep.job[i]);
        pv_request_stats(ep.job[i].r, &stats);
        tally->accepted += stats.accepted;
        tally->cancelled += ep.job[i].cancels != 0;
    }
    for (int i = 0; i < ep.n; i++)
        pv_request_close(&ep.job[i].r);
    tally->preemptions += st.preemptions;
    tally->hits += st.page_hits;
    tally->read += st.disk_pages + st.disk_rows;
    CHECK_EQ(st.disk_damaged, 0);
    tally->steps += st.steps;
    tally->lane_steps += scheduler_counts(ep.e->scheduler).lane_steps;
    tally->rows += st.rows;
    pv_engine_close(&ep.e);
    return CHECK_MSG(test_bad_checks == failed,
                     "episode %llu: %d requests, %d at a time, %lld tokens of KV, chunks of %d",
                     (unsigned long long)seed, ep.n, p.max_requests, (long long)p.kv_tokens,
                     p.chunk);
}

/* Episodes with seeds from `first` on. Closes the world. */
static inline struct tally run_world(struct world *w, int first, int episodes)
{
    struct tally t = { 0 };
    if (world_run_alone(w))
        for (int i = 0; i < episodes; i++)
            if (!run_episode(w, test_seed + (uint64_t)(first + i), &t))
                break;
    world_close(w);
    printf("  %d episodes: %lld preemptions, %lld pages shared, %lld entries read from disk, %lld "
           "cancelled, %lld drafted tokens accepted, %.1f rows a step\n",
           episodes, (long long)t.preemptions, (long long)t.hits, (long long)t.read,
           (long long)t.cancelled, (long long)t.accepted,
           t.steps ? (double)t.rows / (double)t.steps : 0);
    CHECK(episodes < 20 || (t.preemptions > 0 && t.hits > 0 && t.cancelled > 0));
    CHECK(!w->disk || episodes < 20 || t.read > 0);
    CHECK(t.accepted > 0);
    return t;
}

#endif
