/* Models and sessions through the public header: answers are those of plain stepping, whatever the
 * chunk, the threads, what was asked before or who asks beside; limits, cancelling and lack of
 * memory leave a session that can go on. */
#include "base/cpu.h"
#include "engine/model.h"
#include "lm/sampling.h"
#include "small_session.h"

#include <pthread.h>

/* ---- answers ---- */

/* The loop of a session, by hand. */
static void step_by_hand(const char *path, const int32_t *prompt, struct pv_gen_params p,
                         int32_t *out)
{
    struct rig_shape shape = { .level = cpu_level_best(),
                               .threads = 1,
                               .kv = DTYPE_BF16,
                               .max_rows = N_PROMPT,
                               .context = 512 };
    struct sampling how = { p.temperature, p.top_k, p.top_p, p.min_p, p.seed };
    static struct candidate scratch[VOCAB];
    static float logits[N_PROMPT * VOCAB];
    struct rig r;
    if (!rig_open(&r, path, shape))
        return;
    rig_feed(&r, prompt, N_PROMPT, N_PROMPT, logits);
    out[0] = sample_token(logits + (N_PROMPT - 1) * VOCAB, VOCAB, &how, N_PROMPT, scratch);
    for (int i = 1; i < p.max_new_tokens; i++) {
        rig_feed(&r, &out[i - 1], 1, 1, logits);
        out[i] = sample_token(logits, VOCAB, &how, (uint64_t)(N_PROMPT + i), scratch);
    }
    rig_close(&r);
}

TEST(answers_are_those_of_plain_stepping)
{
    const char *path = path_of(false, 0);
    int32_t prompt[N_PROMPT], want[N_NEW], got[N_NEW];
    pv_model *m = open_model(path, 2);
    int different = 0;
    make_prompt(prompt, N_PROMPT, 1);
    for (int i = 0; i < 4; i++) {
        struct pv_gen_params p = i == 0 ? greedy(N_NEW) : sampled(N_NEW, (uint64_t)i);
        step_by_hand(path, prompt, p, want);
        CHECK_EQ(fresh_answer(m, prompt, N_PROMPT, p, got), N_NEW);
        CHECK(same_ids(want, got, N_NEW));
        for (int k = 1; k < N_NEW; k++)
            different += got[k] != got[0];
    }
    CHECK(different > N_NEW); /* an answer of one id would show little */
    pv_model_close(&m);
    CHECK(m == NULL);
}

TEST(chunk_and_threads_change_nothing)
{
    static const int chunks[] = { 1, 7, 29, 30, 0 };
    const char *path = path_of(false, 0);
    int32_t prompt[N_PROMPT], want[N_NEW], got[N_NEW];
    make_prompt(prompt, N_PROMPT, 2);
    for (int threads = 1; threads <= 3; threads++) {
        pv_model *m = open_model(path, threads);
        for (int i = 0; i < 5; i++) {
            pv_session *s = open_session(m, 300, chunks[i]);
            CHECK_EQ(pv_add_ids(s, prompt, N_PROMPT, NULL), PV_OK);
            CHECK_EQ(answer(s, sampled(N_NEW, 5), got), N_NEW);
            if (threads == 1 && i == 0)
                memcpy(want, got, sizeof want);
            CHECK_MSG(same_ids(want, got, N_NEW), "%d threads, chunk %d", threads, chunks[i]);
            pv_session_close(&s);
        }
        pv_model_close(&m);
    }
}

TEST(every_kv_type_and_cpu_mask_answers)
{
    static const enum pv_kv_type types[] = { PV_KV_AUTO, PV_KV_F16, PV_KV_BF16, PV_KV_F32,
                                             PV_KV_FP8 };
    const char *path = path_of(false, 0);
    int32_t prompt[N_PROMPT], ids[4];
    make_prompt(prompt, N_PROMPT, 2);
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int i = 0; i < 5; i++) {
            struct pv_model_params mp = pv_model_defaults();
            struct pv_session_params sp = pv_session_defaults();
            pv_model *m = NULL;
            pv_session *s = NULL;
            mp.path = path;
            mp.threads = 1;
            mp.cpu_mask = cpu_levels[level].flags; /* of what is not there nothing is used */
            sp.kv_type = types[i];
            if (!CHECK(!pv_model_open(&m, &mp, NULL) && !pv_session_open(&s, m, &sp, NULL)))
                return;
            CHECK_EQ(pv_add_ids(s, prompt, N_PROMPT, NULL), PV_OK);
            CHECK_EQ(answer(s, greedy(4), ids), 4);
            pv_session_close(&s);
            pv_model_close(&m);
        }
}

