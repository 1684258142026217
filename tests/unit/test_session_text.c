/* The text of sessions: messages by the chat template, answers as they are streamed, and what
 * happens between characters and between messages. */
#include "small_session.h"

TEST(words_need_a_tokenizer)
{
    pv_model *m = open_model(path_of(false, 0), 1);
    pv_session *s = open_session(m, 64, 0);
    struct pv_error err = { 0 };
    size_t n = 5;
    CHECK_EQ(pv_add_text(s, "user", "hi", &err), PV_E_UNSUPPORTED);
    CHECK(strstr(err.text, "tokenizer"));
    CHECK_EQ(pv_tokenize(m, "hi", 2, true, NULL, 0, &n, NULL), PV_E_UNSUPPORTED);
    CHECK(pv_token_bytes(m, 65, &n) == NULL);
    refuse_generate(s, greedy(1), PV_E_ARG, "the prompt is empty"); /* nothing was added */
    pv_session_close(&s);
    pv_model_close(&m);
}

#ifndef PV_CORE

static size_t ids_of(pv_model *m, const char *text, int32_t *ids, size_t cap)
{
    struct pv_error err = { 0 };
    size_t n = 0;
    CHECK_MSG(!pv_tokenize(m, text, strlen(text), true, ids, cap, &n, &err), "%s", err.text);
    return n;
}

/* The text of ids all at once: bytes that are no UTF-8 become U+FFFD, one for each longest
 * beginning of a character. */
static void text_of(pv_model *m, const int32_t *ids, int n, char *out)
{
    char bytes[4096];
    size_t len = 0, at = 0, end = 0;
    for (int i = 0; i < n; i++) {
        size_t size = 0;
        const char *b = pv_token_bytes(m, ids[i], &size);
        if (b && (ids[i] < TINY_ENDOFTEXT)) /* control tokens are not shown */
            memcpy(bytes + len, b, size);
        len += b && ids[i] < TINY_ENDOFTEXT ? size : 0;
    }
    while (at < len) {
        uint32_t cp;
        int size = utf8_decode(bytes + at, len - at, &cp);
        if (size > 0) {
            memcpy(out + end, bytes + at, (size_t)size);
            end += (size_t)size;
            at += (size_t)size;
            continue;
        }
        size_t bad = 1;
        while (at + bad < len && utf8_decode(bytes + at, bad + 1, &cp) < 0)
            bad++;
        memcpy(out + end, "\xef\xbf\xbd", 3);
        end += 3;
        at += bad;
    }
    out[end] = 0;
}

TEST(streamed_text_is_the_text_of_the_ids)
{
    pv_model *m = open_model(path_of(true, 0), 2);
    CHECK(pv_model_has_tokenizer(m));
    for (uint64_t seed = 0; seed < 12; seed++) {
        pv_session *s = open_session(m, 512, 0);
        struct heard h = { 0 };
        struct pv_gen_params p = sampled(100, seed);
        static char want[4096];
        size_t n = 0;
        p.temperature = 4;
        p.top_k = 0;
        p.top_p = 1;
        CHECK_EQ(pv_add_text(s, "user", "h\xc3\xa9llo in the caf\xc3\xa9", NULL), PV_OK);
        CHECK_EQ(pv_generate(s, &p, hear, &h, NULL), PV_OK);
        const int32_t *ids = pv_session_answer(s, &n);
        CHECK_EQ(n, 100);
        text_of(m, ids, (int)n, want);
        CHECK_STR(h.text, want);
        pv_session_close(&s);
    }
    pv_model_close(&m);
}

TEST(messages_are_written_in_the_template)
{
    pv_model *m = open_model(path_of(true, 0), 1);
    pv_session *s = open_session(m, 512, 0);
    int32_t ids[256], got[N_NEW], want[N_NEW];
    struct pv_stats stats = { .size = sizeof stats };
    struct pv_error err = { 0 };
    size_t n = ids_of(m,
                      "<|im_start|>system\nbe the one<|im_end|>\n<|im_start|>user\nhi "
                      "there<|im_end|>\n<|im_start|>assistant\n",
                      ids, 256);
    CHECK_EQ(pv_add_text(s, "system", "be the one", NULL), PV_OK);
    CHECK_EQ(pv_add_text(s, "owl", "hoo", &err), PV_E_ARG); /* and nothing is added */
    CHECK(strstr(err.text, "owl"));
    CHECK_EQ(pv_add_text(s, "user", "hi there", NULL), PV_OK);
    CHECK_EQ(answer(s, sampled(N_NEW, 2), got), N_NEW);
    pv_session_stats(s, &stats);
    CHECK_EQ(stats.prompt_tokens, (int64_t)n);
    CHECK_EQ(fresh_answer(m, ids, (int)n, sampled(N_NEW, 2), want), N_NEW);
    CHECK(same_ids(got, want, N_NEW));

    /* The answer is closed, so another message can follow. */
    memcpy(ids + n, got, sizeof got);
    n += N_NEW;
    n += ids_of(m, "<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n", ids + n,
                256 - n);
    CHECK_EQ(pv_add_text(s, "user", "and?", NULL), PV_OK);
    CHECK_EQ(answer(s, sampled(N_NEW, 3), got), N_NEW);
    pv_session_stats(s, &stats);
    CHECK_EQ(stats.prompt_tokens, (int64_t)n);
    CHECK_EQ(fresh_answer(m, ids, (int)n, sampled(N_NEW, 3), want), N_NEW);
    CHECK(same_ids(got, want, N_NEW));
    pv_session_close(&s);
    pv_model_close(&m);
}

