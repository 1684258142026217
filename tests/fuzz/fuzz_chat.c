/* Any text as a chat template, up to a NUL; then a byte of choices and the texts of messages, each
 * up to a NUL. A template is recognised or refused with a sentence. What is accepted writes turns
 * that a message cannot forge: there are as many role marks as turns, as many rows as the media
 * have, and the two ways to write the same message agree. */
#include "fuzz/touch.h"
#include "fuzz/use_text.h"
#include "tiny_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_IDS = 8192, MOST_MESSAGES = 6, ROW = -7, MEDIUM_ROWS = 4, MOST_BYTES = 1 << 16 };

/* Bits of the choices; the message's number turns them. */
enum { SYSTEM_FIRST = 1, PICTURE = 2, FILM = 4, THINK = 8, MARKED = 16, CAPTIONED = 32 };

static const char *const more_tokens[] = { "<|vision_start|>", "<|vision_end|>", "<think>",
                                           "</think>", NULL };
static struct vocab vocab;
static struct tokenizer *tokenizer;

/* All bytes, a few merges, the marks of chats. Lives as long as the program. */
static void make_tokenizer(void)
{
    static const char *text[TINY_MAX_TOKENS];
    static struct str token[TINY_MAX_TOKENS], merge[4];
    static uint8_t kind[TINY_MAX_TOKENS];
    struct tiny_model m = { .extra = more_tokens };
    struct pv_error err = { 0 };

    vocab = (struct vocab){ .n_tokens = tiny_tokens(&m, text),
                            .token = token,
                            .kind = kind,
                            .n_merges = 4,
                            .merge = merge,
                            .eos = -1,
                            .bos = -1,
                            .pad = -1,
                            .pre = "qwen2" };
    for (int i = 0; i < vocab.n_tokens; i++) {
        token[i] = (struct str){ text[i], (uint32_t)strlen(text[i]) };
        kind[i] = i < TINY_ENDOFTEXT ? TOKEN_NORMAL : TOKEN_CONTROL;
    }
    for (int i = 0; i < 4; i++)
        merge[i] = (struct str){ tiny_merges[i], (uint32_t)strlen(tiny_merges[i]) };
    vocab.chat_template = "";
    if (tokenizer_open(&tokenizer, &vocab, &err))
        abort();
}

static size_t count(const struct prompt *p, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += p->ids[i] == id;
    return n;
}

struct talk {
    const struct chat *c;
    struct prompt p;
    size_t turns, rows;
    bool begun;
};

/* A message with text alone, written both ways. */
static void check_same(const struct talk *k, const char *role, const char *text, size_t len)
{
    struct chat_part part = { .text = text, .len = len };
    struct prompt a, b;
    enum pv_status s, t;

    prompt_init(&a, tokenizer, MOST_IDS);
    prompt_init(&b, tokenizer, MOST_IDS);
    s = chat_add_media(k->c, &a, !k->begun, role, NULL, 0, text, len, NULL);
    t = chat_add_parts(k->c, &b, !k->begun, role, &part, 1, NULL);
    if (s != t || a.n != b.n || (a.n && memcmp(a.ids, b.ids, a.n * sizeof *a.ids) != 0))
        abort();
    prompt_clear(&a);
    prompt_clear(&b);
}

static void add_message(struct talk *k, const char *role, const char *text, size_t len, int choices)
{
    static const char *const captions[] = { "<0.0 seconds>", "<|im_start|>" };
    bool film = choices & FILM, media = film || (choices & PICTURE), first = !k->begun;
    struct chat_media m = { .video = film,
                            .row_id = ROW,
                            .n_rows = MEDIUM_ROWS,
                            .run_rows = film ? MEDIUM_ROWS / 2 : 0,
                            .before = choices & MARKED ? TINY_N_TOKENS : -1,
                            .after = choices & MARKED ? TINY_N_TOKENS + 1 : -1,
                            .captions = choices & CAPTIONED ? captions : NULL };
    struct chat_part parts[3] = { { .text = text, .len = len / 2 },
                                  { .media = &m },
                                  { .text = text + len / 2, .len = len - len / 2 } };
    struct pv_error err = { 0 };
    size_t before = k->p.n;
    int default_system = first && k->c->system[0] && strcmp(role, "system") != 0;
    enum pv_status s;

    if (choices & THINK)
        s = chat_add_parts(k->c, &k->p, first, role, parts, media ? 3 : 1, &err);
    else
        s = chat_add_media(k->c, &k->p, first, role, &m, media, text, len, &err);
    if (s) {
        must_say_why(&err);
        if (k->p.n != before)
            abort(); /* unchanged on failure */
        return;
    }
    k->begun = true;
    k->turns += k->c->kind == CHAT_NONE ? 0 : 1 + (size_t)default_system;
    /* Parts before the end of an answer's thoughts are left out, media too. */
    if (media && !(choices & THINK && k->c->strip_thinking && strcmp(role, "assistant") == 0))
        k->rows += MEDIUM_ROWS;
    else if (media)
        k->rows = count(&k->p, ROW);
}

static void talk(const struct chat *c, const char *text, const char *end, int choices)
{
    static const char *const roles[] = { "system", "user", "assistant" };
    struct talk k = { .c = c };
    int role = choices & SYSTEM_FIRST ? 0 : 1;

    prompt_init(&k.p, tokenizer, MOST_IDS);
    for (int i = 0; i < MOST_MESSAGES && text <= end; i++) {
        const char *nul = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
        size_t len = (size_t)((nul ? nul : end) - text);
        check_same(&k, roles[role], text, len);
        add_message(&k, roles[role], text, len, i ? choices >> (i % 3) : choices);
        role = role == 1 ? 2 : 1;
        text += len + 1;
    }
    if (!chat_ask(c, &k.p, choices & THINK, NULL)) {
        if (count(&k.p, TINY_IM_START) != k.turns + (c->kind != CHAT_NONE) ||
            count(&k.p, TINY_IM_END) != k.turns || count(&k.p, ROW) != k.rows)
            abort();
    }
    for (size_t i = 0; i < k.p.n; i++)
        if (k.p.ids[i] != ROW && (k.p.ids[i] < 0 || k.p.ids[i] >= vocab.n_tokens))
            abort();
    prompt_clear(&k.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t len = size ? strnlen(text, size) : 0;
    struct pv_error err = { 0 };
    struct chat c, untouched;
    char *copy;

    if (size > MOST_BYTES)
        return 0;
    if (!tokenizer)
        make_tokenizer();
    copy = malloc(len + 1);
    if (len)
        memcpy(copy, text, len);
    copy[len] = 0;
    vocab.chat_template = copy;
    memset(&c, 0xab, sizeof c);
    memcpy(&untouched, &c, sizeof c);
    if (chat_init(&c, tokenizer, &vocab, &err)) {
        must_say_why(&err);
        if (memcmp(&c, &untouched, sizeof c) != 0)
            abort();
    } else if (size > len + 1) {
        talk(&c, text + len + 2, text + size, data[len + 1]);
    }
    vocab.chat_template = "";
    free(copy);
    return 0;
}
