/* The parallel schedule: whatever the drafter and however the two sides run, the ids, the bits of
 * the logits and the cache are those of plain decoding; and every ending ends both sides. */
#include "answers.h"
#include "engine/schedule.h"
#include "family/families.h"
#include "prevue/testing.h"

#include <stdatomic.h>
#include <time.h>

enum { MAX_TRIED = 12, N_INTERLEAVINGS = 500, FEW_INTERLEAVINGS = 100 };

static struct pv_method parallel(enum pv_drafter drafter, const char *view, int window)
{
    struct pv_method m = method(drafter, view, PV_SHAPE_CHAIN);
    m.schedule = PV_SCHEDULE_PARALLEL;
    m.window = window;
    return m;
}

/* What lets the sides run in a certain order: the target's first round waits until the drafter has
 * made a token (a second at most: a drafter may have none), and then `ms` more; after that both
 * wait at random, if they are to. */
struct delays {
    atomic_bool made;
    bool waited;
    int ms;
    bool at_random;
    struct rng side[2];
};

static void sleep_ns(long ns)
{
    struct timespec t = { ns / 1000000000, ns % 1000000000 };
    nanosleep(&t, NULL);
}

static void delay(void *user, enum pv_side side)
{
    static const long choices_ns[] = { 0, 0, 0, 1000, 20000, 100000, 400000 };
    struct delays *d = user;
    long ns = d->at_random ? choices_ns[rng_next(&d->side[side]) % 7] : 0;
    if (side == PV_SIDE_DRAFTER)
        atomic_store(&d->made, true);
    if (side == PV_SIDE_MODEL && !d->waited) {
        d->waited = true;
        for (int i = 0; i < 10000 && !atomic_load(&d->made); i++)
            sleep_ns(100000);
        sleep_ns(1000000L * d->ms);
    }
    if (ns > 0)
        sleep_ns(ns);
}

/* ---- the matrix ---- */

struct matrix_run {
    struct pair pair;
    pv_session *plain, *tried;
    struct answer ref;
    struct delays delays;
    int64_t accepted, runs, rounds;
};

static struct matrix_run open_run(struct pair pair)
{
    struct matrix_run r = { .pair = pair };
    r.plain = open_session(&r.pair);
    r.tried = open_session(&r.pair);
    return r;
}

static void close_run(struct matrix_run *r)
{
    pv_session_close(&r->plain);
    pv_session_close(&r->tried);
    close_pair(&r->pair);
}

static void check(struct matrix_run *r, const struct pv_method *m, float temperature)
{
    struct answer a;
    atomic_store(&r->delays.made, false);
    r->delays.waited = false;
    r->tried->delay = (struct side_delay){ delay, &r->delays };
    a = run(r->tried, m, temperature);
    r->tried->delay = (struct side_delay){ 0 };
    r->accepted += a.stats.accepted;
    r->runs += a.stats.runs;
    r->rounds += a.stats.parallel_rounds;
    CHECK_MSG(same_answer(&r->ref, &a, vocab_of(r->tried)),
              "drafter %d view %s window %d temperature %g: other tokens or logits",
              (int)m->drafter, m->view, m->window, (double)temperature);
    CHECK_MSG(same_cache(r->plain, r->tried),
              "drafter %d view %s window %d temperature %g: another cache", (int)m->drafter,
              m->view, m->window, (double)temperature);
    CHECK(a.stats.parallel_rounds > 0 && a.stats.wasted >= 0);
    if (m->drafter == PV_DRAFT_ORACLE && m->test->errors == 0)
        CHECK_EQ(a.stats.rejections, 0);
}

static void check_windows(struct matrix_run *r, float temperature)
{
    static const char *const views[] = { "holistic", "alignment", "full" };
    static const double errors[] = { 0, 0.1, 0.5, 1 };
    for (int g = 0; g <= MAX_TRIED; g += test_brief() ? 5 : 1) {
        struct pv_method m = parallel(PV_DRAFT_MODEL, views[g % 3], g);
        check(r, &m, temperature);
        m = parallel(PV_DRAFT_MODEL, views[(g + 1) % 3], g);
        m.layer = 0.5; /* the view comes before the prefill's end */
        check(r, &m, temperature);
        m = parallel(PV_DRAFT_SELF, views[g % 3], g);
        check(r, &m, temperature);
        m = parallel(g % 2 ? PV_DRAFT_RANDOM : PV_DRAFT_NGRAM, "none", g);
        check(r, &m, temperature);
        m = parallel(PV_DRAFT_ORACLE, "none", g);
        m.test = &(struct pv_method_test){ .answer = r->ref.ids,
                                           .n_answer = r->ref.n,
                                           .errors = errors[g % 4] };
        check(r, &m, temperature);
    }
}

