/* The lossless matrix for draft heads: heads of every kind, with random weights, every view, shape
 * and temperature give the ids of plain decoding, the same bits of the logits that chose them, and
 * a cache that equals the one of a fresh run; in the parallel schedule too, whatever the timing.
 * And what is a session's: states follow the cache over turns and other methods, and the cost of a
 * round does not know the video's length. */
#include "answers.h"
#include "family/families.h"
#include "tiny_head.h"

#include <time.h>

static pv_model *open_with_head(const char *path, const char *head, int threads)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.head = head;
    p.threads = threads;
    CHECK_MSG(pv_model_open(&m, &p, &err) == PV_OK, "%s", err.text);
    CHECK(m && pv_model_has_head(m));
    return m;
}

static pv_session *open_for(pv_model *m, int context)
{
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    sp.max_context = context;
    sp.chunk = 37;
    sp.kv_type = PV_KV_F32;
    sp.speculate = true;
    CHECK_MSG(pv_session_open(&s, m, &sp, &err) == PV_OK, "%s", err.text);
    return s;
}

static const char *target_path(const struct family *family)
{
    static char paths[TINY_KINDS][256];
    char *path = paths[tiny_kind(family) - tiny_kinds];
    struct tiny_vision v = tiny_vision(family);
    if (!path[0])
        tiny_vision_gguf(&v, family->name, path);
    return path;
}

/* Heads of EAGLE-3, kinds 5 to 7: of all tokens; of a third of them; of half of them, on the
 * target's positions. */
static struct tiny_head eagle3_head(int k)
{
    static const int features[3][3] = { { 0, 1, 2 }, { 2, 0 }, { 1, 1, 2 } };
    struct tiny_head h = tiny_head(32, (uint64_t)k);
    h.eagle3 = true;
    h.copies = k == 5;
    h.n_features = k == 6 ? 2 : 3;
    memcpy(h.features, features[k - 5], sizeof features[0]);
    h.norm_residual = k == 6;
    h.qk_norm = k == 6;
    h.no_fc_bias = k != 6;
    h.qkv_bias = k == 7;
    h.positions = k == 7 ? "target" : NULL;
    h.type = k == 7 ? DTYPE_Q8_0 : DTYPE_F32;
    h.vocab = tiny_vision(&family_llava_onevision).text.vocab;
    h.draft_vocab = k == 5 ? 0 : k == 6 ? h.vocab / 3 : h.vocab / 2;
    return h;
}

/* Kind k, from 0 to 7, of heads for the tiny models, which are 32 wide and have 2 layers. */
static const char *head_path(int k, char path[256])
{
    struct tiny_head h = tiny_head(32, (uint64_t)k);
    char name[16];
    h.copies = k == 0;
    h.no_input_norm = k != 1 && k != 4;
    h.qkv_bias = k == 1 || k == 2;
    h.no_fc_bias = k == 1;
    h.qk_norm = h.norms = k == 3;
    h.n_kv = k == 2 ? 2 : 1;
    h.visual = k == 2 ? "fc" : k == 3 ? "layer" : k == 4 ? "embedding" : NULL;
    h.visual_layer = k == 3;
    h.positions = k >= 3 ? "target" : k == 2 ? "index" : NULL;
    h.theta = k == 2 ? 5000 : 0;
    h.type = k == 4 ? DTYPE_Q8_0 : DTYPE_F32;
    if (k >= 5)
        h = eagle3_head(k);
    snprintf(name, sizeof name, "head%d", k);
    return tiny_head_write(&h, name, path);
}

/* Of what copies the last token something is accepted. */
static bool is_accepted(int head)
{
    return head == 0 || head == 5;
}

/* ---- the matrix ---- */

