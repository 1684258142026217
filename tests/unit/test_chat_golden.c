/* Conversations with the chat templates of Qwen3 and Qwen3-VL against what transformers renders of
 * them (tests/golden/chat/cases.txt, whose form tools/golden/chat_golden.py describes): thinking on
 * and off, thoughts in earlier answers, media before, between and after text. */
#include "format/vocab_hf.h"
#include "test.h"
#include "text/chat.h"

enum { MAX_LINE = 2048, MAX_PARTS = 16, MAX_MESSAGES = 8, MAX_IDS = 1024 };

/* What the templates are known by, in their own spelling; most of them is for tools. */
static const struct {
    const char *name, *text;
} templates[] = {
    { "qwen3",
      "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + "
      "'<|im_end|>\\n' }}{%- endif %}{%- for message in messages %}{{- '<|im_start|>' + "
      "message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
      "{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}"
      "{{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content }}{%- endfor %}"
      "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n"
      "    {%- if enable_thinking is defined and enable_thinking is false %}\n"
      "        {{- '<think>\\n\\n</think>\\n\\n' }}\n    {%- endif %}\n{%- endif %}" },
    { "qwen3_vl",
      "{%- if messages[0].role == 'system' %}\n        {{- '<|im_start|>system\\n' }}\n"
      "{%- for message in messages %}\n        {{- '<|im_start|>' + message.role + '\\n' }}\n"
      "    {%- if add_vision_id %}Picture {{ image_count.value }}: {% endif -%}\n"
      "                    <|vision_start|><|image_pad|><|vision_end|>\n"
      "                    {{- content.text }}\n        {{- '<|im_end|>\\n' }}\n{%- endfor %}\n"
      "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n" },
    { "qwen3_vl_thinking",
      "                <|vision_start|><|image_pad|><|vision_end|>\n"
      "        {{- '<|im_start|>system\\n' + render_content(messages[0].content, false) + "
      "'<|im_end|>\\n' }}\n        {{- '<|im_start|>' + message.role + '\\n' + content + "
      "'<|im_end|>' + '\\n' }}\n"
      "                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
      "                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + "
      "reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}\n"
      "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n<think>\\n' }}\n"
      "{%- endif %}" },
};

/* A tokenizer of the fixtures, and its media, of a row each. */
struct words {
    struct vocab *vocab;
    struct tokenizer *tok;
    struct chat_media picture, video;
};

static int32_t find(const struct words *w, const char *token)
{
    return tokenizer_find(w->tok, token, strlen(token));
}

static bool words_open(struct words *w, const char *dir)
{
    struct pv_error err = { 0 };
    *w = (struct words){ 0 };
    if (!CHECK_MSG(!vocab_hf_open(&w->vocab, dir, &err) && !tokenizer_open(&w->tok, w->vocab, &err),
                   "%s", err.text))
        return false;
    w->picture = (struct chat_media){ .row_id = find(w, "<|image_pad|>"),
                                      .n_rows = 1,
                                      .before = find(w, "<|vision_start|>"),
                                      .after = find(w, "<|vision_end|>") };
    w->video = w->picture;
    w->video.video = true;
    w->video.row_id = find(w, "<|video_pad|>");
    return true;
}

static void words_close(struct words *w)
{
    tokenizer_close(&w->tok);
    vocab_hf_close(&w->vocab);
}

/* One case; the messages' lines are kept as they are read, cut at their parts. */
struct talk {
    char template[32], thinking[8], line[MAX_MESSAGES][MAX_LINE], want[MAX_LINE];
    int n;
};

static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++)
        if (s[0] == '\\' && s[1] == 'n') {
            *to++ = '\n';
            s++;
        } else {
            *to++ = *s;
        }
    *to = 0;
}

/* The next case of the file; false at its end. */
static bool read_talk(FILE *f, struct talk *t)
{
    char line[MAX_LINE];
    *t = (struct talk){ 0 };
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        unescape(line);
        if (sscanf(line, "case %31s %7s", t->template, t->thinking) == 2 || line[0] == '#')
            continue;
        if (!strncmp(line, "want ", 5)) {
            memcpy(t->want, line + 5, strlen(line + 5) + 1);
            return true;
        }
        if (!CHECK(t->n < MAX_MESSAGES))
            return false;
        memcpy(t->line[t->n++], line, sizeof line);
    }
    return false;
}

static int split_parts(const struct words *w, char *line, struct chat_part *parts)
{
    int n = 0;
    for (char *at = line, *next; at && n < MAX_PARTS; at = next) {
        next = strchr(at, '|');
        if (next)
            *next++ = 0;
        if (*at == 't')
            parts[n++] = (struct chat_part){ .text = at + 1, .len = strlen(at + 1) };
        else
            parts[n++] = (struct chat_part){ .media = *at == 'V' ? &w->video : &w->picture };
    }
    return n;
}

