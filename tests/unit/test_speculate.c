/* The lossless matrix: every drafter, view, shape, temperature and number of threads gives the ids
 * of plain decoding, the same bits of the logits that chose them, and a cache that equals the one
 * of a fresh run. Models are tiny and random, so drafts are often wrong, and a wrong commit shows.
 */
#include "answers.h"
#include "engine/speculate.h"
#include "family/families.h"
#include "prevue/testing.h"

static const char *const seeing[] = { "tests/golden/llava_onevision",
                                      "tests/golden/qwen2_5_vl_video",
                                      "tests/golden/qwen2_vl_video",
                                      "tests/golden/qwen3_vl_video" };

/* ---- the matrix ---- */

struct bench {
    struct pair pair;
    pv_session *plain, *tried;
    struct answer ref;
    int64_t accepted, rejections;
    bool text; /* the prompt has no video */
};

/* An answer to a prompt of text alone. */
static struct answer run_text(pv_session *s, const struct pv_method *m, float temperature)
{
    static struct answer a;
    int32_t ids[50];
    struct pv_error err = { 0 };
    for (int i = 0; i < 50; i++)
        ids[i] = (i * 37 + 11) % 90 + i / 40;
    pv_session_reset(s);
    CHECK_MSG(pv_add_ids(s, ids, 50, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(generate(s, m, temperature, &a, &err) == PV_OK, "%s", err.text);
    return a;
}

static void check_method(struct bench *b, const struct pv_method *m, float temperature)
{
    struct answer a = b->text ? run_text(b->tried, m, temperature) : run(b->tried, m, temperature);
    b->accepted += a.stats.accepted;
    b->rejections += a.stats.rejections;
    CHECK_MSG(same_answer(&b->ref, &a, vocab_of(b->tried)),
              "drafter %d view %s shape %d temperature %g: other tokens or logits", (int)m->drafter,
              m->view, (int)m->shape, (double)temperature);
    CHECK_MSG(same_cache(b->plain, b->tried),
              "drafter %d view %s shape %d temperature %g: another cache", (int)m->drafter, m->view,
              (int)m->shape, (double)temperature);
}

/* In brief, each view has one shape at each temperature. */
static bool is_tried(int view, enum pv_shape shape, float temperature)
{
    return !test_brief() || view % 4 == ((int)shape + (temperature > 0)) % 4;
}

static void check_views(struct bench *b, enum pv_shape shape, float temperature)
{
    for (int v = 0; pv_view_name(v); v++) {
        struct pv_method m = method(PV_DRAFT_MODEL, pv_view_name(v), shape);
        if (!is_tried(v, shape, temperature))
            continue;
        check_method(b, &m, temperature);
    }
}

static void check_drafters(struct bench *b, enum pv_shape shape, float temperature)
{
    static const enum pv_drafter kinds[] = { PV_DRAFT_SPARSE, PV_DRAFT_NGRAM, PV_DRAFT_RANDOM };
    static const double errors[] = { 0, 0.1, 0.5, 1 };
    struct pv_method_test test;
    struct pv_method m = { .size = sizeof m };
    check_views(b, shape, temperature);
    for (int v = 0; pv_view_name(v); v++) {
        m = method(PV_DRAFT_SELF, pv_view_name(v), shape);
        if (!is_tried(v, shape, temperature))
            continue;
        check_method(b, &m, temperature);
    }
    m = method(PV_DRAFT_MODEL, "specvlm", shape);
    m.automatic = true;
    check_method(b, &m, temperature);
    if (shape == PV_SHAPE_FITTED) /* the others have no probabilities */
        return;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        m = method(kinds[k], "specvlm", shape);
        check_method(b, &m, temperature);
    }
    m = method(PV_DRAFT_ORACLE, "full", shape);
    m.test = &test;
    test = (struct pv_method_test){ .answer = b->ref.ids, .n_answer = b->ref.n };
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        test.errors = errors[e];
        check_method(b, &m, temperature);
    }
}

