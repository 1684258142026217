/* A reader of JSON objects that wants a few members of them. It walks over everything else,
 * checking brackets, strings and separators; depth is bounded, and nothing is kept. */
#include "jsonl.h"

#include "base/utf8.h"

#include <string.h>

enum { MAX_DEPTH = 64 };

struct reader {
    const char *at, *end;
    const char *wrong; /* NULL: nothing yet */
};

static bool refuse(struct reader *r, const char *why)
{
    if (!r->wrong)
        r->wrong = why;
    return false;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* Four hexadecimal digits. */
static bool read_hex(struct reader *r, uint32_t *out)
{
    static const char digits[] = "0123456789abcdef";
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = r->at < r->end ? *r->at : 0;
        const char *d;
        c = c >= 'A' && c <= 'F' ? (char)(c + ('a' - 'A')) : c;
        d = c ? strchr(digits, c) : NULL;
        if (!d)
            return refuse(r, "\\u is not followed by four hexadecimal digits");
        *out = *out * 16 + (uint32_t)(d - digits);
        r->at++;
    }
    return true;
}

static bool read_unicode(struct reader *r, struct buf *out)
{
    uint32_t cp, low;
    char bytes[4];

    if (!read_hex(r, &cp))
        return false;
    if (cp >= 0xd800 && cp < 0xdc00 && r->end - r->at >= 2 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        if (!read_hex(r, &low))
            return false;
        cp = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00) : cp;
    }
    if (cp == 0 || (cp >= 0xd800 && cp < 0xe000))
        return refuse(r, "a string holds half a character or a zero");
    if (out)
        buf_add(out, bytes, (size_t)utf8_encode(bytes, cp));
    return true;
}

static bool read_escape(struct reader *r, struct buf *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->end ? *r->at : 0;
    const char *name = c ? strchr(names, c) : NULL;

    if (c != 'u' && !name)
        return refuse(r, "a string holds an escape that JSON does not have");
    r->at++;
    if (c == 'u')
        return read_unicode(r, out);
    if (out)
        buf_add(out, &values[name - names], 1);
    return true;
}

/* A string behind its first quote; out NULL: passed over. */
static bool read_string(struct reader *r, struct buf *out)
{
    const char *begin = r->at;
    while (r->at < r->end && *r->at != '"') {
        const char *from = r->at;
        if ((unsigned char)*r->at < ' ')
            return refuse(r, "a string holds a control character");
        if (*r->at++ != '\\') {
            if (out)
                buf_add(out, from, 1);
        } else if (!read_escape(r, out)) {
            return false;
        }
    }
    if (r->at == r->end)
        return refuse(r, "a string has no end");
    if (!utf8_valid(begin, (size_t)(r->at - begin)))
        return refuse(r, "a string is not UTF-8");
    r->at++;
    return !out || !out->failed || refuse(r, "a string is too long");
}

/* A number, true, false or null. */
static bool skip_word(struct reader *r)
{
    static const char letters[] = "+-.0123456789abcdefghijklmnopqrstuvwxyzE";
    const char *begin = r->at;
    while (r->at < r->end && *r->at && strchr(letters, *r->at))
        r->at++;
    return r->at > begin || refuse(r, "a value is missing");
}

/* Any value. Brackets must match; what stands between them is not looked at closely. */
static bool skip_value(struct reader *r)
{
    char open[MAX_DEPTH];
    int depth = 0;
    do {
        skip_space(r);
        if (take(r, '"')) {
            if (!read_string(r, NULL))
                return false;
        } else if (take(r, '{') || take(r, '[')) {
            if (depth == MAX_DEPTH)
                return refuse(r, "its values are nested too deeply");
            open[depth++] = r->at[-1];
        } else if (depth > 0 && (take(r, '}') || take(r, ']'))) {
            if ((open[--depth] == '{') != (r->at[-1] == '}'))
                return refuse(r, "its brackets do not match");
        } else if (depth > 0 && (take(r, ',') || take(r, ':'))) {
            continue;
        } else if (!skip_word(r)) {
            return false;
        }
    } while (depth > 0 && r->at < r->end);
    return depth == 0 || refuse(r, "a bracket is not closed");
}

/* ---- members ---- */

static bool text_value(struct reader *r, struct buf *out, const char *not_a_string)
{
    return take(r, '"') ? read_string(r, out) : refuse(r, not_a_string);
}

static bool read_video(struct reader *r, struct jsonl_line *l)
{
    return text_value(r, &l->video, "\"video\" is not a string");
}

static bool read_prompt(struct reader *r, struct jsonl_line *l)
{
    l->has_prompt = true;
    return text_value(r, &l->prompt, "\"prompt\" is not a string");
}

