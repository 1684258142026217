/* Answers of sessions, with all that speculation must leave as it is: ids, bits of the logits that
 * chose them, and the cache. */
#ifndef PV_TESTS_ANSWERS_H
#define PV_TESTS_ANSWERS_H

#include "base/rng.h"
#include "engine/session.h"
#include "family/families.h"
#include "rig.h"
#include "test.h"
#include "tiny_vision.h"

#include <string.h>

enum { SAMPLES = 36000 /* of models that hear: 2.25 s beside 2.5 s of frames */ };
enum { FRAMES = 5, HEIGHT = 40, WIDTH = 56, N_NEW = 20, MAX_VOCAB = 400, CONTEXT = 768 };

/* ---- models and prompts ---- */

struct pair {
    pv_model *target, *draft;
};

static inline pv_model *open_model(const char *path, int threads, pv_model *shares_with)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.threads = threads;
    p.shares_with = shares_with;
    CHECK_MSG(pv_model_open(&m, &p, &err) == PV_OK, "%s", err.text);
    return m;
}

static inline struct pair open_two(const char *target, const char *draft, int threads)
{
    struct pair p;
    p.target = open_model(target, threads, NULL);
    p.draft = open_model(draft, threads, p.target);
    return p;
}

/* A model that drafts for itself. */
static inline struct pair open_pair(const char *path, int threads)
{
    return open_two(path, path, threads);
}

/* A random model, and one that resembles it, with a smaller tower and noise on every number: some
 * of its drafts are right. */
static inline struct pair open_unlike(const struct family *family, int threads)
{
    struct tiny_vision target = tiny_vision(family), draft = target;
    char paths[2][256];
    draft.hidden /= 2;
    draft.n_layers /= 2;
    draft.ffn /= 2;
    draft.noise = 0.1f;
    tiny_vision_gguf(&target, "target", paths[0]);
    tiny_vision_gguf(&draft, "draft", paths[1]);
    return open_two(paths[0], paths[1], threads);
}

static inline void close_pair(struct pair *p)
{
    pv_model_close(&p->draft);
    pv_model_close(&p->target);
}

static inline pv_session *open_session(const struct pair *p)
{
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    sp.max_context = CONTEXT;
    sp.chunk = 37;
    sp.kv_type = PV_KV_F32;
    sp.draft = p->draft;
    CHECK_MSG(pv_session_open(&s, p->target, &sp, &err) == PV_OK, "%s", err.text);
    return s;
}

/* Frames of noise, whose pixels the caller keeps. */
static inline void noise_frames(struct pv_frame frames[FRAMES],
                                uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3], uint64_t seed)
{
    struct rng r = { seed };
    for (int f = 0; f < FRAMES; f++) {
        for (size_t i = 0; i < sizeof rgb[f]; i++)
            rgb[f][i] = (uint8_t)rng_next(&r);
        frames[f] = (struct pv_frame){
            .index = f, .time = f, .width = WIDTH, .height = HEIGHT, .rgb = rgb[f]
        };
    }
}

/* Noise whose loudness changes. */
static inline const float *noise_sound(uint64_t seed)
{
    static float samples[SAMPLES];
    struct rng r = { seed ^ 0x5e };
    for (int i = 0; i < SAMPLES; i++)
        samples[i] = 0.1f * (float)(1 + i / 4000 % 5) * rng_normal(&r);
    return samples;
}

/* A video of noise, which is heard too by models that hear, or a picture. */
static inline enum pv_status add_media(pv_session *s, uint64_t seed, bool picture,
                                       struct pv_error *err)
{
    static struct pv_frame frames[FRAMES];
    static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
    struct pv_video_params v = pv_video_defaults();
    noise_frames(frames, rgb, seed);
    v.max_pixels = 56 * 56;
    if (pv_model_has_audio(s->model)) {
        v.samples = noise_sound(seed);
        v.n_samples = SAMPLES;
    }
    return pv_add_frames(s, frames, picture ? 1 : FRAMES, picture ? 0 : 2, &v, err);
}

static inline enum pv_status add_prompt(pv_session *s, uint64_t seed, struct pv_error *err)
{
    enum pv_status st = add_media(s, seed, false, err);
    return st ? st : pv_add_text(s, "user", "what is the dog", err);
}

/* ---- one answer, with all that must be equal ---- */