static void check_pair(struct pair pair, void (*check)(struct bench *, enum pv_shape, float))
{
    static const float temperatures[] = { 0, 0.8f };
    struct bench b = { .pair = pair };
    b.plain = open_session(&b.pair);
    b.tried = open_session(&b.pair);
    for (size_t t = TEST_BRIEF; t < 2; t++) {
        b.ref = run(b.plain, NULL, temperatures[t]);
        CHECK_EQ(b.ref.n, N_NEW);
        for (int shape = PV_SHAPE_CHAIN; shape <= PV_SHAPE_FITTED; shape++)
            check(&b, (enum pv_shape)shape, temperatures[t]);
    }
    CHECK_MSG(b.accepted > (test_brief() ? 10 : 100) && b.rejections > (test_brief() ? 10 : 100),
              "%lld accepted, %lld rejected", (long long)b.accepted, (long long)b.rejections);
    pv_session_close(&b.plain);
    pv_session_close(&b.tried);
    close_pair(&b.pair);
}

/* A target with experts, and a draft model with others: the rows of a tree use different experts.
 */
static void check_experts(const char *arch, enum dtype type, int threads)
{
    static const struct tiny_experts experts = { .n = 6, .used = 2, .ffn = 64, .dense = 1 };
    static const enum pv_drafter kinds[] = { PV_DRAFT_MODEL, PV_DRAFT_SELF, PV_DRAFT_NGRAM,
                                             PV_DRAFT_RANDOM };
    struct tiny_model t = { .arch = arch,
                            .hidden = 64,
                            .n_layers = 3,
                            .n_heads = 2,
                            .n_kv = 1,
                            .head_dim = 32,
                            .ffn = 96,
                            .vocab = 96,
                            .type = (int)type,
                            .seed = 5,
                            .experts = &experts };
    struct bench b = { .text = true };
    char path[256];
    tiny_model_write(&t, "experts", path);
    b.pair = open_pair(path, threads);
    b.plain = open_session(&b.pair);
    b.tried = open_session(&b.pair);
    for (int k = 0; k < 2; k++) {
        float temperature = k ? 0.8f : 0;
        b.ref = run_text(b.plain, NULL, temperature);
        CHECK_EQ(b.ref.n, N_NEW);
        for (int shape = PV_SHAPE_CHAIN; shape <= PV_SHAPE_FITTED; shape++)
            for (size_t i = 0; i < (shape == PV_SHAPE_FITTED ? 2 : 4); i++) {
                struct pv_method m = method(kinds[i], "full", (enum pv_shape)shape);
                check_method(&b, &m, temperature);
            }
    }
    CHECK_MSG(b.accepted > 100 && b.rejections > 20, "%lld accepted, %lld rejected",
              (long long)b.accepted, (long long)b.rejections);
    pv_session_close(&b.plain);
    pv_session_close(&b.tried);
    close_pair(&b.pair);
}

TEST(experts_with_one_thread)
{
    check_experts("qwen3moe", DTYPE_F32, 1);
}

TEST(experts_with_two_threads)
{
    check_experts("qwen3vlmoe", DTYPE_Q8_0, 2);
}

/* A model that hears and drafts for itself: rows of one tower and one audio encoder. */
static struct pair open_audio_encoder(int threads)
{
    struct tiny_vision m = tiny_vision(&family_salmonn2_plus);
    char path[256];
    return open_pair(tiny_vision_gguf(&m, "hears", path), threads);
}

/* The draft model is another one: some of its drafts are right, and the video's rows are its own
 * tower's. */
TEST(llava_with_another_model)
{
    check_pair(open_unlike(&family_llava_onevision, 1), check_views);
}

TEST(qwen_with_another_model)
{
    check_pair(open_unlike(&family_qwen2_5_vl, 1), check_views);
}

TEST(qwen2_with_another_model)
{
    check_pair(open_unlike(&family_qwen2_vl, 1), check_views);
}

/* Rows with deepstack vectors, and text between the runs of a video. */
TEST(qwen3_with_another_model)
{
    check_pair(open_unlike(&family_qwen3_vl, 1), check_views);
}