static void check_pair(struct pair pair)
{
    static const float temperatures[] = { 0, 0.8f };
    struct matrix_run r = open_run(pair);
    for (int t = TEST_BRIEF; t < 2; t++) {
        r.ref = run(r.plain, NULL, temperatures[t]);
        CHECK_EQ(r.ref.n, N_NEW);
        check_windows(&r, temperatures[t]);
    }
    CHECK_MSG(r.accepted > (test_brief() ? 10 : 100) && r.runs > (test_brief() ? 10 : 100),
              "%lld accepted, %lld runs", (long long)r.accepted, (long long)r.runs);
    close_run(&r);
}

TEST(llava_with_one_thread)
{
    check_pair(open_unlike(&family_llava_onevision, 1));
}

TEST(llava_with_two_threads)
{
    check_pair(open_unlike(&family_llava_onevision, 2));
}

TEST(qwen_with_one_thread)
{
    check_pair(open_unlike(&family_qwen2_5_vl, 1));
}

TEST(qwen2_with_one_thread)
{
    check_pair(open_unlike(&family_qwen2_vl, 1));
}

TEST(qwen3_with_one_thread)
{
    check_pair(open_unlike(&family_qwen3_vl, 1));
}

TEST(salmonn_with_two_threads)
{
    check_pair(open_unlike(&family_salmonn2_plus, 2));
}

TEST(qwen3_with_three_threads_and_rows_of_one_tower)
{
    check_pair(open_pair("tests/golden/qwen3_vl_video", 3));
}

TEST(qwen_with_three_threads_and_rows_of_one_tower)
{
    check_pair(open_pair("tests/golden/qwen2_5_vl_video", 3));
}

/* A draft model with threads of its own keeps them. */
TEST(a_draft_model_on_its_own_threads)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    struct matrix_run r;
    const char *path = model_file_path(p.draft->file);
    char copy[256];
    snprintf(copy, sizeof copy, "%s", path);
    pv_model_close(&p.draft);
    p.draft = open_model(copy, 2, NULL);
    r = open_run(p);
    r.ref = run(r.plain, NULL, 0);
    for (int g = 1; g <= 6; g++) {
        struct pv_method m = parallel(PV_DRAFT_MODEL, g % 2 ? "alignment" : "holistic", g);
        check(&r, &m, 0);
    }
    close_run(&r);
}

/* ---- interleavings ---- */

TEST(any_interleaving)
{
    static const char *const views[] = { "holistic", "alignment", "full", "specvlm" };
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 1));
    struct rng choose = { 5 };
    int n = test_brief() ? FEW_INTERLEAVINGS : N_INTERLEAVINGS;
    r.ref = run(r.plain, NULL, 0);
    for (int i = 0; i < n; i++) {
        struct pv_method m = parallel(i % 8 ? PV_DRAFT_MODEL : PV_DRAFT_ORACLE, views[i % 4],
                                      (int)(rng_next(&choose) % MAX_TRIED));
        m.test =
            &(struct pv_method_test){ .answer = r.ref.ids, .n_answer = r.ref.n, .errors = 0.2 };
        m.layer = i % 3 ? 0 : 1;
        r.delays.at_random = true;
        r.delays.side[0] = (struct rng){ rng_next(&choose) };
        r.delays.side[1] = (struct rng){ rng_next(&choose) };
        check(&r, &m, 0);
    }
    CHECK(r.accepted > n);
    close_run(&r);
}

/* A drafter that is ready before the target's prefill has more than a window at its end. */
TEST(startup_tokens)
{
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 1));
    struct pv_method m = parallel(PV_DRAFT_ORACLE, "none", 0);
    r.ref = run(r.plain, NULL, 0);
    m.test = &(struct pv_method_test){ .answer = r.ref.ids, .n_answer = r.ref.n };
    r.delays.ms = 500;
    check(&r, &m, 0);
    CHECK_EQ(r.tried->answer.stats.startup_tokens, 16);
    CHECK_EQ(r.tried->answer.stats.runs, 0);
    CHECK(r.tried->answer.stats.rounds < 5);
    close_run(&r);
}

