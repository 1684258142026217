/* The lossless matrix: every drafter, view, shape, temperature and number of threads gives the ids
 * of plain decoding, the same bits of the logits that chose them, and a cache that equals the one
 * of a fresh run. Models are tiny and random, so drafts are often wrong, and a wrong commit shows.
 */
#include "base/rng.h"
#include "engine/session.h"
#include "test.h"

#include <string.h>

enum { FRAMES = 5, HEIGHT = 40, WIDTH = 56, N_NEW = 20, MAX_VOCAB = 400, CONTEXT = 768 };

static const char *const families[] = { "tests/golden/llava_onevision",
                                        "tests/golden/qwen2_5_vl_video" };

/* ---- models and prompts ---- */

struct pair {
    pv_model *target, *draft;
};

static pv_model *open_model(const char *path, int threads, pv_model *beside)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.threads = threads;
    p.beside = beside;
    CHECK_MSG(pv_model_open(&m, &p, &err) == PV_OK, "%s", err.text);
    return m;
}

static struct pair open_pair(const char *path, int threads)
{
    struct pair p;
    p.target = open_model(path, threads, NULL);
    p.draft = open_model(path, threads, p.target);
    return p;
}

static void close_pair(struct pair *p)
{
    pv_model_close(&p->draft);
    pv_model_close(&p->target);
}

static pv_session *open_session(const struct pair *p)
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

/* A video of noise, or a picture. */
static enum pv_status add_medium(pv_session *s, uint64_t seed, bool picture, struct pv_error *err)
{
    static struct pv_frame frames[FRAMES];
    static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
    struct pv_video_params v = pv_video_defaults();
    struct rng r = { seed };
    for (int f = 0; f < FRAMES; f++) {
        for (size_t i = 0; i < sizeof rgb[f]; i++)
            rgb[f][i] = (uint8_t)rng_next(&r);
        frames[f] = (struct pv_frame){
            .index = f, .time = f, .width = WIDTH, .height = HEIGHT, .rgb = rgb[f]
        };
    }
    v.max_pixels = 56 * 56;
    return pv_add_frames(s, frames, picture ? 1 : FRAMES, picture ? 0 : 2, &v, err);
}

static enum pv_status add_prompt(pv_session *s, uint64_t seed, struct pv_error *err)
{
    enum pv_status st = add_medium(s, seed, false, err);
    return st ? st : pv_add_text(s, "user", "what is the dog", err);
}

/* ---- one answer, with all that must be equal ---- */

struct answer {
    size_t n, n_shown;
    int32_t ids[N_NEW];
    float logits[N_NEW + 1][MAX_VOCAB];
    struct pv_stats stats;
};

static int vocab_of(const pv_session *s)
{
    return pv_model_vocab_size(s->model);
}

static void show(void *user, int token, const float *logits)
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

static struct pv_gen_params gen_params(float temperature)
{
    struct pv_gen_params p = pv_gen_defaults();
    p.max_new_tokens = N_NEW;
    p.ignore_stop = true;
    p.temperature = temperature;
    p.top_p = temperature > 0 ? 0.9f : 1;
    p.seed = 11;
    return p;
}

static enum pv_status generate(pv_session *s, const struct pv_method *m, float temperature,
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
    pv_session_stats(s, &a->stats);
    return st;
}

static struct answer run(pv_session *s, const struct pv_method *m, float temperature)
{
    static struct answer a;
    struct pv_error err = { 0 };
    pv_session_reset(s);
    CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(generate(s, m, temperature, &a, &err) == PV_OK, "%s", err.text);
    return a;
}