static void check_matrix(const struct family *family, int head, int threads)
{
    static const char *const views[] = { "text", "full", "specvlm" };
    static const float temperatures[] = { 0, 0.8f };
    char path[256];
    pv_model *m = open_with_head(target_path(family), head_path(head, path), threads);
    pv_session *plain = open_for(m, CONTEXT), *tried = open_for(m, CONTEXT);
    int64_t accepted = 0, rejections = 0;
    for (size_t t = 0; t < 2; t++) {
        struct answer ref = run(plain, NULL, temperatures[t]);
        CHECK_EQ(ref.n, N_NEW);
        for (size_t v = 0; v < sizeof views / sizeof *views; v++)
            for (int shape = v ? PV_SHAPE_DYNAMIC : PV_SHAPE_CHAIN; shape <= PV_SHAPE_FITTED;
                 shape++) {
                struct pv_method x = method(PV_DRAFT_HEAD, views[v], (enum pv_shape)shape);
                struct answer a;
                x.automatic = v == 0 && shape == PV_SHAPE_TREE;
                a = run(tried, &x, temperatures[t]);
                accepted += a.stats.accepted;
                rejections += a.stats.rejections;
                CHECK_MSG(same_answer(&ref, &a, vocab_of(tried)) && same_cache(plain, tried),
                          "head %d view %s shape %d temperature %g", head, views[v], shape,
                          (double)temperatures[t]);
                CHECK_EQ(tried->draft.states.n, tried->seq.n_kv_ids);
                CHECK(a.stats.draft_rows > 0 && a.stats.draft_slots > a.stats.draft_rows);
            }
    }
    CHECK_MSG(rejections > 20 && (!is_accepted(head) || accepted > 20),
              "head %d: %lld accepted, %lld rejected", head, (long long)accepted,
              (long long)rejections);
    pv_session_close(&plain);
    pv_session_close(&tried);
    pv_model_close(&m);
}

TEST(llava)
{
    static const int kinds[] = { 0, 1, 4 };
    for (int i = 0; i < 3; i++)
        check_matrix(&family_llava_onevision, kinds[i], 1 + i % 2);
}

TEST(qwen)
{
    check_matrix(&family_qwen2_5_vl, 2, 2);
    check_matrix(&family_qwen2_5_vl, 3, 1);
}

TEST(other_qwens)
{
    check_matrix(&family_qwen2_vl, 0, 1);
    for (int kind = 0; kind < 5; kind++)
        check_matrix(&family_qwen3_vl, kind, 1);
    check_matrix(&family_salmonn2_plus, 0, 2);
    check_matrix(&family_salmonn2_plus, 3, 1);
}

TEST(eagle3)
{
    check_matrix(&family_llava_onevision, 5, 1);
    check_matrix(&family_llava_onevision, 6, 2);
    check_matrix(&family_qwen2_5_vl, 7, 3);
    check_matrix(&family_qwen3_vl, 5, 1);
}

/* A head whose drafts are never right is soon asked for the rarest of rounds, in this answer and in
 * the next ones, and reads no prompts meanwhile; the answers stay what they are. */
TEST(automatic_rests_where_drafts_do_not_pay)
{
    char path[256];
    pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(0, path), 1);
    pv_session *plain = open_for(m, CONTEXT), *tried = open_for(m, CONTEXT);
    struct answer ref = run(plain, NULL, 0);
    struct pv_method x = { .size = sizeof x };
    int drafted = 0, rounds = 0, rested = 0;
    CHECK_EQ(pv_method_find(&x, "auto", NULL), PV_OK);
    for (int i = 0; i < 24; i++) {
        struct answer got = run(tried, &x, 0);
        CHECK(same_answer(&ref, &got, vocab_of(tried)) && same_cache(plain, tried));
        if (i >= 8) {
            rounds += got.stats.rounds;
            drafted += got.stats.proposed;
            rested += got.stats.draft_rows == 0;
        }
        if (i % 4 == 3) { /* what was learnt is the engine's */
            pv_session_close(&tried);
            tried = open_for(m, CONTEXT);
        }
    }
    CHECK_MSG(drafted < rounds, "%d tokens drafted in %d rounds", drafted, rounds);
    CHECK_MSG(rested >= 4, "%d of 16 answers without the head", rested);
    pv_session_close(&plain);
    pv_session_close(&tried);
    pv_model_close(&m);
}