/* ---- the view before the prefill's end ---- */

/* The same rows are visible whether the first layers run for themselves or not. */
TEST(early_views_are_the_same)
{
    static const char *const views[] = { "alignment", "holistic" };
    static bool visible[CONTEXT];
    for (int k = 0; k < 2 * TINY_KINDS; k++) {
        struct matrix_run r = open_run(open_unlike(tiny_kinds[k / 2].family, 2));
        struct pv_method m = method(PV_DRAFT_MODEL, views[k % 2], PV_SHAPE_CHAIN);
        int n;
        m.layer = 1;
        run(r.tried, &m, 0);
        n = r.tried->seq.answer0;
        memcpy(visible, r.tried->draft.visible, (size_t)n * sizeof *visible);
        m.schedule = PV_SCHEDULE_PARALLEL;
        run(r.tried, &m, 0);
        CHECK_EQ(r.tried->seq.answer0, n);
        CHECK(memcmp(visible, r.tried->draft.visible, (size_t)n * sizeof *visible) == 0);
        m.layer = 2; /* another view, or the test above says nothing */
        run(r.tried, &m, 0);
        CHECK(memcmp(visible, r.tried->draft.visible, (size_t)n * sizeof *visible) != 0);
        close_run(&r);
    }
}

/* ---- endings ---- */

static bool stop_after(void *user, const char *utf8, size_t len)
{
    int *left = user;
    (void)utf8, (void)len;
    return --*left > 0;
}

TEST(every_interruption)
{
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 1));
    struct pv_method m = parallel(PV_DRAFT_MODEL, "alignment", 5);
    for (int n = 1; n <= 9; n++) {
        pv_session *both[2] = { r.plain, r.tried };
        for (int i = 0; i < 2; i++) {
            struct pv_gen_params g = gen_params(0);
            struct pv_error err = { 0 };
            int left = n;
            g.method = i ? &m : NULL;
            pv_session_reset(both[i]);
            CHECK_MSG(add_prompt(both[i], 7, &err) == PV_OK, "%s", err.text);
            CHECK_EQ(pv_generate(both[i], &g, stop_after, &left, &err), PV_E_CANCELLED);
        }
        CHECK_EQ(r.plain->answer.n, r.tried->answer.n);
        CHECK_MSG(same_cache(r.plain, r.tried), "stopped after %d: another cache", n);
    }
    close_run(&r);
}

TEST(every_length)
{
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 1));
    struct pv_method m = parallel(PV_DRAFT_SELF, "full", 4);
    for (int n = 1; n <= 14; n++) {
        pv_session *both[2] = { r.plain, r.tried };
        for (int i = 0; i < 2; i++) {
            struct pv_gen_params g = gen_params(0);
            struct pv_error err = { 0 };
            g.max_new_tokens = n;
            g.method = i ? &m : NULL;
            pv_session_reset(both[i]);
            CHECK_MSG(add_prompt(both[i], 7, &err) == PV_OK, "%s", err.text);
            CHECK_MSG(pv_generate(both[i], &g, NULL, NULL, &err) == PV_OK, "%s", err.text);
            CHECK_EQ(both[i]->answer.n, n);
        }
        CHECK_MSG(same_cache(r.plain, r.tried), "%d tokens: another cache", n);
    }
    close_run(&r);
}

static bool stop_prefill(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    int *left = user;
    (void)phase, (void)done, (void)total;
    return --*left > 0;
}

/* Stopped anywhere in the prefill, in either part of it, the session can answer again. */
TEST(a_stopped_prefill)
{
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 1));
    struct pv_method m = parallel(PV_DRAFT_MODEL, "alignment", 4);
    int stops = 0;
    m.layer = 1;
    r.ref = run(r.plain, NULL, 0);
    for (int n = 1; n < 40; n++) {
        struct pv_gen_params g = gen_params(0);
        struct pv_error err = { 0 };
        struct answer a;
        int left = n;
        enum pv_status st;
        g.method = &m;
        g.progress = stop_prefill;
        g.progress_user = &left;
        pv_session_reset(r.tried);
        CHECK_MSG(add_prompt(r.tried, 7, &err) == PV_OK, "%s", err.text);
        st = pv_generate(r.tried, &g, NULL, NULL, &err);
        if (st == PV_OK)
            break;
        CHECK_EQ(st, PV_E_CANCELLED);
        stops++;
        a = run(r.tried, &m, 0);
        CHECK(same_answer(&r.ref, &a, vocab_of(r.tried)));
        CHECK(same_rows(r.plain, r.tried)); /* the video may have another key */
    }
    CHECK(stops > 4);
    close_run(&r);
}

