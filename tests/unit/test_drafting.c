/* What drafters hold counts against the session's limit of memory: one byte less than an answer
 * takes is refused in one sentence that names what did not fit, before anything is run. */
#include "answers.h"
#include "base/mem.h"
#include "family/families.h"
#include "lab_rows.h"

/* A session whose model has the limit `bytes` (0: the default). */
static pv_session *open_limited(struct pair *p, uint64_t bytes)
{
    p->target->limits.memory_bytes = bytes ? bytes : (uint64_t)1 << 40;
    return open_session(p);
}

static enum pv_status answer_with(pv_session *s, const struct pv_method *m, float temperature,
                                  bool video, struct pv_error *err)
{
    struct pv_gen_params g = gen_params(temperature);
    enum pv_status st;
    g.method = m;
    g.max_new_tokens = 8;
    pv_session_reset(s);
    st = video ? add_prompt(s, 7, err) : pv_add_text(s, "user", "what is the dog", err);
    return st ? st : pv_generate(s, &g, NULL, NULL, err);
}

/* Bytes that are counted after an answer. */
static uint64_t bytes_of(struct pair *p, const struct pv_method *m, float temperature, bool video)
{
    pv_session *s = open_limited(p, 0);
    struct pv_error err = { 0 };
    uint64_t used;
    CHECK_MSG(answer_with(s, m, temperature, video, &err) == PV_OK, "%s", err.text);
    used = p->target->limits.memory_bytes - budget_left(&s->budget);
    pv_session_close(&s);
    return used;
}

/* With as much as an answer takes it is given; with a byte less it is refused, with these words,
 * and the session goes on without the method. */
static void check_limit(struct pair *p, const struct pv_method *m, float temperature, bool video,
                        const char *words)
{
    uint64_t used = bytes_of(p, m, temperature, video);
    pv_session *s = open_limited(p, used);
    struct pv_error err = { 0 };
    CHECK_MSG(answer_with(s, m, temperature, video, &err) == PV_OK, "%s: %s", words, err.text);
    pv_session_close(&s);
    s = open_limited(p, used - 1);
    CHECK_EQ(answer_with(s, m, temperature, video, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, words) != NULL, "'%s' is not about %s", err.text, words);
    CHECK_EQ(s->seq.n_kv_ids, 0); /* said before the prefill */
    err = (struct pv_error){ 0 };
    CHECK_MSG(answer_with(s, NULL, temperature, video, &err) == PV_OK, "%s: %s", words, err.text);
    pv_session_close(&s);
}

TEST(everything_that_drafts_is_counted)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_TREE);
    check_limit(&p, &m, 0, false, "a drafter for a context of 768 tokens needs");
    check_limit(&p, &m, 0, true, "a vision tower for pictures of 22 x 22 pixels needs");
    check_limit(&p, &m, 0.8f, false, "drawing tokens from a tree needs");
    m.accept = PV_ACCEPT_REJECTION;
    check_limit(&p, &m, 0.8f, false, "drawing tokens from a tree needs");
    m = method(PV_DRAFT_SELF, "full", PV_SHAPE_CHAIN);
    check_limit(&p, &m, 0, true, "a drafter for a context of 768 tokens needs");
    m = method(PV_DRAFT_SPARSE, "full", PV_SHAPE_CHAIN);
    check_limit(&p, &m, 0, false, "a drafter for a context of 768 tokens needs");
    check_limit(&p, &m, 0, true, "the video's attention in every layer needs");
    close_pair(&p);
}

/* A drafter that is shown no video needs no room in its tower for it. */
TEST(a_blind_view_needs_no_tower)
{
    static const struct family *const any_size[] = { &family_qwen2_5_vl, &family_qwen3_vl };
    for (int i = 0; i < 2; i++) {
        struct pair p = open_unlike(any_size[i], 1);
        struct pv_method full = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
        struct pv_method none = method(PV_DRAFT_MODEL, "none", PV_SHAPE_CHAIN);
        check_limit(&p, &full, 0, true, "a vision tower for pictures");
        CHECK(bytes_of(&p, &none, 0, true) < bytes_of(&p, &full, 0, true));
        check_limit(&p, &none, 0, true, "a drafter for a context");
        close_pair(&p);
    }
}