/* `auto` is the head with fitted trees, whether the method names it or not; under rejection, whose
 * text must not follow the clock, with dynamic ones. */
TEST(automatic)
{
    static const enum pv_drafter who[] = { PV_DRAFT_HEAD, PV_DRAFT_MODEL };
    char path[256];
    pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(0, path), 1);
    pv_session *plain = open_for(m, CONTEXT), *tried = open_for(m, CONTEXT);
    for (int k = 0; k < 2; k++) {
        struct pv_method x = { .size = sizeof x };
        struct answer ref, got;
        CHECK_EQ(pv_method_find(&x, "auto", NULL), PV_OK);
        x.drafter = who[k];
        x.view = k ? "specvlm" : "text";
        for (int drawn = 0; drawn < 2; drawn++) {
            ref = run(plain, NULL, drawn ? 0.8f : 0);
            got = run(tried, &x, drawn ? 0.8f : 0);
            CHECK(same_answer(&ref, &got, vocab_of(tried)) && same_cache(plain, tried));
            CHECK_EQ(tried->draft.used, PV_DRAFT_HEAD);
            CHECK(got.stats.parallel_rounds == 0);
            CHECK(got.stats.draft_rows > 0 || k > 0); /* it rests if it did not pay before */
        }
        x.accept = PV_ACCEPT_REJECTION;
        got = run(tried, &x, 0.8f);
        ref = run(tried, &x, 0.8f);
        CHECK_EQ(got.n, N_NEW);
        CHECK(memcmp(got.ids, ref.ids, sizeof got.ids) == 0);
    }
    pv_session_close(&plain);
    pv_session_close(&tried);
    pv_model_close(&m);
}

/* Rejection: another text, of the same length, and the same one again. */
static void check_rejection(int head)
{
    char path[256];
    pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(head, path), 1);
    pv_session *s = open_for(m, CONTEXT);
    for (int shape = PV_SHAPE_CHAIN; shape <= PV_SHAPE_DYNAMIC; shape++) {
        struct pv_method x = method(PV_DRAFT_HEAD, "text", (enum pv_shape)shape);
        struct answer a, b;
        x.accept = PV_ACCEPT_REJECTION;
        a = run(s, &x, 0.8f);
        b = run(s, &x, 0.8f);
        CHECK_EQ(a.n, N_NEW);
        CHECK(memcmp(a.ids, b.ids, sizeof a.ids) == 0);
    }
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(rejection)
{
    check_rejection(1);
    check_rejection(6);
}

/* ---- memory ---- */

/* The states of old prompts make room for those of new ones. */
TEST(memory_does_not_grow_with_prompts)
{
    enum { PROMPTS = 80, ROWS = 60, ONE = 64 << 10 };
    char path[256];
    pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(0, path), 1);
    pv_session *s = open_for(m, CONTEXT);
    struct pv_method x = method(PV_DRAFT_HEAD, "text", PV_SHAPE_CHAIN);
    struct pv_gen_params g = gen_params(0);
    struct rng r = { test_seed };
    size_t most[2] = { 0, 0 };
    g.max_new_tokens = 4;
    g.method = &x;
    for (int i = 0; i < PROMPTS; i++) {
        size_t *half = &most[i >= PROMPTS / 2];
        int32_t ids[ROWS];
        for (int k = 0; k < ROWS; k++)
            ids[k] = (int32_t)(rng_next(&r) % 50);
        pv_session_reset(s);
        CHECK_EQ(pv_add_ids(s, ids, ROWS, NULL), PV_OK);
        CHECK_EQ(pv_generate(s, &g, NULL, NULL, NULL), PV_OK);
        *half = mem_bytes() > *half ? mem_bytes() : *half;
    }
    CHECK_MSG(most[1] < most[0] + ONE, "%zu bytes after %d prompts, %zu after %d", most[0],
              PROMPTS / 2, most[1], PROMPTS);
    pv_session_close(&s);
    pv_model_close(&m);
}