TEST(context_runs_full)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    struct pv_method m = parallel(PV_DRAFT_MODEL, "holistic", 6);
    struct pv_error err[2] = { { 0 } };
    int told[2];
    for (int i = 0; i < 2; i++) {
        struct pv_session_params sp = pv_session_defaults();
        struct pv_gen_params g = gen_params(0);
        pv_session *s = NULL;
        sp.max_context = 90;
        sp.draft = p.draft;
        CHECK_EQ(pv_session_open(&s, p.target, &sp, &err[i]), PV_OK);
        g.max_new_tokens = 200;
        g.method = i ? &m : NULL;
        CHECK_MSG(add_prompt(s, 7, &err[i]) == PV_OK, "%s", err[i].text);
        CHECK_EQ(pv_generate(s, &g, NULL, NULL, &err[i]), PV_E_LIMIT);
        told[i] = s->answer.n;
        pv_session_close(&s);
    }
    CHECK_EQ(told[0], told[1]);
    CHECK(told[0] > 10);
    close_pair(&p);
}

/* Several turns in one session, schedules mixed. */
TEST(turns)
{
    struct matrix_run r = open_run(open_unlike(&family_qwen2_5_vl, 2));
    struct pv_method m[] = { parallel(PV_DRAFT_MODEL, "alignment", 3),
                             method(PV_DRAFT_MODEL, "specvlm", PV_SHAPE_TREE),
                             parallel(PV_DRAFT_SELF, "holistic", 0) };
    struct pv_error err = { 0 };
    CHECK_MSG(add_prompt(r.plain, 7, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(add_prompt(r.tried, 7, &err) == PV_OK, "%s", err.text);
    for (int turn = 0; turn < 6; turn++) {
        struct answer a, b;
        CHECK_MSG(generate(r.plain, NULL, 0, &a, &err) == PV_OK, "%s", err.text);
        CHECK_MSG(generate(r.tried, &m[turn % 3], 0, &b, &err) == PV_OK, "%s", err.text);
        CHECK_MSG(same_answer(&a, &b, vocab_of(r.plain)), "turn %d", turn);
        CHECK_MSG(same_cache(r.plain, r.tried), "turn %d: another cache", turn);
        CHECK_EQ(pv_add_text(r.plain, "user", "and the cat", &err), PV_OK);
        CHECK_EQ(pv_add_text(r.tried, "user", "and the cat", &err), PV_OK);
    }
    close_run(&r);
}

/* Three rounds in seven are parallel. */
static void change_choice(void *user, struct policy_choice *c)
{
    int *round = user;
    if (++*round % 7 < 3)
        *c = (struct policy_choice){ POLICY_PARALLEL, 1 + *round % 5 };
}

/* `auto` begins and leaves the parallel schedule in the middle of answers. */
TEST(automatic)
{
    enum { LONG = 200 };
    struct pair p = open_unlike(&family_llava_onevision, 4);
    pv_session *s = open_session(&p);
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    static int32_t want[LONG];
    int64_t parallel_rounds = 0, rounds = 0;
    int round = 0;
    m.automatic = true;
    s->changer = (struct choice_changer){ change_choice, &round };
    for (int i = 0; i < 4; i++) {
        struct pv_gen_params g = gen_params(i % 2 ? 0.8f : 0);
        struct pv_error err = { 0 };
        for (int k = 0; k < 2; k++) {
            struct pv_stats stats = { .size = sizeof stats };
            g.max_new_tokens = LONG;
            g.seed = (uint64_t)i;
            g.method = k ? &m : NULL;
            pv_session_reset(s);
            CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
            CHECK_MSG(pv_generate(s, &g, NULL, NULL, &err) == PV_OK, "%s", err.text);
            CHECK_EQ(s->answer.n, LONG);
            if (k == 0)
                memcpy(want, s->seq.line.ids + s->seq.answer0, sizeof want);
            CHECK(memcmp(want, s->seq.line.ids + s->seq.answer0, sizeof want) == 0);
            pv_session_stats(s, &stats);
            parallel_rounds += stats.parallel_rounds;
            rounds += stats.rounds;
        }
    }
    CHECK_MSG(parallel_rounds > 0 && parallel_rounds < rounds, "%lld of %lld rounds were parallel",
              (long long)parallel_rounds, (long long)rounds);
    pv_session_close(&s);
    close_pair(&p);
}

/* ---- beside other requests ---- */

/* Another request, which waits in the queue of the session's engine: that runs one at a time. */
struct other {
    struct scheduler *scheduler;
    struct task *task; /* NULL: it has not come yet */
    int left;          /* tokens before it comes */
};

static enum pv_status do_nothing(struct task *t, void *arg, struct pv_error *err)
{
    (void)t, (void)arg, (void)err;
    return PV_OK;
}

static void come(struct other *o)
{
    static const struct task_calls calls = { .run = do_nothing };
    CHECK_EQ(task_open(&o->task, o->scheduler, &calls, NULL, NULL), PV_OK);
}

static bool come_after(void *user, const char *utf8, size_t len)
{
    struct other *o = user;
    (void)utf8, (void)len;
    if (--o->left == 0)
        come(o);
    return true;
}

static void come_first(void *user, int64_t iteration)
{
    struct other *o = user;
    (void)iteration;
    if (!o->task)
        come(o);
}

/* An answer of N_NEW tokens; another request comes after `left` of them, or (0) at once. */
static struct pv_stats answer_beside(pv_session *s, const struct pv_method *m, int left)
{
    struct other o = { .scheduler = s->engine->scheduler, .left = left };
    struct pv_gen_params g = gen_params(0);
    struct pv_error err = { 0 };
    struct pv_stats stats = { .size = sizeof stats };
    g.method = m;
    pv_session_reset(s);
    CHECK_MSG(add_prompt(s, 7, &err) == PV_OK, "%s", err.text);
    scheduler_watch(o.scheduler, left ? NULL : come_first, &o);
    CHECK_MSG(pv_generate(s, &g, come_after, &o, &err) == PV_OK, "%s", err.text);
    scheduler_watch(o.scheduler, NULL, NULL);
    CHECK(o.task);
    task_close(&o.task);
    pv_session_stats(s, &stats);
    return stats;
}

static bool same_ids(pv_session *a, pv_session *b)
{
    size_t n, m;
    const int32_t *x = pv_session_answer(a, &n), *y = pv_session_answer(b, &m);
    return n == m && memcmp(x, y, n * sizeof *x) == 0;
}

/* The parallel schedule does not start beside another request, and stops when one comes; the text
 * stays the same. */
TEST(other_requests)
{
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 2));
    struct pv_method m[] = { parallel(PV_DRAFT_MODEL, "alignment", 4),
                             parallel(PV_DRAFT_MODEL, "none", 0),
                             parallel(PV_DRAFT_SELF, "holistic", 3),
                             parallel(PV_DRAFT_NGRAM, "none", 0) };
    int64_t switched = 0;
    r.ref = run(r.plain, NULL, 0);
    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
        for (int left = 0; left < 6; left++) {
            struct pv_stats stats = answer_beside(r.tried, &m[i], left);
            CHECK_MSG(same_ids(r.plain, r.tried) && same_cache(r.plain, r.tried),
                      "method %zu, another request after %d tokens", i, left);
            CHECK(left > 1 || stats.parallel_rounds == 0);
            CHECK(stats.parallel_rounds < stats.rounds);
            switched += stats.parallel_rounds > 0;
        }
    CHECK(switched > 0);
    close_run(&r);
}

