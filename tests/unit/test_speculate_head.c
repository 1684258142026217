/* The lossless matrix for draft heads: heads of every kind, with random weights, every view, shape
 * and temperature give the ids of plain decoding, the same bits of the logits that chose them, and
 * a cache that equals the one of a fresh run. And what is a session's: states follow the cache over
 * turns and other methods, and the cost of a round does not know the video's length. */
#include "answers.h"
#include "tiny_head.h"

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

static const char *target_path(enum vision_kind kind)
{
    static char paths[2][256];
    char *path = paths[kind == VISION_LLAVA];
    struct tiny_vision v = tiny_vision(kind);
    if (!path[0])
        tiny_vision_gguf(&v, kind == VISION_LLAVA ? "llava" : "qwen", path);
    return path;
}

/* Kind k, from 0 to 4, of heads for the tiny models, which are 32 wide. */
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
    snprintf(name, sizeof name, "head%d", k);
    return tiny_head_write(&h, name, path);
}

/* ---- the matrix ---- */

static void check_matrix(enum vision_kind kind, int head, int threads)
{
    static const char *const views[] = { "text", "full", "specvlm" };
    static const float temperatures[] = { 0, 0.8f };
    char path[256];
    pv_model *m = open_with_head(target_path(kind), head_path(head, path), threads);
    pv_session *plain = open_for(m, CONTEXT), *tried = open_for(m, CONTEXT);
    int64_t accepted = 0, rejections = 0;
    for (size_t t = 0; t < 2; t++) {
        struct answer ref = run(plain, NULL, temperatures[t]);
        CHECK_EQ(ref.n, N_NEW);
        for (size_t v = 0; v < sizeof views / sizeof *views; v++)
            for (int shape = v ? PV_SHAPE_DYNAMIC : PV_SHAPE_CHAIN; shape <= PV_SHAPE_DYNAMIC;
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
                CHECK_EQ(tried->draft.states.n, tried->kv.len);
                CHECK(a.stats.draft_rows > 0 && a.stats.draft_slots > a.stats.draft_rows);
            }
    }
    CHECK_MSG(rejections > 20 && (head > 0 || accepted > 20),
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
        check_matrix(VISION_LLAVA, kinds[i], 1 + i % 2);
}

TEST(qwen)
{
    check_matrix(VISION_QWEN2_5, 2, 2);
    check_matrix(VISION_QWEN2_5, 3, 1);
}

/* Rejection: another text, of the same length, and the same one again. */
TEST(rejection)
{
    char path[256];
    pv_model *m = open_with_head(target_path(VISION_LLAVA), head_path(1, path), 1);
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
        CHECK_MSG(add_medium(s[i], 9, true, &err) == PV_OK, "%s", err.text);
        CHECK_MSG(pv_add_text(s[i], "user", "and the cat", &err) == PV_OK, "%s", err.text);
        CHECK_MSG(generate(s[i], i ? second : NULL, 0, &a[i], &err) == PV_OK, "%s", err.text);
    }
    CHECK(same_answer(&a[0], &a[1], vocab_of(s[0])) && same_cache(s[0], s[1]));
    if (second && second->drafter == PV_DRAFT_HEAD)
        CHECK_EQ(s[1]->draft.states.n, s[1]->kv.len);
    pv_session_close(&s[0]);
    pv_session_close(&s[1]);
}

TEST(states_follow_the_cache_over_turns)
{
    for (int k = 1; k < 4; k += 2) {
        char path[256];
        pv_model *m = open_with_head(target_path(VISION_LLAVA), head_path(k, path), 1);
        struct pv_method text = method(PV_DRAFT_HEAD, "text", PV_SHAPE_DYNAMIC);
        struct pv_method full = method(PV_DRAFT_HEAD, "full", PV_SHAPE_DYNAMIC);
        struct pv_method self = method(PV_DRAFT_SELF, "specvlm", PV_SHAPE_TREE);
        struct pv_method both = method(PV_DRAFT_SELF, "alignment", PV_SHAPE_CHAIN);
        const struct pv_method *list[] = { NULL, &text, &full, &self, &both };
        both.schedule = PV_SCHEDULE_PARALLEL;
        for (size_t i = 0; i < 5; i++)
            check_turns(m, list[i], list[1 + ((size_t)k + i) % 2]);
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
    struct pv_stats stats;
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
    pv_model *m = open_with_head(target_path(VISION_LLAVA), head_path(1, path), 1);
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
    p.path = target_path(VISION_LLAVA);
    p.head = tiny_head_write(&wide, "wide", other);
    CHECK_EQ(pv_model_open(&m, &p, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "hidden size of 64"), "%s", err.text);
    err = (struct pv_error){ 0 };
    p.head = target_path(VISION_LLAVA);
    CHECK_EQ(pv_model_open(&m, &p, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "not a draft head"), "%s", err.text);
    err = (struct pv_error){ 0 };
    p.path = other;
    p.head = NULL;
    CHECK_EQ(pv_model_open(&m, &p, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "draft head alone"), "%s", err.text);
    err = (struct pv_error){ 0 };
    /* A model without a head. */
    m = open_model(target_path(VISION_LLAVA), 1, NULL);
    s = open_for(m, CONTEXT);
    g.method = &x;
    CHECK_EQ(add_prompt(s, 7, &err), PV_OK);
    CHECK_EQ(pv_generate(s, &g, NULL, NULL, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "needs a draft head"), "%s", err.text);
    pv_session_close(&s);
    pv_model_close(&m);
    /* The parallel schedule. */
    err = (struct pv_error){ 0 };
    m = open_with_head(target_path(VISION_LLAVA), head_path(1, path), 2);
    s = open_for(m, CONTEXT);
    x.schedule = PV_SCHEDULE_PARALLEL;
    CHECK_EQ(add_prompt(s, 7, &err), PV_OK);
    CHECK_EQ(pv_generate(s, &g, NULL, NULL, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "head"), "%s", err.text);
    pv_session_close(&s);
    pv_model_close(&m);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