/* Bits of slots [0, len) of one layer: K by slots, V by chunks with slots along the rows. */
static bool same_layer(const struct kv_layer *a, const struct kv_layer *b, int len)
{
    const float *ka = a->k, *kb = b->k, *va = a->v, *vb = b->v;
    for (int h = 0; h < a->n_kv; h++) {
        size_t at_a = (size_t)h * (size_t)a->cap * (size_t)a->d;
        size_t at_b = (size_t)h * (size_t)b->cap * (size_t)b->d;
        if (memcmp(ka + at_a, kb + at_b, sizeof(float) * (size_t)len * (size_t)a->d) != 0)
            return false;
        for (int slot = 0; slot < len; slot++)
            for (int i = 0; i < a->d; i++) {
                size_t in = (size_t)(slot / KV_CHUNK) * (size_t)a->d * KV_CHUNK +
                            (size_t)i * KV_CHUNK + (size_t)(slot % KV_CHUNK);
                if (memcmp(va + at_a + in, vb + at_b + in, sizeof(float)) != 0)
                    return false;
            }
    }
    return true;
}

static bool same_cache(const pv_session *a, const pv_session *b)
{
    bool same = a->kv.len == b->kv.len &&
                memcmp(a->kv_ids, b->kv_ids, (size_t)a->kv.len * sizeof *a->kv_ids) == 0;
    for (int l = 0; l < a->kv.n_layers && same; l++)
        same = same_layer(&a->kv.layer[l], &b->kv.layer[l], a->kv.len);
    return same;
}

static bool same_answer(const struct answer *a, const struct answer *b, int vocab)
{
    if (a->n != b->n || memcmp(a->ids, b->ids, a->n * sizeof *a->ids) != 0)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(a->logits[i], b->logits[i], (size_t)vocab * sizeof(float)) != 0)
            return false;
    return a->n_shown >= a->n && b->n_shown >= b->n;
}

/* ---- the matrix ---- */