/* They count against the memory limit, and take less where it leaves less. */
TEST(states_fit_the_memory_limit)
{
    char path[256];
    pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(0, path), 1);
    pv_session *s = open_for(m, CONTEXT);
    size_t whole = s->engine->fixed_bytes;
    pv_session_close(&s);
    m->limits.memory_bytes = whole - 1;
    s = open_for(m, CONTEXT);
    if (s)
        CHECK(s->engine->fixed_bytes < whole);
    pv_session_close(&s);
    pv_model_close(&m);
}

/* ---- the parallel schedule ---- */

static struct pv_method parallel(const char *view, int window)
{
    struct pv_method m = method(PV_DRAFT_HEAD, view, PV_SHAPE_CHAIN);
    m.schedule = PV_SCHEDULE_PARALLEL;
    m.window = window;
    return m;
}

/* Each side waits at random: user, a random number of each. */
static void dawdle(void *user, enum pv_side side)
{
    static const long ns[] = { 0, 0, 0, 1000, 20000, 100000, 400000 };
    struct timespec t = { 0, ns[rng_next((struct rng *)user + side) % 7] };
    if (t.tv_nsec > 0)
        nanosleep(&t, NULL);
}

struct both {
    pv_model *m;
    pv_session *plain, *tried;
    struct answer ref;
    struct rng side[2];
    int64_t accepted, rejections, longest;
};

static struct both open_both(const struct family *family, int head, int threads)
{
    char path[256];
    struct both b = { .m = open_with_head(target_path(family), head_path(head, path), threads) };
    b.plain = open_for(b.m, CONTEXT);
    b.tried = open_for(b.m, CONTEXT);
    return b;
}

static void close_both(struct both *b)
{
    pv_session_close(&b->plain);
    pv_session_close(&b->tried);
    pv_model_close(&b->m);
}

static void check_parallel(struct both *b, const struct pv_method *m, float temperature)
{
    struct answer a;
    b->tried->delay = (struct side_delay){ dawdle, b->side };
    a = run(b->tried, m, temperature);
    b->tried->delay = (struct side_delay){ 0 };
    b->accepted += a.stats.accepted;
    b->rejections += a.stats.rejections;
    b->longest = a.stats.longest_run > b->longest ? a.stats.longest_run : b->longest;
    CHECK_MSG(same_answer(&b->ref, &a, vocab_of(b->tried)) && same_cache(b->plain, b->tried),
              "view %s window %d temperature %g", m->view, m->window, (double)temperature);
    CHECK_EQ(b->tried->draft.states.n, b->tried->seq.n_kv_ids);
    CHECK(a.stats.parallel_rounds == a.stats.rounds && a.stats.rounds > 0);
    CHECK(a.stats.wasted >= 0);
}

static void check_windows(const struct family *family, int head, int threads)
{
    struct both b = open_both(family, head, threads);
    for (int t = 0; t < 2; t++) {
        float temperature = t ? 0.8f : 0;
        b.ref = run(b.plain, NULL, temperature);
        for (int w = 0; w <= 8; w++) {
            struct pv_method m = parallel(w % 3 == 2 ? "full" : "text", w);
            m.draft_threads = w % 4 == 3;
            check_parallel(&b, &m, temperature);
        }
    }
    CHECK_MSG(b.rejections > 20 && (!is_accepted(head) || (b.accepted > 20 && b.longest > 8)),
              "head %d: %lld accepted, %lld rejected, %lld on end", head, (long long)b.accepted,
              (long long)b.rejections, (long long)b.longest);
    close_both(&b);
}

TEST(parallel_llava)
{
    static const int kinds[] = { 0, 1, 4 };
    for (int i = 0; i < 3; i++)
        check_windows(&family_llava_onevision, kinds[i], 1 + i);
}

TEST(parallel_qwen)
{
    check_windows(&family_qwen2_5_vl, 2, 2);
    check_windows(&family_qwen2_5_vl, 3, 1);
}

