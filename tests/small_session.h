/* A tiny model and sessions on it through the public header: for tests of sessions. */
#ifndef PV_TESTS_SMALL_SESSION_H
#define PV_TESTS_SMALL_SESSION_H

#include "base/utf8.h"
#include "rig.h"
#include "tiny_model.h"

enum { VOCAB = 272, N_PROMPT = 30, N_NEW = 24 };

static const struct tiny_model small = { .arch = "qwen2",
                                         .hidden = 64,
                                         .n_layers = 2,
                                         .n_heads = 4,
                                         .n_kv = 2,
                                         .head_dim = 16,
                                         .ffn = 160,
                                         .vocab = VOCAB,
                                         .type = DTYPE_Q8_0,
                                         .untied = true,
                                         .seed = 3 };

static inline const char *path_of(bool tokenizer, int eos)
{
    static char path[256];
    struct tiny_model m = small;
    m.tokenizer = tokenizer;
    m.eos = eos;
    return tiny_model_write(&m, tokenizer ? "words" : "ids", path);
}

static inline pv_model *open_model(const char *path, int threads)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.threads = threads;
    CHECK_MSG(pv_model_open(&m, &p, &err) == PV_OK, "%s", err.text);
    return m;
}

static inline pv_session *open_session(pv_model *m, int context, int chunk)
{
    struct pv_session_params p = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    p.max_context = context;
    p.chunk = chunk;
    p.kv_type = PV_KV_BF16;
    CHECK_MSG(pv_session_open(&s, m, &p, &err) == PV_OK, "%s", err.text);
    return s;
}

static inline void make_prompt(int32_t *ids, int n, uint64_t seed)
{
    struct rng r = { seed };
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_next(&r) % 256);
}

/* Text of an answer as it comes, in order; stops after `stop_after` calls when that is not 0. */
struct heard {
    char text[4096];
    size_t len;
    int calls, stop_after;
};

static inline bool hear(void *user, const char *utf8, size_t len)
{
    struct heard *h = user;
    CHECK(h->len + len < sizeof h->text);
    CHECK_MSG(utf8_valid(utf8, len), "a call with half a character");
    memcpy(h->text + h->len, utf8, len);
    h->len += len;
    h->text[h->len] = 0;
    return ++h->calls != h->stop_after;
}

static inline struct pv_gen_params greedy(int n)
{
    struct pv_gen_params p = pv_gen_defaults();
    p.max_new_tokens = n;
    p.ignore_stop = true;
    return p;
}

static inline struct pv_gen_params sampled(int n, uint64_t seed)
{
    struct pv_gen_params p = greedy(n);
    p.temperature = 1.5f;
    p.top_k = 100;
    p.top_p = 0.95f;
    p.seed = seed;
    return p;
}

/* Generate; the answer's ids go to out [n]. */
static inline int answer(pv_session *s, struct pv_gen_params p, int32_t *out)
{
    struct pv_error err = { 0 };
    size_t n = 0;
    CHECK_MSG(pv_generate(s, &p, NULL, NULL, &err) == PV_OK, "%s", err.text);
    const int32_t *ids = pv_session_answer(s, &n);
    if (!CHECK((int)n <= p.max_new_tokens))
        return 0;
    memcpy(out, ids, n * sizeof *ids);
    return (int)n;
}

/* The answer of a fresh session to these ids. */
static inline int fresh_answer(pv_model *m, const int32_t *ids, int n, struct pv_gen_params p,
                               int32_t *out)
{
    pv_session *s = open_session(m, 512, 0);
    CHECK_EQ(pv_add_ids(s, ids, (size_t)n, NULL), PV_OK);
    n = answer(s, p, out);
    pv_session_close(&s);
    return n;
}

static inline bool same_ids(const int32_t *a, const int32_t *b, int n)
{
    return memcmp(a, b, sizeof *a * (size_t)n) == 0;
}

static inline void refuse_generate(pv_session *s, struct pv_gen_params p, enum pv_status code,
                                   const char *word)
{
    struct pv_error err = { 0 };
    enum pv_status st = pv_generate(s, &p, NULL, NULL, &err);
    CHECK_MSG(st == code && err.code == code, "%s for \"%s\"", pv_status_name(st), word);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
}

#endif
