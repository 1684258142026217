/* Recognising and writing chat templates.
 *
 * Probes look at the template with the escape "\n" of its string literals turned into the newline
 * it means, since the same template is found with either spelling. What differs between families:
 * the default system message (read from the template itself), the space or newline after the role,
 * the newline after <|im_end|>, where media stand and what follows them, and thinking. */
#include "text/chat.h"

#include "base/mem.h"

#include <string.h>

#define IM_START "<|im_start|>"
#define IM_END "<|im_end|>"

/* --- recognising ---------------------------------------------------------------------------- */

/* A copy with backslash-n made a newline. */
static char *canonical(const char *template)
{
    char *copy = mem_strdup(template), *to = copy;

    if (!copy)
        return NULL;
    for (const char *from = copy; *from; from++) {
        if (from[0] == '\\' && from[1] == '\\') {
            *to++ = *from++; /* an escaped backslash: what follows is no escape */
            *to++ = *from;
        } else if (from[0] == '\\' && from[1] == 'n') {
            *to++ = '\n';
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
    return copy;
}

static bool has_any(const char *text, const char *const *probes)
{
    for (; *probes; probes++)
        if (strstr(text, *probes))
            return true;
    return false;
}

/* The literal text from `s` up to <|im_end|> into out, without its escapes. False when it is not
 * literal (an expression follows) or does not fit. */
static bool read_literal(const char *s, char out[CHAT_MAX_SYSTEM])
{
    size_t n = 0;

    for (; strncmp(s, IM_END, strlen(IM_END)) != 0; s++) {
        if (*s == '\\' && s[1])
            s++;
        else if (!*s || *s == '\'' || *s == '"' || (*s == '{' && (s[1] == '{' || s[1] == '%')))
            return false;
        if (n + 1 == CHAT_MAX_SYSTEM)
            return false;
        out[n++] = *s;
    }
    out[n] = 0;
    return n > 0;
}

/* The system message a template inserts when there is none: the one written out in it. */
static void find_system(struct chat *c, const char *template)
{
    static const char mark[] = IM_START "system\n";
    char text[CHAT_MAX_SYSTEM];
    const char *s = strstr(template, mark);

    while (s) {
        s += strlen(mark);
        if (read_literal(s, text)) {
            memcpy(c->system, text, strlen(text) + 1);
            return;
        }
        s = strstr(s, mark);
    }
}

/* How the prompt for an answer ends: look behind the last "add_generation_prompt". False when
 * thoughts begin there in a way that is not known. */
static bool find_thinking(struct chat *c, const char *template)
{
    static const char *const open[] = { "<think>\n'", "<think>\n\"", "<think>\n{", NULL };
    const char *tail = template, *s = strstr(template, "add_generation_prompt");
    bool always, choice;

    for (; s; s = strstr(s + 1, "add_generation_prompt"))
        tail = s;
    always = has_any(tail, open);
    choice = strstr(tail, "enable_thinking") && strstr(tail, "<think>\n\n</think>\n\n");
    c->thinking = always ? CHAT_THINK_ALWAYS : choice ? CHAT_THINK_SWITCH : CHAT_THINK_NEVER;
    c->strip_thinking = strstr(template, "split('</think>')") != NULL;
    if (always || choice)
        return always != choice && (choice || !strstr(tail, "</think>"));
    return !strstr(tail, "<think>");
}

/* Where newlines and media go inside a message. LLaVA-OneVision's templates write all pictures,
 * then all videos, and either a newline after each or one before the text; Qwen's write parts as
 * they come, marks around the media and no newline. A template that knows no media is that of a
 * text model: LLaVA-NeXT then writes "<image>\n" itself. False when it is none of these. */
static bool find_parts(struct chat *c, const char *template)
{
    static const char *const lined_text[] = { "'\n' + content['text']", "'\n' + content.text",
                                              NULL };
    static const char *const plain_text[] = { "{{ content['text'] }}", "{{ content.text }}", NULL };
    static const char *const lined_media[] = { "<image>\n", "<video>\n", NULL };
    static const char *const plain_media[] = { "<image>'", "<video>'", "<image>\"", "<video>\"",
                                               "<image>{", "<video>{", NULL };
    static const char *const by_type[] = { "'equalto', 'image'", "'equalto', 'video'", NULL };
    static const char *const line_after[] = { IM_END "\n", IM_END "' + '\n", NULL };
    bool lined = has_any(template, lined_media), plain = has_any(template, plain_media);
    bool known = lined || plain || strstr(template, "<|vision_start|>");

    c->text_lined = has_any(template, lined_text);
    c->media_lined = lined || !known;
    c->images_first = has_any(template, by_type);
    c->turn_lined = has_any(template, line_after) || (c->kind == CHAT_CHATML && !c->text_lined);
    return !(lined && plain) && !(c->text_lined && has_any(template, plain_text));
}

static enum pv_status recognise(struct chat *c, const char *template, struct pv_error *err)
{
    static const char *const spaced[] = { IM_START "' + message['role'] + ' '",
                                          IM_START "' + message.role + ' '", NULL };
    static const char *const lined[] = { IM_START "' + message['role'] + '\n",
                                         IM_START "' + message.role + '\n",
                                         IM_START "{{ message['role'] }}\n",
                                         IM_START "{{ message.role }}\n",
                                         IM_START "user\n",
                                         NULL };
    /* Marks of templates that are alike and yet write something else. */
    static const char *const altered[] = { "bos_token", "content|trim", ")|trim %}", NULL };

    if (!strstr(template, IM_START) || !strstr(template, IM_END))
        return fail(err, PV_E_UNSUPPORTED,
                    "the model's chat template is unknown: it does not use " IM_START);
    if (!strstr(template, IM_START "assistant\n"))
        return fail(err, PV_E_UNSUPPORTED,
                    "the model's chat template is unknown: it does not ask "
                    "for an answer by " IM_START "assistant");
    if (has_any(template, spaced) && !strstr(template, IM_END "\n") &&
        !strstr(template, IM_END "' + '\n"))
        c->kind = CHAT_LLAVA;
    else if (has_any(template, lined))
        c->kind = CHAT_CHATML;
    else
        return fail(err, PV_E_UNSUPPORTED,
                    "the model's chat template is unknown: it writes roles in another way than "
                    "Qwen's and LLaVA-OneVision's");
    if (has_any(template, altered) || !find_parts(c, template) || !find_thinking(c, template))
        return fail(err, PV_E_UNSUPPORTED,
                    "the model's chat template is unknown: it writes <|im_start|> turns as Qwen's "
                    "do, but changes messages or begins answers in another way");
    find_system(c, template);
    return PV_OK;
}

static int32_t find_token(const struct tokenizer *t, const char *spelling)
{
    return tokenizer_find(t, spelling, strlen(spelling));
}

enum pv_status chat_init(struct chat *c, const struct tokenizer *t, const struct vocab *v,
                         struct pv_error *err)
{
    struct chat fresh = { .t = t,
                          .im_start = find_token(t, IM_START),
                          .im_end = find_token(t, IM_END) };
    bool marks = fresh.im_start >= 0 && fresh.im_end >= 0;
    enum pv_status s = PV_OK;

    if (v->chat_template[0]) {
        char *template = canonical(v->chat_template);
        if (!template)
            return fail_nomem(err, strlen(v->chat_template));
        s = recognise(&fresh, template, err);
        mem_free(template);
        if (s == PV_OK && !marks)
            s = fail(err, PV_E_FORMAT,
                     "the model's chat template uses " IM_START " and " IM_END
                     ", its vocabulary lacks them");
    } else {
        fresh.kind = marks ? CHAT_CHATML : CHAT_NONE;
        fresh.media_lined = true;
        fresh.turn_lined = true;
    }
    if (s == PV_OK)
        *c = fresh;
    return s;
}

/* --- writing -------------------------------------------------------------------------------- */

static enum pv_status put(struct prompt *p, const char *text, struct pv_error *err)
{
    return prompt_text(p, text, strlen(text), err);
}

/* A tag of the template: a token where the vocabulary has it, else text. */
static enum pv_status put_tag(const struct chat *c, struct prompt *p, const char *tag,
                              struct pv_error *err)
{
    int32_t id = find_token(c->t, tag);
    return id >= 0 ? prompt_token(p, id, err) : put(p, tag, err);
}

static enum pv_status open_role(const struct chat *c, struct prompt *p, const char *role,
                                struct pv_error *err)
{
    enum pv_status s = prompt_token(p, c->im_start, err);

    if (s == PV_OK)
        s = put(p, role, err);
    if (s == PV_OK)
        s = put(p, c->kind == CHAT_LLAVA ? " " : "\n", err);
    return s;
}

static enum pv_status close_turn(const struct chat *c, struct prompt *p, struct pv_error *err)
{
    enum pv_status s;

    if (c->kind == CHAT_NONE)
        return prompt_flush(p, err);
    s = prompt_token(p, c->im_end, err);
    if (s == PV_OK && c->turn_lined)
        s = put(p, "\n", err);
    return s ? s : prompt_flush(p, err);
}

static enum pv_status open_turn(const struct chat *c, struct prompt *p, bool first,
                                const char *role, struct pv_error *err)
{
    bool system = strcmp(role, "system") == 0;
    enum pv_status s = PV_OK;

    if (!system && strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)
        return fail(err, PV_E_ARG, "the role \"%.32s\" is not system, user or assistant", role);
    if (c->kind == CHAT_NONE)
        return PV_OK;
    if (first && !system && c->system[0]) {
        s = open_role(c, p, "system", err);
        if (s == PV_OK)
            s = put(p, c->system, err);
        if (s == PV_OK)
            s = close_turn(c, p, err);
    }
    return s ? s : open_role(c, p, role, err);
}

/* Of an earlier answer only what follows its thoughts is shown. */
static void skip_thoughts(const char **text, size_t *len)
{
    static const char tag[] = "</think>";
    size_t n = strlen(tag), from = 0;

    for (size_t i = 0; i + n <= *len; i++)
        if (memcmp(*text + i, tag, n) == 0)
            from = i + n;
    while (from > 0 && from < *len && (*text)[from] == '\n')
        from++;
    *text += from;
    *len -= from;
}

static enum pv_status put_media_item(const struct chat *c, struct prompt *p,
                                     const struct chat_media *m, struct pv_error *err)
{
    int run = m->run_rows ? m->run_rows : m->n_rows;
    enum pv_status s = PV_OK;

    for (int row = 0; s == PV_OK && row < m->n_rows; row += run) {
        if (m->captions)
            s = put(p, m->captions[row / run], err);
        if (s == PV_OK && m->before >= 0)
            s = prompt_token(p, m->before, err);
        for (int i = 0; s == PV_OK && i < run; i++)
            s = prompt_token(p, m->row_id, err);
        if (s == PV_OK && m->after >= 0)
            s = prompt_token(p, m->after, err);
    }
    if (s == PV_OK && c->media_lined && m->before < 0)
        s = put(p, "\n", err);
    if (s == PV_OK && m->note)
        s = put(p, m->note, err);
    if (s == PV_OK && m->note)
        s = put(p, "\n", err);
    return s;
}

static enum pv_status put_media(const struct chat *c, struct prompt *p,
                                const struct chat_media *media, int n, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    for (int pass = 0; pass < 2; pass++) /* images_first: pictures, then videos; else all at once */
        for (int i = 0; s == PV_OK && i < n; i++)
            if (c->images_first ? media[i].video == (pass == 1) : pass == 0)
                s = put_media_item(c, p, &media[i], err);
    return s;
}

enum pv_status chat_add_media(const struct chat *c, struct prompt *p, bool first, const char *role,
                              const struct chat_media *media, int n_media, const char *text,
                              size_t len, struct pv_error *err)
{
    size_t n = p->n;
    enum pv_status s = open_turn(c, p, first, role, err);

    if (c->strip_thinking && s == PV_OK && strcmp(role, "assistant") == 0)
        skip_thoughts(&text, &len);
    if (s == PV_OK)
        s = put_media(c, p, media, n_media, err);
    if (s == PV_OK && c->text_lined)
        s = put(p, "\n", err);
    if (s == PV_OK)
        s = prompt_text(p, text, len, err);
    if (s == PV_OK)
        s = close_turn(c, p, err);
    if (s)
        prompt_rewind(p, n);
    return s;
}

/* The part that thoughts end in, -1: none has any. Where text begins there: behind the tag and, up
 * to the next media item, behind newlines, which may go on in the parts that follow. */
static int end_of_thoughts(const struct chat_part *parts, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        const char *text = parts[i].text;
        size_t len = parts[i].len;
        if (parts[i].media)
            continue;
        skip_thoughts(&text, &len);
        if (len < parts[i].len)
            return i;
    }
    return -1;
}

/* One part; *bare: newlines at its beginning are left out, and on as long as there is nothing
 * else. */
static enum pv_status put_part(const struct chat *c, struct prompt *p, const struct chat_part *part,
                               bool thoughts, bool *bare, struct pv_error *err)
{
    const char *text = part->text;
    size_t len = part->len;
    enum pv_status s = PV_OK;

    if (part->media) {
        *bare = false;
        return put_media_item(c, p, part->media, err);
    }
    if (thoughts)
        skip_thoughts(&text, &len);
    while (*bare && len > 0 && *text == '\n') {
        text++;
        len--;
    }
    *bare = (*bare || thoughts) && len == 0;
    if (c->text_lined)
        s = put(p, "\n", err);
    return s ? s : prompt_text(p, text, len, err);
}

enum pv_status chat_add_parts(const struct chat *c, struct prompt *p, bool first, const char *role,
                              const struct chat_part *parts, int n_parts, struct pv_error *err)
{
    enum { PICTURES, VIDEOS, TEXTS, PASSES };
    size_t n = p->n;
    bool strips = c->strip_thinking && strcmp(role, "assistant") == 0, bare = false;
    int end = strips ? end_of_thoughts(parts, n_parts) : -1;
    enum pv_status s = open_turn(c, p, first, role, err);

    for (int pass = 0; pass < PASSES; pass++)
        for (int i = end < 0 ? 0 : end; s == PV_OK && i < n_parts; i++) {
            const struct chat_media *m = parts[i].media;
            int turn = !c->images_first ? 0 : !m ? TEXTS : m->video ? VIDEOS : PICTURES;
            if (turn == pass)
                s = put_part(c, p, &parts[i], i == end, &bare, err);
        }
    if (s == PV_OK)
        s = close_turn(c, p, err);
    if (s)
        prompt_rewind(p, n);
    return s;
}

enum pv_status chat_ask(const struct chat *c, struct prompt *p, bool think, struct pv_error *err)
{
    size_t n = p->n;
    enum pv_status s = PV_OK;

    if (c->kind == CHAT_NONE)
        return PV_OK;
    s = prompt_token(p, c->im_start, err);
    if (s == PV_OK)
        s = put(p, "assistant\n", err);
    if (s == PV_OK && c->thinking == CHAT_THINK_ALWAYS) {
        s = put_tag(c, p, "<think>", err);
        if (s == PV_OK)
            s = put(p, "\n", err);
    } else if (s == PV_OK && c->thinking == CHAT_THINK_SWITCH && !think) {
        s = put_tag(c, p, "<think>", err);
        if (s == PV_OK)
            s = put(p, "\n\n", err);
        if (s == PV_OK)
            s = put_tag(c, p, "</think>", err);
        if (s == PV_OK)
            s = put(p, "\n\n", err);
    }
    if (s == PV_OK)
        s = prompt_flush(p, err);
    if (s)
        prompt_rewind(p, n);
    return s;
}

enum pv_status chat_end(const struct chat *c, struct prompt *p, struct pv_error *err)
{
    size_t n = p->n;
    enum pv_status s = c->kind == CHAT_NONE ? PV_OK : close_turn(c, p, err);

    if (s)
        prompt_rewind(p, n);
    return s;
}