TEST(parallel_qwen3)
{
    check_windows(&family_qwen3_vl, 2, 2);
    check_windows(&family_qwen3_vl, 3, 1);
}

TEST(parallel_salmonn)
{
    check_windows(&family_salmonn2_plus, 2, 2);
    check_windows(&family_salmonn2_plus, 3, 1);
}

TEST(parallel_eagle3)
{
    check_windows(&family_llava_onevision, 5, 2);
    check_windows(&family_llava_onevision, 6, 3);
    check_windows(&family_qwen2_5_vl, 7, 1);
    check_windows(&family_qwen3_vl, 6, 1);
}

TEST(any_interleaving)
{
    enum { N_INTERLEAVINGS = 150 };
    struct both b = open_both(&family_llava_onevision, 0, 1);
    struct rng choose = { test_seed };
    b.ref = run(b.plain, NULL, 0);
    for (int i = 0; i < N_INTERLEAVINGS; i++) {
        struct pv_method m = parallel("text", (int)(rng_next(&choose) % 12));
        b.side[0] = (struct rng){ rng_next(&choose) };
        b.side[1] = (struct rng){ rng_next(&choose) };
        check_parallel(&b, &m, 0);
    }
    CHECK(b.accepted > N_INTERLEAVINGS);
    close_both(&b);
}

static bool stop_after(void *user, const char *utf8, size_t len)
{
    int *left = user;
    (void)utf8, (void)len;
    return --*left > 0;
}

/* Answers of every length and stopped after every token; the session goes on with another. */
TEST(parallel_endings)
{
    struct both b = open_both(&family_llava_onevision, 0, 2);
    struct pv_method m = parallel("text", 4);
    for (int n = 1; n <= 12; n++)
        for (int stopped = 0; stopped < 2; stopped++) {
            pv_session *s[2] = { b.plain, b.tried };
            for (int i = 0; i < 2; i++) {
                struct pv_gen_params g = gen_params(0);
                struct pv_error err = { 0 };
                int left = n;
                g.max_new_tokens = stopped ? N_NEW : n;
                g.method = i ? &m : NULL;
                pv_session_reset(s[i]);
                CHECK_MSG(add_prompt(s[i], 7, &err) == PV_OK, "%s", err.text);
                CHECK_EQ(pv_generate(s[i], &g, stopped ? stop_after : NULL, &left, &err),
                         stopped ? PV_E_CANCELLED : PV_OK);
            }
            CHECK_EQ(b.plain->answer.n, n);
            CHECK_EQ(b.tried->answer.n, n);
            CHECK_MSG(same_cache(b.plain, b.tried), "%d tokens: another cache", n);
        }
    close_both(&b);
}

TEST(a_context_that_runs_full)
{
    char path[256];
    pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(0, path), 1);
    struct pv_method x = parallel("text", 6);
    int told[2];
    for (int i = 0; i < 2; i++) {
        pv_session *s = open_for(m, 90);
        struct pv_gen_params g = gen_params(0);
        struct pv_error err = { 0 };
        g.max_new_tokens = 200;
        g.method = i ? &x : NULL;
        CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
        CHECK_EQ(pv_generate(s, &g, NULL, NULL, &err), PV_E_LIMIT);
        told[i] = s->answer.n;
        pv_session_close(&s);
    }
    CHECK(told[0] == told[1] && told[0] > 10);
    pv_model_close(&m);
}

/* ---- states over turns ---- */

/* Answers of two turns, the first by one method and the second by another: as plain decoding has
 * them, and the head finds its states, kept or made again. */