/* Sound between the pictures, which views leave whole, and a drafter with ears of its own. */
TEST(salmonn_with_another_model)
{
    check_pair(open_unlike(&family_salmonn2_plus, 1), check_views);
}

TEST(salmonn_with_one_thread)
{
    check_pair(open_audio_encoder(1), check_drafters);
}

TEST(llava_with_one_thread)
{
    check_pair(open_pair(seeing[0], 1), check_drafters);
}

TEST(llava_with_two_threads)
{
    check_pair(open_pair(seeing[0], 2), check_drafters);
}

TEST(qwen_with_one_thread)
{
    check_pair(open_pair(seeing[1], 1), check_drafters);
}

TEST(qwen_with_two_threads)
{
    check_pair(open_pair(seeing[1], 2), check_drafters);
}

TEST(qwen2_with_one_thread)
{
    check_pair(open_pair(seeing[2], 1), check_drafters);
}

TEST(qwen3_with_one_thread)
{
    check_pair(open_pair(seeing[3], 1), check_drafters);
}

TEST(qwen3_with_two_threads)
{
    check_pair(open_pair(seeing[3], 2), check_drafters);
}

/* ---- ends of answers ---- */

/* Answers of every length end as plain decoding ends them, cache included. */
TEST(every_length)
{
    struct pair p = open_pair(seeing[0], 1);
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
            CHECK_EQ(both[i]->answer.n, n);
        }
        CHECK_MSG(same_cache(a, b), "%d tokens: another cache", n);
        CHECK_MSG(
            memcmp(a->seq.line.ids, b->seq.line.ids, (size_t)a->seq.line.n * sizeof(int32_t)) == 0,
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
    struct pair p = open_pair(seeing[0], 1);
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
        CHECK_EQ(a->answer.n, b->answer.n);
        CHECK_MSG(same_cache(a, b), "stopped after %d: another cache", n);
    }
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* A full context is said at the same token. */
TEST(context_runs_full)
{
    struct pair p = open_pair(seeing[0], 1);
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
        told[i] = s->answer.n;
        pv_session_close(&s);
    }
    CHECK_EQ(told[0], told[1]);
    CHECK_MSG(strcmp(err[0].text, err[1].text) == 0, "'%s' and '%s'", err[0].text, err[1].text);
    close_pair(&p);
}

/* A stop token among what was accepted, at every place of the answer. */
TEST(every_stop)
{
    struct pair p = open_pair(seeing[0], 1);
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
            struct pv_stats stats = { .size = sizeof stats };
            g.ignore_stop = false;
            g.method = i ? &tree : NULL;
            pv_session_reset(both[i]);
            CHECK_MSG(add_prompt(both[i], 7, &err) == PV_OK, "%s", err.text);
            CHECK_MSG(pv_generate(both[i], &g, NULL, NULL, &err) == PV_OK, "%s", err.text);
            pv_session_stats(both[i], &stats);
            CHECK(stats.accepted <= stats.tokens);
            CHECK_MSG(i ? stats.passes <= stats.tokens : stats.passes == stats.tokens,
                      "stop at %zu: %d tokens in %d passes", at, (int)stats.tokens,
                      (int)stats.passes);
            accepted += stats.accepted;
        }
        CHECK_EQ(a->answer.n, b->answer.n);
        CHECK((size_t)a->answer.n <= at);
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
    struct pair p = open_pair(seeing[0], 1);
    for (size_t k = 0; k <= sizeof kinds / sizeof *kinds; k++) {
        bool fitted = k == sizeof kinds / sizeof *kinds;
        struct pv_method m = method(fitted ? PV_DRAFT_MODEL : kinds[k], "none",
                                    fitted ? PV_SHAPE_FITTED : PV_SHAPE_TREE);
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
        CHECK_EQ(s->answer.n, 100);
        pv_session_close(&s);
    }
    close_pair(&p);
}