static bool read_id(struct reader *r, struct jsonl_line *l)
{
    const char *begin;
    if (take(r, '"'))
        return read_string(r, &l->id);
    begin = r->at;
    if (begin == r->end || !strchr("-0123456789", *begin) || !skip_word(r))
        return refuse(r, "\"id\" is neither a string nor a number");
    return buf_add(&l->id, begin, (size_t)(r->at - begin)) || refuse(r, "\"id\" is too long");
}

/* What is said of an array of strings that is not as it should be. */
struct array_words {
    const char *wrong, *empty, *many, *large;
};

static bool read_strings(struct reader *r, struct buf *out, int *n, const struct array_words *say)
{
    if (!take(r, '['))
        return refuse(r, say->wrong);
    if (take(r, ']'))
        return refuse(r, say->empty);
    do {
        if ((*n)++ == JSONL_MAX_QUESTIONS)
            return refuse(r, say->many);
        if (!text_value(r, out, say->wrong))
            return false;
        if (!buf_add(out, "", 1))
            return refuse(r, say->large);
    } while (take(r, ','));
    return take(r, ']') || refuse(r, say->wrong);
}

static bool read_questions(struct reader *r, struct jsonl_line *l)
{
    static const struct array_words say = { "\"questions\" is not an array of strings",
                                            "\"questions\" is empty",
                                            "there are more than 1024 questions",
                                            "its questions are too long" };
    return read_strings(r, &l->questions, &l->n_questions, &say);
}

static bool read_options(struct reader *r, struct jsonl_line *l)
{
    static const struct array_words say = { "\"options\" is not an array of strings",
                                            "\"options\" is empty",
                                            "there are more than 1024 options",
                                            "its options are too long" };
    return read_strings(r, &l->options, &l->n_options, &say);
}

/* Without options it can be anything, and means nothing here. */
static bool read_key(struct reader *r, struct jsonl_line *l)
{
    const char *begin;
    if (take(r, '"'))
        return read_string(r, &l->key);
    skip_space(r);
    begin = r->at;
    if (!skip_value(r))
        return false;
    return buf_add(&l->key, begin, (size_t)(r->at - begin)) || refuse(r, "\"key\" is too long");
}

static const struct member {
    const char *name, *twice;
    bool (*read)(struct reader *r, struct jsonl_line *l);
} members[] = {
    { "video", "\"video\" is there twice", read_video },
    { "prompt", "\"prompt\" is there twice", read_prompt },
    { "id", "\"id\" is there twice", read_id },
    { "questions", "\"questions\" is there twice", read_questions },
    { "options", "\"options\" is there twice", read_options },
    { "key", "\"key\" is there twice", read_key },
};
enum { N_MEMBERS = sizeof members / sizeof *members };

/* The name of a member, and its value: into its place in the line, or passed over. */
static bool read_member(struct reader *r, struct jsonl_line *l, bool seen[N_MEMBERS])
{
    struct buf name;
    int which = 0;
    bool ok = false;

    buf_init(&name, 4096);
    if (!take(r, '"'))
        refuse(r, "a member's name is missing");
    else
        ok = read_string(r, &name);
    while (which < N_MEMBERS && (!name.data || strcmp(name.data, members[which].name) != 0))
        which++;
    buf_clear(&name);
    if (!ok)
        return false;
    if (!take(r, ':'))
        return refuse(r, "there is no colon behind a member's name");
    if (which == N_MEMBERS)
        return skip_value(r);
    if (seen[which])
        return refuse(r, members[which].twice);
    seen[which] = true;
    return members[which].read(r, l);
}

void jsonl_init(struct jsonl_line *l)
{
    *l = (struct jsonl_line){ .n_questions = 0 };
    buf_init(&l->video, JSONL_MAX_STRING);
    buf_init(&l->prompt, JSONL_MAX_STRING);
    buf_init(&l->id, JSONL_MAX_STRING);
    buf_init(&l->questions, JSONL_MAX_STRING);
    buf_init(&l->options, JSONL_MAX_STRING);
    buf_init(&l->key, JSONL_MAX_STRING);
}

void jsonl_clear(struct jsonl_line *l)
{
    buf_clear(&l->video);
    buf_clear(&l->prompt);
    buf_clear(&l->id);
    buf_clear(&l->questions);
    buf_clear(&l->options);
    buf_clear(&l->key);
}

const char *jsonl_read(const char *line, size_t len, struct jsonl_line *out)
{
    struct reader r = { .at = line, .end = line + len };
    bool seen[N_MEMBERS] = { false };

    if (!take(&r, '{'))
        return "it is not a JSON object";
    if (!take(&r, '}')) {
        do {
            if (!read_member(&r, out, seen))
                return r.wrong;
        } while (take(&r, ','));
        if (!take(&r, '}'))
            return "the object is not closed";
    }
    skip_space(&r);
    if (r.at != r.end)
        return "something follows the object";
    if (!seen[0])
        return "it has no \"video\"";
    return out->has_prompt && out->n_questions > 0 ? "it has both \"prompt\" and \"questions\""
                                                   : NULL;
}