static void check_turns(pv_model *m, const struct pv_method *first, const struct pv_method *second)
{
    pv_session *s[2] = { open_for(m, CONTEXT), open_for(m, CONTEXT) };
    struct answer a[2];
    for (int i = 0; i < 2; i++) {
        struct pv_error err = { 0 };
        CHECK_MSG(add_prompt(s[i], 7, &err) == PV_OK, "%s", err.text);
        CHECK_MSG(generate(s[i], i ? first : NULL, 0, &a[i], &err) == PV_OK, "%s", err.text);
        CHECK_MSG(add_media(s[i], 9, true, &err) == PV_OK, "%s", err.text);
        CHECK_MSG(pv_add_text(s[i], "user", "and the cat", &err) == PV_OK, "%s", err.text);
        CHECK_MSG(generate(s[i], i ? second : NULL, 0, &a[i], &err) == PV_OK, "%s", err.text);
    }
    CHECK(same_answer(&a[0], &a[1], vocab_of(s[0])) && same_cache(s[0], s[1]));
    if (second && second->drafter == PV_DRAFT_HEAD)
        CHECK_EQ(s[1]->draft.states.n, s[1]->seq.n_kv_ids);
    pv_session_close(&s[0]);
    pv_session_close(&s[1]);
}

TEST(states_follow_the_cache_over_turns)
{
    static const int kinds[] = { 1, 3, 6 };
    for (size_t h = 0; h < 3; h++) {
        int k = kinds[h];
        char path[256];
        pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(k, path), 1);
        struct pv_method text = method(PV_DRAFT_HEAD, "text", PV_SHAPE_DYNAMIC);
        struct pv_method full = method(PV_DRAFT_HEAD, "full", PV_SHAPE_DYNAMIC);
        struct pv_method self = method(PV_DRAFT_SELF, "specvlm", PV_SHAPE_TREE);
        struct pv_method both = method(PV_DRAFT_SELF, "alignment", PV_SHAPE_CHAIN);
        struct pv_method beside = parallel("text", 3);
        const struct pv_method *list[] = { NULL, &text, &full, &beside, &self, &both };
        both.schedule = PV_SCHEDULE_PARALLEL;
        for (size_t i = 0; i < 6; i++)
            check_turns(m, list[i], list[1 + ((size_t)k + i) % 3]);
        pv_model_close(&m);
    }
}

/* ---- cost ---- */

static enum pv_status add_long(pv_session *s, int frames, struct pv_error *err)
{
    static struct pv_frame list[64];
    static uint8_t rgb[HEIGHT * WIDTH * 3];
    struct pv_video_params v = pv_video_defaults();
    struct rng r = { 3 };
    enum pv_status st;
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)rng_next(&r);
    for (int f = 0; f < frames; f++)
        list[f] = (struct pv_frame){
            .index = f, .time = f, .width = WIDTH, .height = HEIGHT, .rgb = rgb
        };
    v.frames = frames;
    st = pv_add_frames(s, list, (size_t)frames, 2, &v, err);
    return st ? st : pv_add_text(s, "user", "what is the dog", err);
}

/* Slots of the head's cache that a row reads, on average over an answer. */
static double slots_a_row(pv_model *m, const char *view, int frames, int64_t *video)
{
    pv_session *s = open_for(m, 2048);
    struct pv_method x = method(PV_DRAFT_HEAD, view, PV_SHAPE_CHAIN);
    struct pv_error err = { 0 };
    struct pv_gen_params p = gen_params(0);
    struct pv_stats stats = { .size = sizeof stats };
    p.method = &x;
    x.window = 1; /* one row a token, whatever is accepted */
    CHECK_MSG(add_long(s, frames, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_generate(s, &p, NULL, NULL, &err) == PV_OK, "%s", err.text);
    pv_session_stats(s, &stats);
    *video = stats.video_tokens;
    CHECK_EQ(stats.draft_video_tokens, strcmp(view, "text") == 0 ? 0 : stats.video_tokens);
    CHECK_EQ(stats.draft_rows, N_NEW - 1);
    pv_session_close(&s);
    return (double)stats.draft_slots / (double)stats.draft_rows;
}

TEST(a_round_without_the_video_costs_the_same_whatever_its_length)
{
    char path[256];
    pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(1, path), 1);
    int64_t few, many;
    double text_few = slots_a_row(m, "text", 2, &few);
    double text_many = slots_a_row(m, "text", 60, &many);
    double full_few = slots_a_row(m, "full", 2, &few),
           full_many = slots_a_row(m, "full", 60, &many);
    CHECK(many > 10 * few);
    CHECK_MSG(text_few == text_many, "%g slots a row, and %g with the longer video", text_few,
              text_many);
    CHECK_MSG(full_many - full_few == (double)(many - few), "%g and %g", full_few, full_many);
    pv_model_close(&m);
}

