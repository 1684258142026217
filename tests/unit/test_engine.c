/* Lossless under load. Requests of every kind (prompts with videos, pictures and shared beginnings,
 * methods, temperatures, seeds) arrive, are cancelled and lose their pages at random while others
 * run. Whatever happens beside it, a request has the ids and the bits of logits that it has alone,
 * and so have the keys and values that the engine keeps of it. */
#include "answers.h"
#include "engine/request.h"
#include "tiny_head.h"

enum {
    MAX_JOBS = 16,
    N_PROMPTS = 6,
    N_DRAWS = 3, /* temperatures and seeds */
    CHUNKS = 4,
    HIDDEN = 32
};

static const float temperatures[N_DRAWS] = { 0, 0.8f, 1.2f };
static const uint64_t seeds[N_DRAWS] = { 11, 11, 77 };

/* ---- prompts ---- */

static const char *const words[N_PROMPTS] = {
    "what is the dog", "what is the dog", "what is the dog and the cat",
    "the cat",         "what is the",     "what is the dog"
};

/* Prompt i: 0, 2, 4 and 5 begin alike; 1 has another video; 3 is a picture and 4 words alone. */
static enum pv_status fill_prompt(pv_session *s, int i, struct pv_error *err)
{
    enum pv_status st = PV_OK;
    if (i == 5)
        st = pv_add_text(s, "user", words[4], err);
    if (!st && i == 5)
        st = pv_add_text(s, "assistant", "the dog", err);
    if (!st && i != 4)
        st = add_medium(s, i == 1 ? 8 : 7, i == 3, err);
    return st ? st : pv_add_text(s, "user", words[i], err);
}

/* ---- what each request gives alone ---- */

struct world {
    pv_model *target, *draft;
    pv_session *alone[N_PROMPTS][N_DRAWS];
    struct answer ref[N_PROMPTS][N_DRAWS];
    int vocab;
};

static bool world_open(struct world *w, enum vision_kind kind, bool head, int level)
{
    struct tiny_vision target = tiny_vision(kind), draft = target;
    struct tiny_head h = tiny_head(HIDDEN, 0);
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    char paths[3][256];
    draft.hidden /= 2;
    draft.n_layers /= 2;
    draft.ffn /= 2;
    draft.noise = 0.1f;
    h.copies = true;
    h.no_input_norm = true;
    h.n_kv = 1;
    tiny_vision_gguf(&target, "target", paths[0]);
    tiny_vision_gguf(&draft, "draft", paths[1]);
    *w = (struct world){ 0 };
    p.path = paths[0];
    p.threads = 1;
    p.cpu_mask = cpu_levels[level].flags;
    if (head)
        p.head = tiny_head_write(&h, "head", paths[2]);
    if (!CHECK_MSG(pv_model_open(&w->target, &p, &err) == PV_OK, "%s", err.text))
        return false;
    p.head = NULL;
    p.path = paths[1];
    p.beside = w->target;
    if (!CHECK_MSG(pv_model_open(&w->draft, &p, &err) == PV_OK, "%s", err.text))
        return false;
    w->vocab = pv_model_vocab_size(w->target);
    for (int i = 0; i < N_PROMPTS; i++)
        for (int d = 0; d < N_DRAWS; d++) {
            struct pv_session_params sp = pv_session_defaults();
            struct answer *a = &w->ref[i][d];
            struct {
                struct answer *a;
                int vocab;
            } user = { a, w->vocab };
            struct pv_gen_params g = gen_params(temperatures[d]);
            const int32_t *ids;
            sp.max_context = CONTEXT;
            sp.chunk = 37;
            sp.kv_type = PV_KV_F32;
            g.seed = seeds[d];
            if (!CHECK(!pv_session_open(&w->alone[i][d], w->target, &sp, NULL)) ||
                !CHECK_MSG(!fill_prompt(w->alone[i][d], i, &err), "%s", err.text))
                return false;
            w->alone[i][d]->observer = (struct logits_observer){ show, &user };
            CHECK_MSG(!pv_generate(w->alone[i][d], &g, NULL, NULL, &err), "%s", err.text);
            w->alone[i][d]->observer = (struct logits_observer){ 0 };
            ids = pv_session_answer(w->alone[i][d], &a->n);
            memcpy(a->ids, ids, a->n * sizeof *ids);
        }
    return true;
}

static void world_close(struct world *w)
{
    for (int i = 0; i < N_PROMPTS; i++)
        for (int d = 0; d < N_DRAWS; d++)
            pv_session_close(&w->alone[i][d]);
    pv_model_close(&w->draft);
    pv_model_close(&w->target);
}

/* ---- one episode ---- */

struct job {
    int prompt, draw;
    struct pv_method method;
    int64_t arrives, cancels; /* iterations; cancels 0: never */
    pv_request *r;
    struct {
        struct answer *a;
        int vocab;
    } user;
    struct answer got;
};

struct episode {
    struct world *w;
    pv_engine *e;
    struct rng rng;
    struct job job[MAX_JOBS];
    int n, n_arrived;
    int preempts; /* one in so many iterations; 0: never */
};