/* One clip twice, side by side: equal media have equal keys. And a picture beside a video. */
TEST(several_media)
{
    static const enum pv_drafter kinds[] = { PV_DRAFT_SELF, PV_DRAFT_MODEL, PV_DRAFT_SPARSE };
    struct pair p = open_pair(seeing[0], 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    for (int mix = 0; mix < 2; mix++)
        for (size_t k = 0; k <= sizeof kinds / sizeof *kinds; k++) {
            pv_session *s = k ? b : a;
            struct pv_method m = method(kinds[k ? k - 1 : 0], "specvlm", PV_SHAPE_CHAIN);
            static struct answer said[2];
            struct pv_error err = { 0 };
            pv_session_reset(s);
            for (int i = 0; i < 2; i++)
                CHECK_MSG(add_media(s, 7, mix == 1 && i == 1, &err) == PV_OK, "%s", err.text);
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
    struct pair p = open_pair(seeing[0], 1);
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

/* Trees that the clock shapes: of every bound, over several answers of a session, of every length,
 * and where the sizes are the engine's own. */
TEST(fitted_trees)
{
    static const int sizes[][3] = { { 64, 31, 16 }, { 0, 0, 0 }, { 2, 1, 1 }, { 5, 4, 1 } };
    struct pair p = open_unlike(&family_llava_onevision, 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_FITTED);
        m.total = sizes[i][0];
        m.depth = sizes[i][1];
        m.width = sizes[i][2];
        for (int drawn = 0; drawn < 2; drawn++) {
            struct answer ref = run(a, NULL, drawn ? 0.8f : 0), got = run(b, &m, drawn ? 0.8f : 0);
            CHECK_MSG(same_answer(&ref, &got, vocab_of(a)) && same_cache(a, b), "bounds %zu", i);
            CHECK(got.stats.rounds > 0 && got.stats.draft_rows > 0);
        }
    }
    for (int n = 1; n <= 14; n++)
        for (int i = 0; i < 2; i++) {
            struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_FITTED);
            struct pv_gen_params g = gen_params(0);
            struct pv_error err = { 0 };
            g.max_new_tokens = n;
            g.method = i ? &m : NULL;
            pv_session_reset(i ? b : a);
            CHECK_MSG(add_prompt(i ? b : a, 7, &err) == PV_OK, "%s", err.text);
            CHECK_MSG(pv_generate(i ? b : a, &g, NULL, NULL, &err) == PV_OK, "%s", err.text);
            CHECK(i == 0 || (b->answer.n == n && same_cache(a, b)));
        }
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* A second question in the same session. */
TEST(two_turns)
{
    struct pair p = open_pair(seeing[1], 1);
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

/* ---- the drafter's prefill ---- */

struct stopper_of_drafts {
    int after, calls;
    int64_t done, total;
};

/* Stops at the n-th call about the drafter. */
static bool stop_drafts(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    struct stopper_of_drafts *s = user;
    if (phase != PV_PHASE_DRAFT_PREFILL)
        return true;
    s->done = done;
    s->total = total;
    return ++s->calls < s->after;
}

/* Told of every chunk; stopped after any of them, the session is as before, and answers. */
TEST(a_drafter_can_be_stopped_while_it_reads)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_TREE);
    struct answer ref = run(a, NULL, 0), got;
    int calls = 2;
    for (int after = 1; after < calls; after++) {
        struct stopper_of_drafts stop = { .after = after }, told = { .after = 1000 };
        struct pv_gen_params g = gen_params(0);
        struct pv_error err = { 0 };
        int rows;
        g.method = &m;
        g.progress = stop_drafts;
        g.progress_user = &stop;
        pv_session_close(&b);
        b = open_session(&p);
        CHECK_MSG(add_prompt(b, 7, &err) == PV_OK, "%s", err.text);
        rows = b->seq.line.n;
        CHECK_EQ(pv_generate(b, &g, NULL, NULL, &err), PV_E_CANCELLED);
        CHECK_MSG(strstr(err.text, "of the drafter's") != NULL, "'%s'", err.text);
        CHECK(stop.calls == after && stop.done < stop.total && b->seq.line.n == rows);
        CHECK(b->messages && b->answer.n == 0);
        /* What was read is not read again. */
        g.progress_user = &told;
        CHECK_MSG(pv_generate(b, &g, NULL, NULL, &err) == PV_OK, "%s", err.text);
        CHECK(told.done == told.total);
        calls = calls < told.calls + after + 1 ? told.calls + after : calls;
        got = run(b, &m, 0);
        CHECK(same_answer(&ref, &got, vocab_of(a)) && same_cache(a, b));
    }
    CHECK(calls > 2);
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* `auto` wakes the drafter in the middle of an answer: what was told until then stays. */
TEST(a_drafter_can_be_stopped_when_it_wakes)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_TREE);
    struct answer ref = run(a, NULL, 0), got;
    struct stopper_of_drafts stop = { .after = 1 };
    struct pv_gen_params g = gen_params(0);
    struct pv_error err = { 0 };
    m.automatic = true;
    g.method = &m;
    g.progress = stop_drafts;
    g.progress_user = &stop;
    CHECK_MSG(add_prompt(b, 7, &err) == PV_OK, "%s", err.text);
    CHECK_EQ(pv_generate(b, &g, NULL, NULL, &err), PV_E_CANCELLED);
    CHECK_MSG(strstr(err.text, "of the drafter's") != NULL, "'%s'", err.text);
    CHECK(b->answer.n > 0 && (size_t)b->answer.n < ref.n);
    CHECK(memcmp(b->seq.line.ids + b->seq.answer0, ref.ids,
                 (size_t)b->answer.n * sizeof *ref.ids) == 0);
    got = run(b, &m, 0);
    CHECK(same_answer(&ref, &got, vocab_of(a)) && same_cache(a, b));
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* ---- devices that need longer for new steps ---- */

static uint64_t ever_more(struct device *dev)
{
    static uint64_t n;
    (void)dev;
    return n++;
}

static uint64_t as_ever(struct device *dev)
{
    (void)dev;
    return 7;
}

/* Rounds with steps that are new to the device are not believed, but not for ever; `auto` and
 * fitted trees live with it. */
TEST(times_of_new_steps_are_not_believed)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    const struct device_ops *ops = p.target->dev->ops;
    struct device_ops slow = *ops;
    pv_session *a, *b;
    struct answer ref, got;
    struct speculation sp = { 0 };
    int believed = 0;
    p.target->dev->ops = &slow; /* while no engine runs */
    a = open_session(&p);
    b = open_session(&p);
    ref = run(a, NULL, 0);
    sp.s = b;
    CHECK_EQ(round_first_runs(b), 0);
    CHECK(round_believes(&sp, 0));
    slow.first_runs = as_ever;
    for (int i = 0; i < 20; i++)
        CHECK(round_believes(&sp, round_first_runs(b)));
    slow.first_runs = ever_more;
    for (int i = 0; i < 90; i++)
        believed += round_believes(&sp, round_first_runs(b));
    CHECK_EQ(believed, 10);
    for (int shape = PV_SHAPE_TREE; shape <= PV_SHAPE_FITTED; shape++)
        for (int automatic = 0; automatic < 2; automatic++) {
            struct pv_method m = method(PV_DRAFT_MODEL, "full", (enum pv_shape)shape);
            m.automatic = automatic;
            got = run(b, &m, 0);
            CHECK_MSG(same_answer(&ref, &got, vocab_of(a)) && same_cache(a, b), "shape %d", shape);
        }
    pv_session_close(&a);
    pv_session_close(&b);
    p.target->dev->ops = ops;
    close_pair(&p);
}

