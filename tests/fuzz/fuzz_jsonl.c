/* Any line of a list of clips, read by the command line's reader and by jansson. The reader must
 * take every line that is JSON and has what it wants, with the same strings; what it takes besides
 * (values that it passes over are not looked at closely) must be UTF-8. */
#include "../../cli/jsonl.h"

#include "base/utf8.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STRING = 1 << 20, MOST_BYTES = 1 << 16, MOST_DEPTH = 32, MOST_NAME = 4000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Within the bounds of the reader, which jansson does not have: depth, and length of names. */
static bool is_small(const json_t *v, int depth)
{
    size_t i;
    json_t *item;
    const char *name;

    if (depth > MOST_DEPTH)
        return false;
    json_array_foreach(v, i, item)
    {
        if (!is_small(item, depth + 1))
            return false;
    }
    json_object_foreach((json_t *)v, name, item)
    {
        if (strlen(name) > MOST_NAME || !is_small(item, depth + 1))
            return false;
    }
    return true;
}

static void check_same(const json_t *value, const struct buf *b)
{
    if (json_string_length(value) != b->len ||
        (b->len && memcmp(json_string_value(value), b->data, b->len) != 0))
        abort();
}

/* A string, or a number, of which the reader takes the characters. */
static bool is_id(const json_t *v)
{
    return !v || json_is_string(v) || json_is_number(v);
}

/* Questions, or options. */
static bool are_strings(const json_t *v)
{
    size_t i;
    json_t *item;
    if (v &&
        (!json_is_array(v) || json_array_size(v) < 1 || json_array_size(v) > JSONL_MAX_QUESTIONS))
        return false;
    json_array_foreach(v, i, item)
    {
        if (!json_is_string(item))
            return false;
    }
    return true;
}

static void check_strings(const json_t *v, const struct buf *b, int n)
{
    const char *at = b->data;
    size_t i;
    json_t *item;
    if ((size_t)n != json_array_size(v))
        abort();
    json_array_foreach(v, i, item)
    {
        if (strcmp(at, json_string_value(item)) != 0)
            abort();
        at += strlen(at) + 1;
    }
}

static void check_utf8(const struct buf *b)
{
    if (b->len && !utf8_valid(b->data, b->len))
        abort();
}

static void check_line(const char *line, size_t len)
{
    struct jsonl_line l;
    json_t *root = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *v = json_object_get(root, "video"), *p = json_object_get(root, "prompt");
    const json_t *id = json_object_get(root, "id"), *q = json_object_get(root, "questions");
    const json_t *o = json_object_get(root, "options"), *key = json_object_get(root, "key");
    /* jansson lets a NUL follow a number, which is not JSON. */
    bool good = json_is_object(root) && json_is_string(v) && (!p || json_is_string(p)) &&
                is_id(id) && are_strings(q) && are_strings(o) && !(p && q) && is_small(root, 0) &&
                (len == 0 || !memchr(line, 0, len));
    const char *wrong;

    jsonl_init(&l);
    wrong = jsonl_read(line, len, &l);
    if (wrong ? good || !wrong[0]
              : l.video.failed || l.prompt.failed || l.questions.failed || l.options.failed)
        abort();
    if (!wrong) {
        check_utf8(&l.video);
        check_utf8(&l.prompt);
        check_utf8(&l.id);
        check_utf8(&l.key);
    }
    if (!wrong && good) {
        check_same(v, &l.video);
        if (l.has_prompt != (p != NULL))
            abort();
        if (p)
            check_same(p, &l.prompt);
        if (json_is_string(id))
            check_same(id, &l.id);
        if (json_is_string(key))
            check_same(key, &l.key);
        check_strings(q, &l.questions, l.n_questions);
        check_strings(o, &l.options, l.n_options);
    }
    jsonl_clear(&l);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;

    if (size > MOST_BYTES)
        return 0;
    while (at < end) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((eol ? eol : end) - at);
        char *line = malloc(len ? len : 1); /* a sanitizer sees what is read past it */
        memcpy(line, at, len);
        check_line(line, len);
        free(line);
        at += len + 1;
    }
    return 0;
}