/* ---- what cannot be ---- */

/* Rows before a video have states only where a token follows: when a conversation without the video
 * begins with the same rows, the last of them needs its state. */
TEST(a_conversation_without_the_video_after_one_with_it)
{
    char path[256];
    pv_model *m = open_with_head(target_path(&family_llava_onevision), head_path(1, path), 1);
    struct pv_method x = method(PV_DRAFT_HEAD, "text", PV_SHAPE_DYNAMIC);
    pv_session *s = open_for(m, 2048), *fresh = open_for(m, 2048);
    struct pv_gen_params p = gen_params(0), plain = gen_params(0);
    struct pv_error err = { 0 };
    const int32_t *a, *b;
    size_t n, n_fresh;
    p.method = &x;
    CHECK_MSG(add_long(s, 2, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_generate(s, &p, NULL, NULL, &err) == PV_OK, "%s", err.text);
    pv_session_reset(s);
    CHECK_MSG(pv_add_text(s, "user", "what is the dog", &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_generate(s, &p, NULL, NULL, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_add_text(fresh, "user", "what is the dog", &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_generate(fresh, &plain, NULL, NULL, &err) == PV_OK, "%s", err.text);
    a = pv_session_answer(s, &n);
    b = pv_session_answer(fresh, &n_fresh);
    CHECK(n > 0 && n == n_fresh && !memcmp(a, b, n * sizeof *a));
    pv_session_close(&s);
    pv_session_close(&fresh);
    pv_model_close(&m);
}

TEST(misuse)
{
    char path[256], other[256];
    struct tiny_head wide = tiny_head(64, 1);
    struct pv_model_params p = pv_model_defaults();
    struct pv_method x = method(PV_DRAFT_HEAD, "text", PV_SHAPE_CHAIN);
    struct pv_gen_params g = gen_params(0);
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    pv_session *s;
    p.path = target_path(&family_llava_onevision);
    p.head = tiny_head_write(&wide, "wide", other);
    CHECK_EQ(pv_model_open(&m, &p, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "hidden size of 64"), "%s", err.text);
    err = (struct pv_error){ 0 };
    p.head = target_path(&family_llava_onevision);
    CHECK_EQ(pv_model_open(&m, &p, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "not a draft head"), "%s", err.text);
    err = (struct pv_error){ 0 };
    p.path = other;
    p.head = NULL;
    CHECK_EQ(pv_model_open(&m, &p, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "only a draft head"), "%s", err.text);
    err = (struct pv_error){ 0 };
    /* A model without a head. */
    m = open_model(target_path(&family_llava_onevision), 1, NULL);
    s = open_for(m, CONTEXT);
    g.method = &x;
    CHECK_EQ(add_prompt(s, 7, &err), PV_OK);
    CHECK_EQ(pv_generate(s, &g, NULL, NULL, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "needs a draft head"), "%s", err.text);
    pv_session_close(&s);
    pv_model_close(&m);
    /* A tree in the parallel schedule. */
    err = (struct pv_error){ 0 };
    m = open_with_head(target_path(&family_llava_onevision), head_path(1, path), 2);
    s = open_for(m, CONTEXT);
    x.schedule = PV_SCHEDULE_PARALLEL;
    x.shape = PV_SHAPE_DYNAMIC;
    CHECK_EQ(add_prompt(s, 7, &err), PV_OK);
    CHECK_EQ(pv_generate(s, &g, NULL, NULL, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "chains"), "%s", err.text);
    pv_session_close(&s);
    pv_model_close(&m);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