/* ---- rejection ---- */

TEST(rejection_without_temperature_is_plain_decoding)
{
    static const enum pv_drafter kinds[] = { PV_DRAFT_MODEL, PV_DRAFT_SELF, PV_DRAFT_SPARSE };
    struct pair p = open_unlike(&family_llava_onevision, 1);
    pv_session *a = open_session(&p), *b = open_session(&p);
    struct answer ref = run(a, NULL, 0), got;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int shape = PV_SHAPE_CHAIN; shape <= PV_SHAPE_DYNAMIC; shape++) {
            struct pv_method m = method(kinds[k], "uniform", (enum pv_shape)shape);
            m.accept = PV_ACCEPT_REJECTION;
            got = run(b, &m, 0);
            CHECK_MSG(same_answer(&ref, &got, vocab_of(a)) && same_cache(a, b),
                      "drafter %d shape %d", (int)kinds[k], shape);
        }
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&p);
}

/* Of a vocabulary of FEW, the distribution of the first DRAWN tokens: plain sampling's is known by
 * multiplication, that of rejection is counted. The first token is drawn plainly, the others are
 * proposed, accepted and rejected. */
enum { FEW = 5, DRAWN = 3, OUTCOMES = FEW * FEW * FEW, SEEDS = 3000 };

static const int32_t few_prompt[] = { 1, 3, 0, 2 };