/* What Qwen3's template renders for this talk with enable_thinking on (the default) and off. */
#define THOUGHT "<|im_start|>user\nhi there<|im_end|>\n<|im_start|>assistant\n"
#define NO_THOUGHT THOUGHT "<think>\n\n</think>\n\n"
#define TEMPLATE(ASK)                                                                              \
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content "   \
    "+ '<|im_end|>' + '\\n' }}{%- endfor %}{%- if add_generation_prompt %}"                        \
    "{{- '<|im_start|>assistant\\n" ASK "{%- endif %}"
#define WITH_SWITCH                                                                                \
    TEMPLATE("' }}{%- if enable_thinking is defined and enable_thinking is false %}"               \
             "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}")

static pv_model *open_template(const char *template)
{
    struct tiny_model t = small;
    char path[256];
    t.tokenizer = true;
    t.chat_template = template;
    return open_model(tiny_model_write(&t, "template", path), 1);
}

/* The prompt of an answer is this text. */
static void check_prompt(pv_model *m, pv_session *s, const char *want)
{
    int32_t ids[128], got[N_NEW], expected[N_NEW];
    size_t n = ids_of(m, want, ids, 128);
    struct pv_stats stats = { .size = sizeof stats };
    CHECK_EQ(pv_add_text(s, "user", "hi there", NULL), PV_OK);
    CHECK_EQ(answer(s, sampled(N_NEW, 2), got), N_NEW);
    pv_session_stats(s, &stats);
    CHECK_EQ(stats.prompt_tokens, (int64_t)n);
    CHECK_EQ(fresh_answer(m, ids, (int)n, sampled(N_NEW, 2), expected), N_NEW);
    CHECK(same_ids(got, expected, N_NEW));
    pv_session_reset(s);
}

TEST(thinking_can_be_switched_off)
{
    pv_model *m = open_template(WITH_SWITCH);
    pv_session *s = open_session(m, 256, 0);
    struct pv_chat_options o = pv_chat_defaults();
    check_prompt(m, s, THOUGHT);
    o.no_thinking = true;
    CHECK_EQ(pv_session_chat(s, &o, NULL), PV_OK);
    check_prompt(m, s, NO_THOUGHT);
    check_prompt(m, s, NO_THOUGHT); /* a reset keeps it */
    o.size++;
    o.no_thinking = false;
    CHECK_EQ(pv_session_chat(s, &o, NULL), PV_E_ARG);
    check_prompt(m, s, NO_THOUGHT);
    o.size--;
    CHECK_EQ(pv_session_chat(s, &o, NULL), PV_OK);
    check_prompt(m, s, THOUGHT);
    pv_session_close(&s);
    pv_model_close(&m);
}

static int64_t request_prompt(pv_model *m, const struct pv_chat_options *chat)
{
    struct pv_engine_params ep = pv_engine_defaults();
    struct pv_request_params p = pv_request_defaults();
    struct pv_part part = { .text = "hi there" };
    struct pv_message message = { "user", &part, 1 };
    struct pv_gen_params g = greedy(1);
    struct pv_stats stats = { .size = sizeof stats };
    pv_engine *e = NULL;
    pv_request *r = NULL;
    ep.max_context = 256;
    p.messages = &message;
    p.n_messages = 1;
    p.chat = chat;
    p.gen = &g;
    if (CHECK(!pv_engine_open(&e, m, &ep, NULL)) && CHECK(!pv_request_submit(&r, e, &p, NULL)) &&
        CHECK(!pv_request_wait(r, NULL)))
        pv_request_stats(r, &stats);
    pv_request_close(&r);
    pv_engine_close(&e);
    return stats.prompt_tokens;
}

TEST(requests_take_chat_options)
{
    pv_model *m = open_template(WITH_SWITCH);
    struct pv_chat_options o = pv_chat_defaults();
    int32_t ids[128];
    CHECK_EQ(request_prompt(m, NULL), (int64_t)ids_of(m, THOUGHT, ids, 128));
    CHECK_EQ(request_prompt(m, &o), (int64_t)ids_of(m, THOUGHT, ids, 128));
    o.no_thinking = true;
    CHECK_EQ(request_prompt(m, &o), (int64_t)ids_of(m, NO_THOUGHT, ids, 128));
    pv_model_close(&m);
}

TEST(templates_without_a_switch_for_thinking)
{
    struct pv_chat_options o = pv_chat_defaults();
    struct pv_error err = { 0 };
    pv_model *m = open_template(TEMPLATE("' }}"));
    pv_session *s = open_session(m, 256, 0);
    o.no_thinking = true;
    CHECK_EQ(pv_session_chat(s, &o, NULL), PV_OK); /* it never thinks */
    check_prompt(m, s, THOUGHT);
    pv_session_close(&s);
    pv_model_close(&m);

    m = open_template(TEMPLATE("<think>\\n' }}"));
    s = open_session(m, 256, 0);
    CHECK_EQ(pv_session_chat(s, &o, &err), PV_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "thinking"), "%s", err.text);
    check_prompt(m, s, THOUGHT "<think>\n");
    pv_session_close(&s);
    pv_model_close(&m);

    m = open_model(path_of(false, 0), 1);
    s = open_session(m, 64, 0);
    CHECK_EQ(pv_session_chat(s, &o, NULL), PV_E_UNSUPPORTED);
    o.no_thinking = false;
    CHECK_EQ(pv_session_chat(s, &o, NULL), PV_OK);
    pv_session_close(&s);
    pv_model_close(&m);
}

/* A token that begins a character shows nothing. Cancelled there, its bytes must not turn up in
 * the next answer. */
TEST(half_a_character_does_not_leak_into_the_next_answer)
{
    pv_model *m = open_model(path_of(true, 0), 1);
    static const int32_t prompt[] = { 'a', 'b', 'c' }, other[] = { 'x', 'y' };
    struct pv_gen_params p = sampled(150, 1);
    int32_t ids[150];
    int at = -1;
    p.temperature = 6;
    p.top_k = 0;
    p.top_p = 1;
    fresh_answer(m, prompt, 3, p, ids);
    for (int i = 0; i < 150 && at < 0; i++)
        at = ids[i] >= 0xe1 && ids[i] <= 0xec ? i : -1; /* the first of three bytes */
    if (!CHECK(at >= 0))
        return;
    pv_session *s = open_session(m, 512, 0), *fresh = open_session(m, 512, 0);
    struct heard cut = { .stop_after = at + 1 }, after = { 0 }, alone = { 0 };
    CHECK_EQ(pv_add_ids(s, prompt, 3, NULL), PV_OK);
    CHECK_EQ(pv_generate(s, &p, hear, &cut, NULL), PV_E_CANCELLED);
    pv_session_reset(s);
    CHECK_EQ(pv_add_ids(s, other, 2, NULL), PV_OK);
    CHECK_EQ(pv_generate(s, &p, hear, &after, NULL), PV_OK);
    CHECK_EQ(pv_add_ids(fresh, other, 2, NULL), PV_OK);
    CHECK_EQ(pv_generate(fresh, &p, hear, &alone, NULL), PV_OK);
    CHECK_STR(after.text, alone.text);
    pv_session_close(&s);
    pv_session_close(&fresh);
    pv_model_close(&m);
}

/* No room for what comes before the answer: refused, and the timeline is what it was. */
TEST(a_refused_answer_leaves_the_messages)
{
    pv_model *m = open_model(path_of(true, 0), 1);
    int32_t ids[64];
    size_t n = ids_of(m, "<|im_start|>user\nhi<|im_end|>\n", ids, 64);
    size_t asked = n + ids_of(m, "<|im_start|>assistant\n", ids + n, 64 - n);
    pv_session *s = open_session(m, (int)asked, 0), *wide = open_session(m, (int)asked + 1, 0);
    struct pv_stats stats = { .size = sizeof stats };
    int32_t got[1], want[1];
    CHECK_EQ(pv_add_text(s, "user", "hi", NULL), PV_OK);
    refuse_generate(s, greedy(1), PV_E_LIMIT, "leaves no room");
    refuse_generate(s, greedy(1), PV_E_LIMIT, "leaves no room"); /* the same, not an answer */
    CHECK_EQ(pv_add_ids(s, ids + n, asked - n, NULL), PV_OK);    /* there is room still */
    CHECK_EQ(pv_add_ids(s, ids, 1, NULL), PV_E_LIMIT);
    CHECK_EQ(pv_add_text(wide, "user", "hi", NULL), PV_OK);
    refuse_generate(wide, greedy(0), PV_E_ARG, "0 new tokens");
    CHECK_EQ(answer(wide, greedy(1), got), 1);
    pv_session_stats(wide, &stats);
    CHECK_EQ(stats.prompt_tokens, (int64_t)asked);
    fresh_answer(m, ids, (int)asked, greedy(1), want);
    CHECK_EQ(got[0], want[0]);
    pv_session_close(&s);
    pv_session_close(&wide);
    pv_model_close(&m);
}

#endif

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