/* F16 and F32 weights are not to be made less exact by their cache; of the others the faster type
 * serves. */
TEST(the_cache_is_as_exact_as_the_weights)
{
    static const enum dtype weights[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0 };
    for (int i = 0; i < 4; i++)
        for (int level = 0; level < N_CPU_LEVELS; level++) {
            uint64_t flags = cpu_levels[level].flags & cpu_flags();
            bool fast = flags & (CPU_AVX512_BF16 | CPU_AMX | CPU_BF16);
            struct tiny_model t = small;
            struct pv_model_params p = pv_model_defaults();
            pv_model *m = NULL;
            char path[256];
            t.type = weights[i];
            p.path = tiny_model_write(&t, dtype_name(weights[i]), path);
            p.cpu_mask = cpu_levels[level].flags;
            if (!CHECK(!pv_model_open(&m, &p, NULL)))
                return;
            CHECK_EQ(model_kv_dtype(m, PV_KV_AUTO), i >= 2 && fast ? DTYPE_BF16 : DTYPE_F16);
            CHECK_EQ(model_kv_dtype(m, PV_KV_BF16), DTYPE_BF16);
            CHECK_EQ(model_kv_dtype(m, PV_KV_F32), DTYPE_F32);
            pv_model_close(&m);
        }
}

/* ---- the timeline ---- */