static struct pair open_few(void)
{
    struct tiny_model m = { .arch = "qwen2",
                            .hidden = 32,
                            .n_layers = 1,
                            .n_heads = 2,
                            .n_kv = 1,
                            .head_dim = 16,
                            .ffn = 32,
                            .vocab = FEW,
                            .type = DTYPE_F32,
                            .seed = 3 };
    char paths[2][256];
    tiny_model_write(&m, "few", paths[0]);
    m.seed = 8;
    tiny_model_write(&m, "few-draft", paths[1]);
    return open_two(paths[0], paths[1], 1);
}

static struct pv_gen_params few_params(uint64_t seed)
{
    struct pv_gen_params g = gen_params(1.5f);
    g.max_new_tokens = DRAWN;
    g.top_p = 1;
    g.seed = seed;
    return g;
}

/* The target's distribution after the prompt and the given tokens. */
static void few_distribution(pv_session *s, const int32_t *ids, int n, float *out)
{
    struct answer a;
    struct candidate scratch[FEW];
    struct {
        struct answer *a;
        int vocab;
    } user = { &a, FEW };
    struct pv_gen_params g = few_params(1);
    struct sampling how = { .temperature = g.temperature, .top_p = g.top_p };
    g.max_new_tokens = 1;
    pv_session_reset(s);
    CHECK_EQ(pv_add_ids(s, few_prompt, 4, NULL), PV_OK);
    CHECK_EQ(pv_add_ids(s, ids, (size_t)n, NULL), PV_OK);
    s->observer = (struct logits_observer){ show, &user };
    CHECK_EQ(pv_generate(s, &g, NULL, NULL, NULL), PV_OK);
    s->observer = (struct logits_observer){ 0 };
    sample_distribution(a.logits[0], FEW, &how, out, scratch);
}

static void few_expected(pv_session *s, double *out)
{
    float first[FEW], second[FEW], third[FEW];
    few_distribution(s, NULL, 0, first);
    for (int32_t i = 0; i < FEW; i++) {
        few_distribution(s, &i, 1, second);
        for (int32_t j = 0; j < FEW; j++) {
            few_distribution(s, (const int32_t[]){ i, j }, 2, third);
            for (int k = 0; k < FEW; k++)
                out[(i * FEW + j) * FEW + k] = (double)first[i] * second[j] * third[k];
        }
    }
}

/* How far counts are from what is expected of SEEDS draws: (chi^2 - n) / sqrt(2 n) for n degrees of
 * freedom, which is about normal. Rare outcomes count together. */
static double few_distance(const int *count, const double *expected)
{
    double chi = 0, rare = 0, rare_count = 0;
    int freedom = -1;
    for (int i = 0; i < OUTCOMES; i++) {
        double want = expected[i] * SEEDS;
        if (want < 5) {
            rare += want;
            rare_count += count[i];
            continue;
        }
        chi += (count[i] - want) * (count[i] - want) / want;
        freedom++;
    }
    if (rare > 1) {
        chi += (rare_count - rare) * (rare_count - rare) / rare;
        freedom++;
    }
    return (chi - freedom) / sqrt(2.0 * freedom);
}

