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

static void check_line(const char *line, size_t len)
{
    struct buf video, prompt;
    bool has_prompt = false;
    json_t *root = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *v = json_object_get(root, "video"), *p = json_object_get(root, "prompt");
    /* jansson lets a NUL follow a number, which is not JSON. */
    bool good = json_is_object(root) && json_is_string(v) && (!p || json_is_string(p)) &&
                is_small(root, 0) && (len == 0 || !memchr(line, 0, len));
    const char *wrong;

    buf_init(&video, MOST_STRING);
    buf_init(&prompt, MOST_STRING);
    wrong = jsonl_read(line, len, &video, &prompt, &has_prompt);
    if (wrong ? good || !wrong[0] : video.failed || prompt.failed)
        abort();
    if (!wrong && ((video.len && !utf8_valid(video.data, video.len)) ||
                   (prompt.len && !utf8_valid(prompt.data, prompt.len))))
        abort();
    if (!wrong && good) {
        check_same(v, &video);
        if (has_prompt != (p != NULL))
            abort();
        if (p)
            check_same(p, &prompt);
    }
    buf_clear(&video);
    buf_clear(&prompt);
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