static void check_talk(const struct words *w, const struct chat *c, struct talk *t)
{
    int32_t ids[MAX_IDS];
    struct prompt p;
    size_t n = 0;
    prompt_init(&p, w->tok, MAX_IDS);
    for (int i = 0; i < t->n; i++) {
        struct chat_part parts[MAX_PARTS];
        char *rest = strchr(t->line[i], ' ');
        *rest++ = 0;
        int n_parts = split_parts(w, rest, parts);
        CHECK_EQ(chat_add_parts(c, &p, i == 0, t->line[i], parts, n_parts, NULL), PV_OK);
    }
    CHECK_EQ(chat_ask(c, &p, !strcmp(t->thinking, "on"), NULL), PV_OK);
    CHECK_EQ(tokenizer_encode(w->tok, t->want, strlen(t->want), true, ids, MAX_IDS, &n, NULL),
             PV_OK);
    CHECK_MSG(p.n == n && !memcmp(ids, p.ids, n * sizeof *ids), "%s, thinking %s: not %s",
              t->template, t->thinking, t->want);
    prompt_clear(&p);
}

static bool chat_of(struct chat *c, const struct words *w, const char *name)
{
    struct vocab v = *w->vocab;
    struct pv_error err = { 0 };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
        if (!strcmp(name, templates[i].name))
            v.chat_template = templates[i].text;
    return CHECK_MSG(!chat_init(c, w->tok, &v, &err), "%s: %s", name, err.text);
}

/* All cases; without pictures where the tokenizer has no token for them. How many there were. */
static int check_cases(const char *dir)
{
    FILE *f = fopen("tests/golden/chat/cases.txt", "r");
    struct words w;
    static struct talk t;
    int n = 0;
    if (!CHECK(f))
        return 0;
    if (words_open(&w, dir)) {
        while (read_talk(f, &t)) {
            struct chat c;
            if ((w.picture.row_id < 0 && strstr(t.want, "<|image_pad|>")) ||
                !chat_of(&c, &w, t.template))
                continue;
            check_talk(&w, &c, &t);
            n++;
        }
    }
    words_close(&w);
    fclose(f);
    return n;
}

TEST(prompts_equal_transformers)
{
    CHECK_EQ(check_cases("tests/golden/qwen2_5_vl_video"), 44); /* <think> is text there */
    CHECK_EQ(check_cases("tests/golden/tokenizer"), 36);        /* and a token here */
}

TEST(what_the_templates_say_of_thinking)
{
    static const enum chat_thinking want[] = { CHAT_THINK_SWITCH, CHAT_THINK_NEVER,
                                               CHAT_THINK_ALWAYS };
    struct words w;
    if (!words_open(&w, "tests/golden/tokenizer"))
        return;
    for (int i = 0; i < 3; i++) {
        struct chat c = { 0 };
        if (!chat_of(&c, &w, templates[i].name))
            continue;
        CHECK_EQ(c.thinking, want[i]);
        CHECK_EQ(c.strip_thinking, i != 1);
        CHECK_EQ(c.system[0], 0);
        CHECK_EQ(c.kind, CHAT_CHATML);
    }
    words_close(&w);
}

/* LLaVA-OneVision's template sorts the parts, and begins each text on a line of its own. */
TEST(parts_that_the_template_sorts)
{
    static const char want[] = "<|im_start|>user <image><video>\nA\nB<|im_end|>"
                               "<|im_start|>assistant\n";
    struct pv_error err = { 0 };
    struct vocab *vocab = NULL;
    struct tokenizer *tok = NULL;
    struct chat c;
    struct prompt p;
    int32_t ids[64];
    size_t n = 0;
    if (!CHECK_MSG(!vocab_hf_open(&vocab, "tests/golden/llava_onevision", &err) &&
                       !tokenizer_open(&tok, vocab, &err) && !chat_init(&c, tok, vocab, &err),
                   "%s", err.text))
        return;
    struct chat_media picture = {
        false, tokenizer_find(tok, "<image>", 7), 1, 1, -1, -1, NULL, NULL
    };
    struct chat_media video = { true, tokenizer_find(tok, "<video>", 7), 1, 1, -1, -1, NULL, NULL };
    struct chat_part parts[] = { { .text = "A", .len = 1 },
                                 { .media = &video },
                                 { .text = "B", .len = 1 },
                                 { .media = &picture } };
    prompt_init(&p, tok, 64);
    CHECK_EQ(chat_add_parts(&c, &p, true, "user", parts, 4, NULL), PV_OK);
    CHECK_EQ(chat_ask(&c, &p, true, NULL), PV_OK);
    CHECK_EQ(tokenizer_encode(tok, want, strlen(want), true, ids, 64, &n, NULL), PV_OK);
    CHECK(p.n == n && !memcmp(ids, p.ids, n * sizeof *ids));
    size_t before = p.n;
    CHECK_EQ(chat_add_parts(&c, &p, false, "nobody", parts, 4, NULL), PV_E_ARG);
    CHECK_EQ(p.n, before);
    prompt_clear(&p);
    tokenizer_close(&tok);
    vocab_hf_close(&vocab);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