/* What is counted is what is held, but for tables of a few bytes a token of context and of
 * vocabulary, and for what the allocator rounds up. */
TEST(the_count_is_true)
{
    for (int i = 0; i < TINY_KINDS; i++) {
        struct pair p = open_unlike(tiny_kinds[i].family, 1);
        struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_TREE);
        size_t before = mem_bytes(), held, slack = 64 * (CONTEXT + MAX_VOCAB) + (1 << 15);
        struct pv_error err = { 0 };
        pv_session *s = open_limited(&p, 0);
        uint64_t used;
        m.accept = PV_ACCEPT_REJECTION;
        CHECK_MSG(answer_with(s, &m, 0.8f, true, &err) == PV_OK, "%s", err.text);
        used = p.target->limits.memory_bytes - budget_left(&s->budget);
        held = mem_bytes() - before;
        CHECK_MSG(held < used + slack && used < held + slack,
                  "%s: %zu bytes are held, %llu counted", tiny_kinds[i].family->title, held,
                  (unsigned long long)used);
        CHECK_MSG(used > 8 * slack, "%llu bytes are too few to tell", (unsigned long long)used);
        pv_session_close(&s);
        close_pair(&p);
    }
}

/* Rows of the video that the target's tower made are kept where there is room, and else made again:
 * `self` answers the same with no byte to spare. */
TEST(kept_rows_give_way)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    struct pv_method self = method(PV_DRAFT_SELF, "full", PV_SHAPE_TREE);
    uint64_t used = bytes_of(&p, &self, 0, true), pixels = 3 * 22 * 22 * FRAMES;
    pv_session *plain = open_limited(&p, 0), *rich = open_limited(&p, 0), *poor;
    struct answer ref = run(plain, NULL, 0), got = run(rich, &self, 0);
    CHECK(same_answer(&ref, &got, vocab_of(plain)) && rich->draft.n_features == 1);
    used += TREE_MAX * (uint64_t)vocab_of(plain) * sizeof(float); /* run() looks at logits */
    poor = open_limited(&p, used);
    got = run(poor, &self, 0);
    CHECK(same_answer(&ref, &got, vocab_of(plain)) && same_cache(plain, poor));
    CHECK_EQ(poor->draft.n_features, 0);
    /* And they are forgotten when something else wants their place: the same video once more. */
    p.target->limits.memory_bytes = used + pixels;
    got = run(rich, &self, 0);
    CHECK(same_answer(&ref, &got, vocab_of(plain)) && same_cache(plain, rich));
    CHECK_EQ(rich->draft.n_features, 0);
    pv_session_close(&plain);
    pv_session_close(&rich);
    pv_session_close(&poor);
    close_pair(&p);
}

/* What answers teach is the engine's, in a book for each kind of answer. */
TEST(what_was_learnt_is_handed_on)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_FITTED);
    pv_session *first = open_limited(&p, 0), *second = NULL;
    int greedy = price_book_of(false, false), drawn = price_book_of(true, false);
    const struct price_book *book = first->engine->book[PV_DRAFT_MODEL];
    struct pv_error err = { 0 };
    double learnt;
    CHECK_MSG(answer_with(first, &m, 0, false, &err) == PV_OK, "%s", err.text);
    learnt = book[greedy].n;
    CHECK(learnt > 0 && book[drawn].n == 0);
    if (!CHECK(!pv_engine_session(&second, first->engine, &err)))
        return;
    CHECK_MSG(answer_with(second, &m, 0, false, &err) == PV_OK, "%s", err.text);
    CHECK(book[greedy].n > learnt && book[drawn].n == 0);
    CHECK_MSG(answer_with(second, &m, 0.8f, false, &err) == PV_OK, "%s", err.text);
    CHECK(book[drawn].n > 0 && book[price_book_of(false, true)].n == 0);
    CHECK(first->engine->book[PV_DRAFT_HEAD][greedy].n == 0);
    pv_session_close(&second);
    pv_session_close(&first);
    close_pair(&p);
}