static int below(struct rng *r, int n)
{
    return (int)(rng_next(r) % (uint64_t)n);
}

static struct pv_method draw_method(struct rng *r, bool head)
{
    static const char *const names[] = { "ar",    "sd",          "sd-tree", "specvlm", "std",
                                         "ngram", "sd-rand",     "auto",    "onsd",    "pearl",
                                         "hippo", "parallelvlm", "sparrow", "msd" };
    struct pv_method m;
    int n = head ? 14 : 12;
    CHECK(!pv_method_find(&m, names[below(r, n)], NULL));
    if (below(r, 8) == 0)
        m.drafter = PV_DRAFT_RANDOM, m.automatic = false, m.shape = PV_SHAPE_CHAIN,
        m.schedule = PV_SCHEDULE_SERIAL;
    return m;
}

static void submit(struct episode *ep, struct job *j)
{
    struct pv_request_params p = pv_request_defaults();
    struct pv_error err = { 0 };
    static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
    struct pv_frame frames[FRAMES];
    struct pv_video_params v = pv_video_defaults();
    struct rng r = { j->prompt == 1 ? 8 : 7 };
    struct pv_part parts[2] = { { .frames = frames, .video = &v }, { .text = words[j->prompt] } };
    struct pv_part first = { .text = words[4] }, second = { .text = "the dog" };
    struct pv_message messages[3] = { { "user", &first, 1 }, { "assistant", &second, 1 } };
    bool picture = j->prompt == 3;
    for (int f = 0; f < FRAMES; f++) {
        for (size_t i = 0; i < sizeof rgb[f]; i++)
            rgb[f][i] = (uint8_t)rng_next(&r);
        frames[f] = (struct pv_frame){
            .index = f, .time = f, .width = WIDTH, .height = HEIGHT, .rgb = rgb[f]
        };
    }
    v.max_pixels = 56 * 56;
    parts[0].n_frames = picture ? 1 : FRAMES;
    parts[0].fps = picture ? 0 : 2;
    p.gen = gen_params(temperatures[j->draw]);
    p.gen.seed = seeds[j->draw];
    p.gen.method = &j->method;
    j->user.a = &j->got;
    j->user.vocab = ep->w->vocab;
    p.gen.on_logits = show;
    p.gen.logits_user = &j->user;
    if (j->prompt == 5) {
        messages[2] = (struct pv_message){ "user", parts, 2 };
        p.n_messages = 3;
    } else {
        messages[0] =
            (struct pv_message){ "user", parts + (j->prompt == 4), j->prompt == 4 ? 1 : 2 };
        p.n_messages = 1;
    }
    p.messages = messages;
    CHECK_MSG(pv_request_submit(&j->r, ep->e, &p, &err) == PV_OK, "%s", err.text);
    ep->n_arrived++;
}

/* On the scheduler's thread, at the beginning of every iteration. */
static void watch(void *user, int64_t iteration)
{
    struct episode *ep = user;
    while (ep->n_arrived < ep->n && ep->job[ep->n_arrived].arrives <= iteration)
        submit(ep, &ep->job[ep->n_arrived]);
    for (int i = 0; i < ep->n_arrived; i++)
        if (ep->job[i].cancels && ep->job[i].cancels <= iteration)
            pv_request_cancel(ep->job[i].r);
    if (ep->preempts && below(&ep->rng, ep->preempts) == 0)
        scheduler_preempt(ep->e->scheduler, below(&ep->rng, MAX_JOBS));
}

/* Keys and values that the pool still has, against those of the request alone. */
static void check_rows(struct episode *ep, const struct job *j)
{
    const pv_session *s = request_session(j->r), *alone = ep->w->alone[j->prompt][j->draw];
    struct kvcache x, y;
    int len;
    CHECK(!kvcache_attach(&x, ep->e->pool, CONTEXT, NULL));
    len = kvcache_adopt(&x, s->target.base.work, s->seq.digest, s->seq.n_kv_ids);
    cache_open(alone, &y);
    CHECK_MSG(len <= y.len && kv_range(&x, &y, 0, len, false), "KV of prompt %d, %s", j->prompt,
              j->method.name);
    kvcache_release(&x, s->seq.digest);
    kvcache_close(&x);
    cache_close(alone, &y);
}

static void check_job(struct episode *ep, struct job *j)
{
    const struct answer *ref = &ep->w->ref[j->prompt][j->draw];
    struct pv_event e = { 0 };
    size_t n = 0;
    bool same = true;
    while (pv_request_next(j->r, &e, -1)) {
        if (e.kind != PV_EVENT_TEXT || e.token.id < 0)
            continue;
        bool id = n < ref->n && e.token.id == ref->ids[n];
        bool bits = n < ref->n &&
                    !memcmp(j->got.logits[n], ref->logits[n], (size_t)ep->w->vocab * sizeof(float));
        if (same && !CHECK_MSG(id && bits, "token %zu: id %d, expected %d, bits of logits %s", n,
                               (int)e.token.id, (int)ref->ids[n], bits ? "equal" : "differ"))
            same = false;
        n++;
    }
    CHECK_MSG(same && (e.finish == PV_FINISH_CANCELLED || n == ref->n),
              "prompt %d, draw %d, method %s, %zu tokens, finish %d: %s", j->prompt, j->draw,
              j->method.name, n, (int)e.finish, e.message);
    CHECK(e.kind == PV_EVENT_END &&
          (e.finish == PV_FINISH_LENGTH || (j->cancels && e.finish == PV_FINISH_CANCELLED)));
    if (e.finish == PV_FINISH_LENGTH)
        check_rows(ep, j);
}