static double few_draw(pv_session *s, const struct pv_method *m, const double *expected,
                       struct pv_stats *sum)
{
    int count[OUTCOMES] = { 0 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct pv_gen_params g = few_params(seed);
        struct pv_stats stats = { .size = sizeof stats };
        size_t n;
        const int32_t *ids;
        g.method = m;
        pv_session_reset(s);
        CHECK_EQ(pv_add_ids(s, few_prompt, 4, NULL), PV_OK);
        CHECK_EQ(pv_generate(s, &g, NULL, NULL, NULL), PV_OK);
        ids = pv_session_answer(s, &n);
        if (!CHECK_EQ(n, DRAWN))
            return INFINITY;
        count[(ids[0] * FEW + ids[1]) * FEW + ids[2]]++;
        pv_session_stats(s, &stats);
        sum->accepted += stats.accepted;
        sum->rejections += stats.rejections;
    }
    return few_distance(count, expected);
}

TEST(rejection_keeps_the_distribution)
{
    if (TEST_BRIEF) {
        test_skip("thousands of short answers of one thread");
        return;
    }
    static const enum pv_drafter kinds[] = { PV_DRAFT_MODEL, PV_DRAFT_RANDOM };
    struct pair p = open_few(), swapped = { p.draft, p.target };
    pv_session *s = open_session(&p), *other = open_session(&swapped);
    double expected[OUTCOMES], wrong[OUTCOMES], far;
    struct pv_stats sum = { 0 };
    few_expected(s, expected);
    few_expected(other, wrong);
    far = few_draw(s, NULL, expected, &sum);
    CHECK_MSG(far < 4, "plain sampling: %.1f", far);
    far = few_draw(s, NULL, wrong, &sum); /* the drafter's: the measure tells them apart */
    CHECK_MSG(far > 20, "the drafter's distribution: %.1f", far);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int shape = PV_SHAPE_CHAIN; shape <= PV_SHAPE_DYNAMIC; shape++) {
            struct pv_method m = method(kinds[k], "full", (enum pv_shape)shape);
            if (kinds[k] == PV_DRAFT_RANDOM && shape == PV_SHAPE_CHAIN)
                continue; /* has no probabilities */
            m.accept = PV_ACCEPT_REJECTION;
            m.total = 12;
            sum = (struct pv_stats){ 0 };
            far = few_draw(s, &m, expected, &sum);
            CHECK_MSG(far < 4, "drafter %d shape %d: %.1f", (int)kinds[k], shape, far);
            CHECK_MSG(sum.accepted > SEEDS / 4 && (sum.rejections > SEEDS / 8 || shape > 0),
                      "drafter %d shape %d: %lld accepted, %lld rejected", (int)kinds[k], shape,
                      (long long)sum.accepted, (long long)sum.rejections);
        }
    pv_session_close(&s);
    pv_session_close(&other);
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
    struct pair p = open_pair(seeing[0], 1);
    pv_session *s = open_session(&p);
    struct pv_method m = method(PV_DRAFT_MODEL, "no-such", PV_SHAPE_CHAIN);
    refuse(s, m, "unknown view 'no-such'");
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
    m.shape = PV_SHAPE_FITTED;
    refuse(s, m, "width 17");
    for (int k = PV_DRAFT_MODEL; k <= PV_DRAFT_ORACLE; k++) {
        m = method((enum pv_drafter)k, "full", PV_SHAPE_FITTED);
        if (k != PV_DRAFT_MODEL && k != PV_DRAFT_SELF && k != PV_DRAFT_HEAD)
            refuse(s, m, "shape fitted needs a drafter with probabilities");
        m.accept = PV_ACCEPT_REJECTION;
        refuse(s, m,
               k <= PV_DRAFT_SELF || k == PV_DRAFT_HEAD
                   ? "shape fitted goes with exact acceptance only"
                   : "shape fitted needs");
    }
    /* The session is as it was: it answers. */
    m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    CHECK_EQ(run(s, &m, 0).n, N_NEW);
    pv_session_close(&s);
    close_pair(&p);
}

TEST(presets)
{
    struct pv_method m = { .size = sizeof m };
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