TEST(a_second_question_reuses_the_first)
{
    const char *path = path_of(false, 0);
    pv_model *m = open_model(path, 2);
    pv_session *s = open_session(m, 512, 8);
    int32_t timeline[200], got[N_NEW], want[N_NEW];
    struct pv_stats stats = { .size = sizeof stats };
    int n = N_PROMPT;
    make_prompt(timeline, N_PROMPT, 3);
    CHECK_EQ(pv_add_ids(s, timeline, N_PROMPT, NULL), PV_OK);
    CHECK_EQ(answer(s, greedy(N_NEW), timeline + n), N_NEW);
    n += N_NEW;
    pv_session_stats(s, &stats);
    CHECK(stats.prompt_tokens == N_PROMPT && stats.reused_tokens == 0);
    CHECK(stats.tokens == N_NEW && stats.passes == N_NEW);
    CHECK(stats.prefill_s > 0 && stats.decode_s > 0);

    make_prompt(timeline + n, 5, 4);
    CHECK_EQ(pv_add_ids(s, timeline + n, 5, NULL), PV_OK);
    n += 5;
    CHECK_EQ(answer(s, greedy(N_NEW), got), N_NEW);
    pv_session_stats(s, &stats);
    CHECK_EQ(stats.prompt_tokens, n);
    CHECK_EQ(stats.reused_tokens, N_PROMPT + N_NEW - 1); /* the last token was never run */
    CHECK_EQ(fresh_answer(m, timeline, n, greedy(N_NEW), want), N_NEW);
    CHECK(same_ids(got, want, N_NEW));

    pv_session_reset(s); /* the same prompt again: all but its last token is there */
    CHECK_EQ(pv_add_ids(s, timeline, N_PROMPT, NULL), PV_OK);
    CHECK_EQ(answer(s, greedy(N_NEW), got), N_NEW);
    CHECK(same_ids(got, timeline + N_PROMPT, N_NEW));
    pv_session_stats(s, &stats);
    CHECK_EQ(stats.reused_tokens, N_PROMPT - 1);

    for (int at = 0; at < N_PROMPT; at += 7) { /* prompts that share their beginning */
        pv_session_reset(s);
        timeline[at] = (timeline[at] + 1) % 256;
        CHECK_EQ(pv_add_ids(s, timeline, N_PROMPT, NULL), PV_OK);
        CHECK_EQ(answer(s, greedy(N_NEW), got), N_NEW);
        pv_session_stats(s, &stats);
        CHECK_EQ(stats.reused_tokens, at);
        CHECK_EQ(fresh_answer(m, timeline, N_PROMPT, greedy(N_NEW), want), N_NEW);
        CHECK(same_ids(got, want, N_NEW));
    }
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(cancelling_keeps_the_timeline)
{
    const char *path = path_of(false, 0);
    pv_model *m = open_model(path, 2);
    pv_session *s = open_session(m, 512, 0);
    struct heard h = { .stop_after = 7 };
    struct pv_gen_params p = greedy(N_NEW);
    struct pv_error err = { 0 };
    int32_t timeline[100], whole[N_NEW], rest[N_NEW];
    const int32_t *ids;
    size_t n = 0;
    make_prompt(timeline, N_PROMPT, 6);
    fresh_answer(m, timeline, N_PROMPT, p, whole);
    CHECK_EQ(pv_add_ids(s, timeline, N_PROMPT, NULL), PV_OK);
    CHECK_EQ(pv_generate(s, &p, hear, &h, &err), PV_E_CANCELLED);
    CHECK(err.code == PV_E_CANCELLED && strstr(err.text, "7 tokens"));
    ids = pv_session_answer(s, &n);
    CHECK(n == 7 && same_ids(ids, whole, 7));
    CHECK_EQ(answer(s, greedy(N_NEW - 7), rest), N_NEW - 7); /* goes on where it was stopped */
    CHECK(same_ids(rest, whole + 7, N_NEW - 7));
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(stop_tokens_end_the_answer)
{
    int32_t prompt[N_PROMPT], whole[N_NEW], got[N_NEW];
    pv_model *m = open_model(path_of(false, 0), 2);
    struct pv_gen_params p = sampled(N_NEW, 12);
    struct pv_stats stats = { .size = sizeof stats };
    int at = 5;
    make_prompt(prompt, N_PROMPT, 8);
    fresh_answer(m, prompt, N_PROMPT, p, whole);
    pv_model_close(&m);
    for (int i = 0; i < at; i++) /* the first of its kind, and not 0, which names none */
        if (whole[i] == whole[at] || whole[at] == 0) {
            at++;
            i = -1;
        }
    if (!CHECK(at < N_NEW))
        return;
    m = open_model(path_of(false, whole[at]), 2);
    pv_session *s = open_session(m, 512, 0);
    p.ignore_stop = false;
    CHECK_EQ(pv_add_ids(s, prompt, N_PROMPT, NULL), PV_OK);
    CHECK_EQ(answer(s, p, got), at);
    CHECK(same_ids(got, whole, at));
    pv_session_stats(s, &stats);
    CHECK_EQ(stats.tokens, at);
    /* The stop token is not in the timeline: the same answer comes again as a continuation. */
    CHECK_EQ(pv_add_ids(s, &whole[at], 1, NULL), PV_OK);
    p.ignore_stop = true;
    p.max_new_tokens = N_NEW - at - 1;
    CHECK_EQ(answer(s, p, got), N_NEW - at - 1);
    CHECK(same_ids(got, whole + at + 1, N_NEW - at - 1));
    pv_session_close(&s);
    CHECK_EQ(fresh_answer(m, prompt, N_PROMPT, sampled(N_NEW, 12), got), N_NEW); /* ignored */
    CHECK(same_ids(got, whole, N_NEW));
    pv_model_close(&m);
}

/* ---- limits ---- */

static void refuse_session(pv_model *m, struct pv_session_params p, enum pv_status code,
                           const char *word)
{
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    enum pv_status st;
    p.size = sizeof p;
    st = pv_session_open(&s, m, &p, &err);
    CHECK_MSG(st == code && err.code == code && s == NULL, "%s for \"%s\"", pv_status_name(st),
              word);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
    pv_session_close(&s);
}

TEST(sessions_beyond_the_limits_are_refused)
{
    struct pv_model_params mp = pv_model_defaults();
    pv_model *m = NULL;
    mp.path = path_of(false, 0);
    mp.limits.context_tokens = 1000;
    mp.limits.memory_bytes = 1000000;
    if (!CHECK(!pv_model_open(&m, &mp, NULL)))
        return;
    CHECK(pv_model_max_context(m) == 1000 && pv_model_vocab_size(m) == VOCAB);
    CHECK(!pv_model_has_tokenizer(m));
    refuse_session(m, (struct pv_session_params){ .max_context = 1001, .chunk = 1 }, PV_E_LIMIT,
                   "1001 tokens was asked for, 1 to 1000");
    refuse_session(m, (struct pv_session_params){ .max_context = -1 }, PV_E_LIMIT, "-1 tokens");
    refuse_session(m, (struct pv_session_params){ .max_context = 10, .chunk = -1 }, PV_E_ARG,
                   "steps of -1 rows");
    refuse_session(m, (struct pv_session_params){ .max_context = 10, .chunk = 9000 }, PV_E_ARG,
                   "steps of 9000 rows");
    refuse_session(m, (struct pv_session_params){ .max_context = 1000, .chunk = 512 }, PV_E_LIMIT,
                   "the limit is 1000000");
    refuse_session(m, (struct pv_session_params){ .max_context = 10, .kv_type = 9 }, PV_E_ARG,
                   "type 9");
    refuse_session(m, (struct pv_session_params){ .max_context = 10, .kv_type = -1 }, PV_E_ARG,
                   "type -1");
    pv_model_close(&m);
}

TEST(requests_without_meaning_are_refused)
{
    pv_model *m = open_model(path_of(false, 0), 1);
    pv_session *s = open_session(m, 40, 0);
    struct pv_gen_params p = greedy(3);
    struct pv_error err = { 0 };
    int32_t prompt[41], whole[8], got[8];
    make_prompt(prompt, 41, 9);
    refuse_generate(s, p, PV_E_ARG, "the prompt is empty");
    CHECK_EQ(pv_add_ids(s, prompt, 0, NULL), PV_OK);
    refuse_generate(s, p, PV_E_ARG, "the prompt is empty");
    CHECK_EQ(pv_add_ids(s, prompt, N_PROMPT, NULL), PV_OK);
    p.max_new_tokens = 0;
    refuse_generate(s, p, PV_E_ARG, "0 new tokens");
    p.max_new_tokens = -3;
    refuse_generate(s, p, PV_E_ARG, "-3 new tokens");
    p = greedy(3);
    p.temperature = -1;
    refuse_generate(s, p, PV_E_ARG, "temperature");
    p = greedy(3);
    p.top_p = 2;
    refuse_generate(s, p, PV_E_ARG, "top-p");

    /* Ids that are none, or too many: nothing is added. */
    CHECK_EQ(pv_add_ids(s, (const int32_t[]){ 1, VOCAB }, 2, &err), PV_E_ARG);
    CHECK(strstr(err.text, "272 is not in the vocabulary of 272"));
    CHECK_EQ(pv_add_ids(s, (const int32_t[]){ -1 }, 1, NULL), PV_E_ARG);
    err = (struct pv_error){ 0 };
    CHECK_EQ(pv_add_ids(s, prompt, 11, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "11 tokens after 30 do not fit a context of 40"), "%s", err.text);
    fresh_answer(m, prompt, N_PROMPT, greedy(8), whole);
    CHECK_EQ(answer(s, greedy(8), got), 8);
    CHECK(same_ids(whole, got, 8));
    pv_session_close(&s);
    CHECK(s == NULL);
    pv_session_close(&s);
    pv_model_close(&m);
}

/* The context fills up to its last slot, says so, and what came until then stays. */
TEST(a_full_context_ends_the_answer)
{
    pv_model *m = open_model(path_of(false, 0), 1);
    pv_session *s = open_session(m, 40, 0);
    struct pv_gen_params p = greedy(50);
    struct pv_error err = { 0 };
    int32_t prompt[40], whole[10], got[10];
    size_t n = 0;
    make_prompt(prompt, 40, 10);
    fresh_answer(m, prompt, N_PROMPT, greedy(10), whole);
    CHECK_EQ(pv_add_ids(s, prompt, N_PROMPT, NULL), PV_OK);
    CHECK_EQ(pv_generate(s, &p, NULL, NULL, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "the context of 40 tokens is full after 10"), "%s", err.text);
    const int32_t *ids = pv_session_answer(s, &n);
    CHECK(n == 10 && same_ids(ids, whole, 10));
    refuse_generate(s, p, PV_E_LIMIT, "40 tokens leaves no room");
    CHECK_EQ(pv_add_ids(s, prompt, 1, NULL), PV_E_LIMIT);

    pv_session_reset(s); /* exactly full is no failure */
    pv_session_answer(s, &n);
    CHECK_EQ(n, 0);
    CHECK_EQ(pv_add_ids(s, prompt, N_PROMPT, NULL), PV_OK);
    CHECK_EQ(answer(s, greedy(10), got), 10);
    CHECK(same_ids(got, whole, 10));
    pv_session_reset(s);
    CHECK_EQ(pv_add_ids(s, prompt, 40, NULL), PV_OK); /* no room for an answer */
    refuse_generate(s, p, PV_E_LIMIT, "40 tokens leaves no room");
    pv_session_close(&s);
    pv_model_close(&m);
}

static void refuse_model(struct pv_model_params p, enum pv_status code, const char *word)
{
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    enum pv_status st = pv_model_open(&m, &p, &err);
    CHECK_MSG(st == code && m == NULL, "%s for \"%s\"", pv_status_name(st), word);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
    pv_model_close(&m);
}

TEST(models_that_cannot_open_are_refused)
{
    struct pv_model_params p = pv_model_defaults();
    refuse_model(p, PV_E_ARG, "path");
    p.path = "/nowhere/model.gguf";
    refuse_model(p, PV_E_IO, "/nowhere/model.gguf");
    p.path = path_of(false, 0);
    p.threads = -1;
    refuse_model(p, PV_E_ARG, "-1 threads");
    p.threads = 257;
    refuse_model(p, PV_E_ARG, "257 threads");
    p.threads = 1;
    p.limits.file_bytes = 1000;
    refuse_model(p, PV_E_LIMIT, "1000");
}

/* ---- two at once ---- */

struct asker {
    pv_model *model;
    uint64_t seed;
    int32_t prompt[N_PROMPT], got[3][N_NEW];
};

static void *ask_thrice(void *arg)
{
    struct asker *a = arg;
    pv_session *s = NULL;
    struct pv_session_params sp = pv_session_defaults();
    sp.max_context = 512;
    sp.chunk = 4;
    sp.kv_type = PV_KV_BF16;
    if (pv_session_open(&s, a->model, &sp, NULL))
        return NULL;
    for (int i = 0; i < 3; i++) {
        struct pv_gen_params p = sampled(N_NEW, a->seed);
        size_t n = 0;
        pv_session_reset(s);
        pv_add_ids(s, a->prompt + i, (size_t)(N_PROMPT - i), NULL);
        if (pv_generate(s, &p, NULL, NULL, NULL) == PV_OK)
            memcpy(a->got[i], pv_session_answer(s, &n), sizeof a->got[i]);
    }
    pv_session_close(&s);
    return arg;
}

TEST(sessions_side_by_side_answer_as_alone)
{
    pv_model *m = open_model(path_of(false, 0), 2);
    static struct asker askers[3];
    pthread_t threads[3];
    int32_t want[N_NEW];
    for (int i = 0; i < 3; i++) {
        askers[i] = (struct asker){ .model = m, .seed = (uint64_t)i };
        make_prompt(askers[i].prompt, N_PROMPT, 20 + (uint64_t)i);
        CHECK_EQ(pthread_create(&threads[i], NULL, ask_thrice, &askers[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            fresh_answer(m, askers[i].prompt + k, N_PROMPT - k, sampled(N_NEW, (uint64_t)i), want);
            CHECK(same_ids(want, askers[i].got[k], N_NEW));
        }
    pv_model_close(&m);
}

#ifndef PV_CORE

/* ---- torture ---- */

/* Open, ask and describe, with one allocation failing. Returns the first failure; text of the
 * answer in h. */
static enum pv_status whole_life(const char *path, struct heard *h, struct pv_error *err)
{
    struct pv_model_params mp = pv_model_defaults();
    struct pv_session_params sp = pv_session_defaults();
    struct pv_gen_params gp = sampled(12, 1);
    pv_model *m = NULL;
    pv_session *s = NULL;
    char *described = NULL;
    mp.path = path;
    mp.threads = 2;
    sp.max_context = 128;
    enum pv_status st = pv_model_open(&m, &mp, err);
    CHECK((st == PV_OK) == (m != NULL));
    if (!st) {
        st = pv_model_describe(m, 0, true, true, &described, err);
        CHECK((st == PV_OK) == (described != NULL));
    }
    if (!st) {
        st = pv_session_open(&s, m, &sp, err);
        CHECK((st == PV_OK) == (s != NULL));
    }
    if (!st)
        st = pv_add_text(s, "user", "hi there", err);
    if (!st)
        st = pv_generate(s, &gp, hear, h, err);
    pv_free(described);
    pv_session_close(&s);
    pv_model_close(&m);
    return st;
}

TEST(lack_of_memory_anywhere_is_a_clean_failure)
{
    char path[256];
    struct tiny_model t = small;
    struct heard good = { 0 };
    int failures = 0;
    t.tokenizer = true;
    t.chat_template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
                      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
                      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    tiny_model_write(&t, "torture", path);
    CHECK_EQ(whole_life(path, &good, NULL), PV_OK);
    for (uint64_t k = 1; k < 100000; k++) {
        struct heard h = { 0 };
        struct pv_error err = { 0 };
        uint64_t before = mem_count();
        mem_fail_at(k);
        enum pv_status st = whole_life(path, &h, &err);
        mem_fail_at(0);
        if (!st) /* an answer is the whole answer, though something had to do without memory */
            CHECK_STR(h.text, good.text);
        else
            CHECK_MSG(st == PV_E_NOMEM && err.code == st && err.text[0],
                      "allocation %llu: %s \"%s\"", (unsigned long long)k, pv_status_name(st),
                      err.text);
        failures += st != PV_OK;
        if (mem_count() - before < k)
            break;
    }
    CHECK_MSG(failures > 50, "%d failures", failures);
}

#endif

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