struct answer {
    size_t n, n_shown;
    int32_t ids[N_NEW];
    float logits[N_NEW + 1][MAX_VOCAB];
    struct pv_stats stats;
};

static inline int vocab_of(const pv_session *s)
{
    return pv_model_vocab_size(s->model);
}

static inline void show(void *user, int token, const float *logits)
{
    struct {
        struct answer *a;
        int vocab;
    } *u = user;
    if (token > N_NEW)
        return;
    memcpy(u->a->logits[token], logits, (size_t)u->vocab * sizeof *logits);
    if ((size_t)token + 1 > u->a->n_shown)
        u->a->n_shown = (size_t)token + 1;
}

static inline struct pv_gen_params gen_params(float temperature)
{
    struct pv_gen_params p = pv_gen_defaults();
    p.max_new_tokens = N_NEW;
    p.ignore_stop = true;
    p.temperature = temperature;
    p.top_p = temperature > 0 ? 0.9f : 1;
    p.seed = 11;
    return p;
}

static inline enum pv_status generate(pv_session *s, const struct pv_method *m, float temperature,
                                      struct answer *a, struct pv_error *err)
{
    struct {
        struct answer *a;
        int vocab;
    } user = { a, vocab_of(s) };
    struct pv_gen_params p = gen_params(temperature);
    const int32_t *ids;
    enum pv_status st;
    memset(a, 0, sizeof *a);
    s->observer = (struct logits_observer){ show, &user };
    p.method = m;
    st = pv_generate(s, &p, NULL, NULL, err);
    s->observer = (struct logits_observer){ 0 };
    ids = pv_session_answer(s, &a->n);
    memcpy(a->ids, ids, a->n * sizeof *ids);
    a->stats.size = sizeof a->stats;
    pv_session_stats(s, &a->stats);
    return st;
}

static inline struct answer run(pv_session *s, const struct pv_method *m, float temperature)
{
    static struct answer a;
    struct pv_error err = { 0 };
    pv_session_reset(s);
    CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(generate(s, m, temperature, &a, &err) == PV_OK, "%s", err.text);
    return a;
}

/* The keys and values that the pool keeps of a session's rows; given back by cache_close. */
static inline void cache_open(const pv_session *s, struct kvcache *kv)
{
    CHECK(!kvcache_attach(kv, s->engine->pool, s->seq.line.context, NULL));
    kvcache_adopt(kv, s->target.base.work, s->seq.digest, s->seq.n_kv_ids);
    CHECK_EQ(kv->len, s->seq.n_kv_ids);
}

static inline void cache_close(const pv_session *s, struct kvcache *kv)
{
    kvcache_release(kv, s->seq.digest);
    kvcache_close(kv);
}

/* Bits of the keys and values of all rows that ran. */
static inline bool same_rows(const pv_session *a, const pv_session *b)
{
    struct kvcache x, y;
    bool same;
    cache_open(a, &x);
    cache_open(b, &y);
    same = x.len == y.len && kv_range(&x, &y, 0, x.len, false);
    cache_close(a, &x);
    cache_close(b, &y);
    return same;
}

static inline bool same_cache(const pv_session *a, const pv_session *b)
{
    return a->seq.n_kv_ids == b->seq.n_kv_ids &&
           memcmp(a->seq.kv_ids, b->seq.kv_ids, (size_t)a->seq.n_kv_ids * sizeof *a->seq.kv_ids) ==
               0 &&
           same_rows(a, b);
}

static inline bool same_answer(const struct answer *a, const struct answer *b, int vocab)
{
    if (a->n != b->n || memcmp(a->ids, b->ids, a->n * sizeof *a->ids) != 0)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(a->logits[i], b->logits[i], (size_t)vocab * sizeof(float)) != 0)
            return false;
    return a->n_shown >= a->n && b->n_shown >= b->n;
}

/* ---- methods ---- */

static inline struct pv_method method(enum pv_drafter drafter, const char *view,
                                      enum pv_shape shape)
{
    return (struct pv_method){ .size = sizeof(struct pv_method),
                               .name = "test",
                               .drafter = drafter,
                               .view = view,
                               .shape = shape,
                               .ratio = 0.7,
                               .window = 4,
                               .total = 20,
                               .depth = 3,
                               .width = 4,
                               .keep = 60 };
}

#endif