static struct pv_method method(enum pv_drafter drafter, const char *view, enum pv_shape shape)
{
    return (struct pv_method){ .name = "test",
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

struct bench {
    struct pair pair;
    pv_session *plain, *tried;
    struct answer ref;
    int64_t accepted, rejections;
};

static void check_method(struct bench *b, const struct pv_method *m, float temperature)
{
    struct answer a = run(b->tried, m, temperature);
    b->accepted += a.stats.accepted;
    b->rejections += a.stats.rejections;
    CHECK_MSG(same_answer(&b->ref, &a, vocab_of(b->tried)),
              "drafter %d view %s shape %d temperature %g: other tokens or logits", (int)m->drafter,
              m->view, (int)m->shape, (double)temperature);
    CHECK_MSG(same_cache(b->plain, b->tried),
              "drafter %d view %s shape %d temperature %g: another cache", (int)m->drafter, m->view,
              (int)m->shape, (double)temperature);
}

static void check_drafters(struct bench *b, enum pv_shape shape, float temperature)
{
    static const enum pv_drafter kinds[] = { PV_DRAFT_SPARSE, PV_DRAFT_NGRAM, PV_DRAFT_RANDOM };
    static const double errors[] = { 0, 0.1, 0.5, 1 };
    struct pv_method m;
    for (int v = 0; pv_view_name(v); v++) {
        m = method(PV_DRAFT_MODEL, pv_view_name(v), shape);
        check_method(b, &m, temperature);
        m.drafter = PV_DRAFT_SELF;
        check_method(b, &m, temperature);
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        m = method(kinds[k], "specvlm", shape);
        check_method(b, &m, temperature);
    }
    m = method(PV_DRAFT_MODEL, "specvlm", shape);
    m.automatic = true;
    check_method(b, &m, temperature);
    m = method(PV_DRAFT_ORACLE, "full", shape);
    m.answer = b->ref.ids;
    m.n_answer = b->ref.n;
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        m.errors = errors[e];
        check_method(b, &m, temperature);
    }
}

static void check_family(const char *path, int threads)
{
    static const float temperatures[] = { 0, 0.8f };
    struct bench b = { .pair = open_pair(path, threads) };
    b.plain = open_session(&b.pair);
    b.tried = open_session(&b.pair);
    for (size_t t = 0; t < 2; t++) {
        b.ref = run(b.plain, NULL, temperatures[t]);
        CHECK_EQ(b.ref.n, N_NEW);
        for (int shape = PV_SHAPE_CHAIN; shape <= PV_SHAPE_DYNAMIC; shape++)
            check_drafters(&b, (enum pv_shape)shape, temperatures[t]);
    }
    CHECK_MSG(b.accepted > 100 && b.rejections > 100, "%lld accepted, %lld rejected",
              (long long)b.accepted, (long long)b.rejections);
    pv_session_close(&b.plain);
    pv_session_close(&b.tried);
    close_pair(&b.pair);
}

TEST(llava_with_one_thread)
{
    check_family(families[0], 1);
}

TEST(llava_with_two_threads)
{
    check_family(families[0], 2);
}

TEST(qwen_with_one_thread)
{
    check_family(families[1], 1);
}

TEST(qwen_with_two_threads)
{
    check_family(families[1], 2);
}

/* ---- ends of answers ---- */

/* Answers of every length end as plain decoding ends them, cache included. */
TEST(every_length)
{
    struct pair p = open_pair(families[0], 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    struct pv_method tree = method(PV_DRAFT_MODEL, "full", PV_SHAPE_TREE);
    for (int n = 1; n <= 14; n++) {
        pv_session *both[2] = { a, b };
        for (int i = 0; i < 2; i++) {
            struct pv_gen_params g = gen_params(0);
            struct pv_error err = { 0 };
            g.max_new_tokens = n;
            g.method = i ? &tree : NULL;
            pv_session_reset(both[i]);
            CHECK_MSG(add_prompt(both[i], 7, &err) == PV_OK, "%s", err.text);
            CHECK_MSG(pv_generate(both[i], &g, NULL, NULL, &err) == PV_OK, "%s", err.text);
            CHECK_EQ(both[i]->n_answer, n);
        }
        CHECK_MSG(same_cache(a, b), "%d tokens: another cache", n);
        CHECK_MSG(memcmp(a->line.ids, b->line.ids, (size_t)a->line.n * sizeof(int32_t)) == 0,
                  "%d tokens: other tokens", n);
    }
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

struct stopper {
    int after;
};

static bool stop_after(void *user, const char *utf8, size_t len)
{
    struct stopper *s = user;
    (void)utf8, (void)len;
    return --s->after > 0;
}

/* An answer stopped by its reader in the middle of a round. */
TEST(every_interruption)
{
    struct pair p = open_pair(families[0], 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    struct pv_method tree = method(PV_DRAFT_MODEL, "full", PV_SHAPE_TREE);
    for (int n = 1; n <= 9; n++) {
        pv_session *both[2] = { a, b };
        for (int i = 0; i < 2; i++) {
            struct pv_gen_params g = gen_params(0);
            struct stopper stop = { n };
            struct pv_error err = { 0 };
            g.method = i ? &tree : NULL;
            pv_session_reset(both[i]);
            CHECK_MSG(add_prompt(both[i], 7, &err) == PV_OK, "%s", err.text);
            CHECK_EQ(pv_generate(both[i], &g, stop_after, &stop, &err), PV_E_CANCELLED);
        }
        CHECK_EQ(a->n_answer, b->n_answer);
        CHECK_MSG(same_cache(a, b), "stopped after %d: another cache", n);
    }
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* A full context is said at the same token. */
TEST(context_runs_full)
{
    struct pair p = open_pair(families[0], 1);
    struct pv_method tree = method(PV_DRAFT_MODEL, "full", PV_SHAPE_TREE);
    struct pv_error err[2] = { { 0 } };
    int told[2];
    for (int i = 0; i < 2; i++) {
        struct pv_session_params sp = pv_session_defaults();
        struct pv_gen_params g = gen_params(0);
        pv_session *s = NULL;
        sp.max_context = 80;
        sp.draft = p.draft;
        CHECK_EQ(pv_session_open(&s, p.target, &sp, &err[i]), PV_OK);
        g.max_new_tokens = 200;
        g.method = i ? &tree : NULL;
        CHECK_MSG(add_prompt(s, 7, &err[i]) == PV_OK, "%s", err[i].text);
        CHECK_EQ(pv_generate(s, &g, NULL, NULL, &err[i]), PV_E_LIMIT);
        told[i] = s->n_answer;
        pv_session_close(&s);
    }
    CHECK_EQ(told[0], told[1]);
    CHECK_MSG(strcmp(err[0].text, err[1].text) == 0, "'%s' and '%s'", err[0].text, err[1].text);
    close_pair(&p);
}

/* A stop token among what was accepted, at every place of the answer. */
TEST(every_stop)
{
    struct pair p = open_pair(families[0], 1);
    pv_session *a = open_session(&p), *b = open_session(&p), *both[2] = { a, b };
    struct config *c = (struct config *)decoder_config(p.target->dec);
    struct pv_method tree = method(PV_DRAFT_MODEL, "full", PV_SHAPE_TREE);
    struct answer free = run(a, NULL, 0);
    int64_t accepted = 0;
    for (size_t at = 0; at < free.n; at++) {
        c->n_stop = 1;
        c->stop[0] = free.ids[at];
        for (int i = 0; i < 2; i++) {
            struct pv_gen_params g = gen_params(0);
            struct pv_error err = { 0 };
            struct pv_stats stats;
            g.ignore_stop = false;
            g.method = i ? &tree : NULL;
            pv_session_reset(both[i]);
            CHECK_MSG(add_prompt(both[i], 7, &err) == PV_OK, "%s", err.text);
            CHECK_MSG(pv_generate(both[i], &g, NULL, NULL, &err) == PV_OK, "%s", err.text);
            pv_session_stats(both[i], &stats);
            CHECK(stats.accepted <= stats.tokens);
            accepted += stats.accepted;
        }
        CHECK_EQ(a->n_answer, b->n_answer);
        CHECK((size_t)a->n_answer <= at);
        CHECK_MSG(same_cache(a, b), "stop at %zu: another cache", at);
    }
    CHECK(accepted > 0);
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* A context that the answer fills to the last slot: a tree must not ask for more. */
TEST(context_just_fits)
{
    static const enum pv_drafter kinds[] = { PV_DRAFT_RANDOM, PV_DRAFT_MODEL, PV_DRAFT_NGRAM };
    struct pair p = open_pair(families[0], 1);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct pv_method m = method(kinds[k], "none", PV_SHAPE_TREE);
        struct pv_session_params sp = pv_session_defaults();
        struct pv_gen_params g = gen_params(0);
        struct pv_error err = { 0 };
        pv_session *s = NULL;
        sp.max_context = 103;
        sp.draft = p.draft;
        g.method = &m;
        CHECK_EQ(pv_session_open(&s, p.target, &sp, &err), PV_OK);
        CHECK_EQ(pv_add_ids(s, (const int32_t[]){ 1, 2, 3 }, 3, &err), PV_OK);
        g.max_new_tokens = 100;
        CHECK_MSG(pv_generate(s, &g, NULL, NULL, &err) == PV_OK, "%s", err.text);
        CHECK_EQ(s->n_answer, 100);
        pv_session_close(&s);
    }
    close_pair(&p);
}

/* One clip twice, side by side: equal media have equal keys. And a picture beside a video. */
TEST(several_media)
{
    static const enum pv_drafter kinds[] = { PV_DRAFT_SELF, PV_DRAFT_MODEL, PV_DRAFT_SPARSE };
    struct pair p = open_pair(families[0], 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    for (int mix = 0; mix < 2; mix++)
        for (size_t k = 0; k <= sizeof kinds / sizeof *kinds; k++) {
            pv_session *s = k ? b : a;
            struct pv_method m = method(kinds[k ? k - 1 : 0], "specvlm", PV_SHAPE_CHAIN);
            static struct answer said[2];
            struct pv_error err = { 0 };
            pv_session_reset(s);
            for (int i = 0; i < 2; i++)
                CHECK_MSG(add_medium(s, 7, mix == 1 && i == 1, &err) == PV_OK, "%s", err.text);
            CHECK_MSG(pv_add_text(s, "user", "what is the dog", &err) == PV_OK, "%s", err.text);
            CHECK_MSG(generate(s, k ? &m : NULL, 0.8f, &said[k > 0], &err) == PV_OK, "%s",
                      err.text);
            CHECK(k == 0 || same_answer(&said[0], &said[1], vocab_of(a)));
            CHECK(k == 0 || same_cache(a, b));
        }
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* The largest dynamic tree there is. */
TEST(largest_dynamic_tree)
{
    struct pair p = open_pair(families[0], 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_DYNAMIC);
    struct answer ref = run(a, NULL, 0), got;
    m.total = 64;
    m.depth = 31;
    m.width = 16;
    got = run(b, &m, 0);
    CHECK(same_answer(&ref, &got, vocab_of(a)));
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* A second question in the same session. */
TEST(two_turns)
{
    struct pair p = open_pair(families[1], 1);
    pv_session *a = open_session(&p), *b = open_session(&p), *both[2] = { a, b };
    struct pv_method m = method(PV_DRAFT_MODEL, "specvlm", PV_SHAPE_TREE);
    static struct answer said[2][2];
    for (int i = 0; i < 2; i++) {
        struct pv_error err = { 0 };
        said[0][i] = run(both[i], i ? &m : NULL, 0.8f);
        CHECK_MSG(pv_add_text(both[i], "user", "who moves left", &err) == PV_OK, "%s", err.text);
        CHECK_MSG(generate(both[i], i ? &m : NULL, 0.8f, &said[1][i], &err) == PV_OK, "%s",
                  err.text);
    }
    for (int turn = 0; turn < 2; turn++)
        CHECK(same_answer(&said[turn][0], &said[turn][1], vocab_of(a)));
    CHECK(same_cache(a, b));
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* ---- what is refused ---- */

static void refuse(pv_session *s, struct pv_method m, const char *words)
{
    struct pv_gen_params g = gen_params(0.5f);
    struct pv_error err = { 0 };
    pv_session_reset(s);
    CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
    g.method = &m;
    CHECK_EQ(pv_generate(s, &g, NULL, NULL, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, words) != NULL, "'%s'", err.text);
}

TEST(wrong_methods)
{
    struct pair p = open_pair(families[0], 1);
    pv_session *s = open_session(&p);
    struct pv_method m = method(PV_DRAFT_MODEL, "no-such", PV_SHAPE_CHAIN);
    refuse(s, m, "no view 'no-such'");
    m = method(PV_DRAFT_MODEL, "random", PV_SHAPE_CHAIN);
    m.ratio = 2;
    refuse(s, m, "ratio of 2");
    m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    m.window = 1000;
    refuse(s, m, "1000");
    m = method(PV_DRAFT_NGRAM, "full", PV_SHAPE_CHAIN);
    m.accept = PV_ACCEPT_REJECTION;
    refuse(s, m, "rejection");
    m = method((enum pv_drafter)77, "full", PV_SHAPE_CHAIN);
    refuse(s, m, "drafter 77");
    m = method(PV_DRAFT_MODEL, "full", (enum pv_shape)9);
    refuse(s, m, "shape 9");
    m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    m.accept = (enum pv_accept)5;
    refuse(s, m, "acceptance");
    m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_DYNAMIC);
    m.width = 17;
    refuse(s, m, "width 17");
    /* The session is as it was: it answers. */
    m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    CHECK_EQ(run(s, &m, 0).n, N_NEW);
    pv_session_close(&s);
    close_pair(&p);
}

TEST(presets)
{
    struct pv_method m;
    struct pv_error err = { 0 };
    int n = 0;
    for (; pv_method_name(n); n++) {
        CHECK_EQ(pv_method_find(&m, pv_method_name(n), &err), PV_OK);
        CHECK(strcmp(m.name, pv_method_name(n)) == 0);
    }
    CHECK(n >= 12);
    CHECK_EQ(pv_method_find(&m, "no-such", &err), PV_E_ARG);
    CHECK(strstr(err.text, "specvlm") != NULL);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