TEST(other_requests_beside_automatic)
{
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 4));
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    int64_t switched = 0;
    int round = 0;
    m.automatic = true;
    r.ref = run(r.plain, NULL, 0);
    r.tried->changer = (struct choice_changer){ change_choice, &round };
    for (int left = 0; left < 12; left++) {
        struct pv_stats stats = answer_beside(r.tried, &m, left);
        CHECK(same_ids(r.plain, r.tried) && same_cache(r.plain, r.tried));
        CHECK(left > 0 || stats.parallel_rounds == 0);
        switched += stats.parallel_rounds > 0;
    }
    CHECK(switched > 0);
    close_run(&r);
}

/* ---- drafters that fail ---- */

static atomic_int proposals_left;
static enum pv_status (*real_propose)(struct drafter *d, const struct draft_request *r,
                                      struct pv_error *err);

static enum pv_status propose_or_fail(struct drafter *d, const struct draft_request *r,
                                      struct pv_error *err)
{
    if (atomic_fetch_sub(&proposals_left, 1) <= 0)
        return fail(err, PV_E_LIMIT, "the drafter has had enough");
    return real_propose(d, r, err);
}

/* The model's rounds are slow until the drafter has failed. */
static void wait_for_failure(void *user, enum pv_side side)
{
    (void)user;
    if (side != PV_SIDE_MODEL)
        return;
    for (int i = 0; i < 500 && atomic_load(&proposals_left) >= 0; i++)
        sleep_ns(100000);
    sleep_ns(2000000);
}