struct tally {
    int64_t preemptions, hits, rows, steps, most, cancelled;
};

static bool run_episode(struct world *w, uint64_t seed, bool head, struct tally *tally)
{
    static struct episode ep;
    struct pv_engine_params p = pv_engine_defaults();
    struct pv_engine_counts st = { .size = sizeof st };
    int failed = test_bad_checks;
    memset(&ep, 0, sizeof ep);
    ep.w = w;
    ep.rng = (struct rng){ seed };
    ep.n = 2 + below(&ep.rng, MAX_JOBS - 1);
    ep.preempts = below(&ep.rng, 3) ? 0 : 2 + below(&ep.rng, 10);
    p.max_context = CONTEXT;
    p.kv_tokens = CONTEXT + KV_CHUNK * below(&ep.rng, 8);
    p.max_requests = 1 + below(&ep.rng, MAX_JOBS);
    p.chunk = 5 + below(&ep.rng, 60);
    p.kv_type = PV_KV_F32;
    p.draft = w->draft;
    p.speculate = true;
    if (!CHECK(!pv_engine_open(&ep.e, w->target, &p, NULL)))
        return false;
    for (int i = 0; i < ep.n; i++) {
        struct job *j = &ep.job[i];
        j->prompt = below(&ep.rng, N_PROMPTS);
        j->draw = below(&ep.rng, N_DRAWS);
        j->method = draw_method(&ep.rng, head);
        j->arrives = i ? ep.job[i - 1].arrives + below(&ep.rng, 12) : 0;
        j->cancels = below(&ep.rng, 8) ? 0 : j->arrives + 1 + below(&ep.rng, 40);
    }
    scheduler_watch(ep.e->scheduler, watch, &ep);
    for (int i = 0; i < ep.n; i++) {
        struct job *j = &ep.job[i];
        /* While nothing runs nobody watches: then the next one comes from here. */
        while (!j->r) {
            scheduler_watch(ep.e->scheduler, NULL, NULL);
            for (int k = 0; k < ep.n_arrived; k++)
                pv_request_wait(ep.job[k].r, NULL);
            if (!j->r)
                submit(&ep, j);
            scheduler_watch(ep.e->scheduler, watch, &ep);
        }
        pv_request_wait(j->r, NULL);
    }
    scheduler_watch(ep.e->scheduler, NULL, NULL);
    pv_engine_stats(ep.e, &st);
    CHECK_EQ(st.pages_used, 0);
    for (int i = 0; i < ep.n; i++) {
        check_job(&ep, &ep.job[i]);
        tally->cancelled += ep.job[i].cancels != 0;
    }
    for (int i = 0; i < ep.n; i++)
        pv_request_close(&ep.job[i].r);
    tally->preemptions += st.preemptions;
    tally->hits += st.page_hits;
    tally->steps += st.steps;
    tally->rows += st.rows;
    tally->most += scheduler_counts(ep.e->scheduler).most_running;
    pv_engine_close(&ep.e);
    return CHECK_MSG(test_bad_checks == failed,
                     "episode %llu: %d requests, %d at a time, %lld "
                     "tokens of KV, chunks of %d",
                     (unsigned long long)seed, ep.n, p.max_requests, (long long)p.kv_tokens,
                     p.chunk);
}

static void run_world(enum vision_kind kind, bool head, int level, int episodes)
{
    static struct world w;
    struct tally t = { 0 };
    if (world_open(&w, kind, head, level))
        for (int i = 0; i < episodes; i++)
            if (!run_episode(&w, test_seed + (uint64_t)(1000 * level + i), head, &t))
                break;
    world_close(&w);
    printf("  %d episodes: %lld preemptions, %lld pages shared, %lld cancelled, %.1f rows a step\n",
           episodes, (long long)t.preemptions, (long long)t.hits, (long long)t.cancelled,
           t.steps ? (double)t.rows / (double)t.steps : 0);
    CHECK(episodes < 20 || (t.preemptions > 0 && t.hits > 0 && t.cancelled > 0));
}

TEST(requests_of_llava_do_not_see_each_other)
{
    run_world(VISION_LLAVA, true, cpu_level_best(), 400);
}

TEST(requests_of_qwen_do_not_see_each_other)
{
    run_world(VISION_QWEN2_5, true, cpu_level_best(), 400);
}

TEST(on_every_cpu_level)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        if (cpu_level_here(level) && level != cpu_level_best())
            run_world(level % 2 ? VISION_LLAVA : VISION_QWEN2_5, false, level, 60);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