/* Every allocation of a first answer failed in turn; the session answers afterwards. */
TEST(lack_of_memory_is_a_clean_failure)
{
    static const enum pv_drafter kinds[] = { PV_DRAFT_MODEL, PV_DRAFT_SPARSE };
    struct pair p = open_unlike(&family_llava_onevision, 1);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct pv_method m = method(kinds[i], "dycoke", PV_SHAPE_CHAIN);
        enum pv_status st = PV_E_NOMEM;
        uint64_t k;
        m.accept = PV_ACCEPT_REJECTION;
        for (k = 1; st && CHECK(k < 1000); k++) {
            pv_session *s = open_limited(&p, 0);
            struct pv_error err = { 0 }, later = { 0 };
            mem_fail_at(k);
            st = answer_with(s, &m, 0.8f, true, &err);
            mem_fail_at(0);
            CHECK_MSG(!st || (st == PV_E_NOMEM && err.text[0]), "allocation %d: %s: %s", (int)k,
                      pv_status_name(st), err.text);
            pv_session_reset(s);
            CHECK_MSG(answer_with(s, &m, 0.8f, true, &later) == PV_OK, "after allocation %d: %s",
                      (int)k, later.text);
            pv_session_close(&s);
        }
        CHECK(k > 20);
    }
    close_pair(&p);
}

/* drafting_media for a draft model of which only the presence of its parts counts. */
static enum draft_media media_of(enum pv_drafter drafter, const char *view, bool tower, bool shared,
                                 bool adaptor)
{
    static char part;
    struct pv_model model = { .vision = tower ? (void *)&part : NULL,
                              .adaptor = adaptor ? (void *)&part : NULL };
    struct drafting d = { .model = &model, .shared = shared };
    return drafting_media(&d, drafter_find(drafter), pv_view_find(view));
}

TEST(what_a_drafter_gets_of_media)
{
    static const enum pv_drafter all[] = { PV_DRAFT_MODEL, PV_DRAFT_SELF, PV_DRAFT_HEAD,
                                           PV_DRAFT_NGRAM, PV_DRAFT_CASCADE };
    CHECK_EQ(media_of(PV_DRAFT_MODEL, "full", true, false, false), DRAFT_MEDIA_OWN);
    CHECK_EQ(media_of(PV_DRAFT_CASCADE, "none", true, false, false), DRAFT_MEDIA_OWN);
    CHECK_EQ(media_of(PV_DRAFT_MODEL, "full", true, true, false), DRAFT_MEDIA_TARGET);
    CHECK_EQ(media_of(PV_DRAFT_MODEL, "full", false, false, true), DRAFT_MEDIA_ADAPTED);
    CHECK_EQ(media_of(PV_DRAFT_MODEL, "full", false, false, false), DRAFT_MEDIA_HIDDEN);
    CHECK_EQ(media_of(PV_DRAFT_SELF, "full", false, false, false), DRAFT_MEDIA_TARGET);
    CHECK_EQ(media_of(PV_DRAFT_HEAD, "full", true, false, false), DRAFT_MEDIA_TARGET);
    CHECK_EQ(media_of(PV_DRAFT_NGRAM, "full", true, false, false), DRAFT_MEDIA_UNREAD);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int parts = 0; parts < 8; parts++)
            CHECK_EQ(media_of(all[i], "text", parts & 1, parts & 2, parts & 4), DRAFT_MEDIA_HIDDEN);
}

int main(int argc, char **argv)
{
    if (!lab_rows_add())
        return 1;
    return test_main(argc, argv);
}