/* The model is fine: what was told is right, and the next answer is whole. */
TEST(a_failing_drafter)
{
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 2));
    struct pv_method m = parallel(PV_DRAFT_MODEL, "full", 3);
    struct drafter *d;
    r.ref = run(r.plain, NULL, 0);
    check(&r, &m, 0);
    d = r.tried->draft.drafter[PV_DRAFT_MODEL];
    real_propose = d->propose;
    for (int n = 0; n < 8; n += 3) {
        struct answer a;
        struct pv_error err = { 0 };
        atomic_store(&proposals_left, n);
        d->propose = propose_or_fail;
        r.tried->delay = (struct side_delay){ wait_for_failure, NULL };
        pv_session_reset(r.tried);
        CHECK_EQ(add_prompt(r.tried, 7, &err), PV_OK);
        CHECK_EQ(generate(r.tried, &m, 0, &a, &err), PV_E_DRAFTER);
        CHECK(strcmp(err.text, "the drafter has had enough") == 0);
        CHECK(a.n > 0 && a.n < r.ref.n && !memcmp(a.ids, r.ref.ids, a.n * sizeof *a.ids));
        d->propose = real_propose;
        check(&r, &m, 0);
    }
    close_run(&r);
}

static void only_parallel(void *user, struct policy_choice *c)
{
    (void)user;
    *c = (struct policy_choice){ POLICY_PARALLEL, 3 };
}

/* `auto` goes on without it. */
TEST(a_failing_drafter_of_automatic)
{
    struct matrix_run r = open_run(open_unlike(&family_llava_onevision, 4));
    struct pv_method m = method(PV_DRAFT_MODEL, "full", PV_SHAPE_CHAIN);
    struct answer a;
    struct drafter *d;
    m.automatic = true;
    r.ref = run(r.plain, NULL, 0);
    r.tried->changer = (struct choice_changer){ only_parallel, NULL };
    a = run(r.tried, &m, 0);
    CHECK(a.stats.parallel_rounds > 0);
    d = r.tried->draft.drafter[PV_DRAFT_MODEL];
    real_propose = d->propose;
    d->propose = propose_or_fail;
    for (int n = 0; n < 4; n++) {
        atomic_store(&proposals_left, n);
        a = run(r.tried, &m, 0);
        CHECK(same_answer(&r.ref, &a, vocab_of(r.tried)) && same_cache(r.plain, r.tried));
    }
    d->propose = real_propose;
    close_run(&r);
}

TEST(wrong_methods)
{
    struct pair p = open_pair("tests/golden/llava_onevision", 1);
    pv_session *s = open_session(&p);
    struct pv_method m[] = { parallel(PV_DRAFT_SPARSE, "full", 4),
                             parallel(PV_DRAFT_MODEL, "full", 4),
                             parallel(PV_DRAFT_MODEL, "full", 4),
                             parallel(PV_DRAFT_MODEL, "alignment", 4) };
    m[1].shape = PV_SHAPE_TREE;
    m[2].draft_threads = -1;
    m[3].layer = -2;
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        struct answer a;
        struct pv_error err = { 0 };
        pv_session_reset(s);
        CHECK_EQ(add_prompt(s, 7, &err), PV_OK);
        CHECK_EQ(generate(s, &m[i], 0, &a, &err), PV_E_ARG);
        CHECK(err.text[0] != '\0');
    }
    pv_session_close(&s);
    close_pair(&p);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
