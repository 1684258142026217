/* JSON of untrusted files. jansson bounds the depth and checks UTF-8 and number syntax (so NaN is
 * an error already); this adds the size limit and the typed members with one-sentence errors.
 *
 * Python writes integers of any size, and transformers does: the usual model_max_length is 10^30.
 * jansson refuses those beyond 64 bits. A text that it refuses for that is read once more from a
 * copy in which these, and no other numbers, are written as reals. */
#include "format/json_hf.h"

#include "base/file.h"
#include "base/mem.h"
#include "format/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* jansson quotes the file in its messages; keep what could upset a terminal out of them. */
static void make_printable(char *s)
{
    for (; *s; s++)
        if (*s < ' ' || *s > '~')
            *s = '?';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether the integer of n digits is beyond 64 bits with a sign. */
static bool is_large(const char *digits, size_t n, bool negative)
{
    const char *most = negative ? "9223372036854775808" : "9223372036854775807";
    return n > strlen(most) || (n == strlen(most) && memcmp(digits, most, n) > 0);
}

/* Bytes of the number that begins at `at`, and whether it is an integer beyond 64 bits. Letters and
 * signs that no number has may be among them: the parser will say so. */
static size_t scan_number(const char *text, size_t len, size_t at, bool *large)
{
    size_t first = at + (text[at] == '-'), end = first, digits;
    while (end < len && is_digit(text[end]))
        end++;
    digits = end;
    while (end < len && (is_digit(text[end]) || strchr("+-.eE", text[end])) && text[end])
        end++;
    *large = end == digits && is_large(text + first, digits - first, first > at);
    return end - at;
}

/* A copy with every large integer written as a real; NULL: no memory. */
static char *write_reals(const char *text, size_t len, size_t *out_len)
{
    char *out = mem_alloc(len + len / 8 + 2);
    size_t n = 0;
    bool quoted = false;
    for (size_t i = 0; out && i < len;) {
        bool large = false;
        size_t some = 1;
        if (quoted && text[i] == '\\' && i + 1 < len)
            some = 2;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && (is_digit(text[i]) || text[i] == '-'))
            some = scan_number(text, len, i, &large);
        memcpy(out + n, text + i, some);
        n += some;
        i += some;
        if (large) {
            memcpy(out + n, "e0", 2);
            n += 2;
        }
    }
    *out_len = n;
    return out;
}

/* The same text once more; NULL, and why. */
static json_t *parse_large(const char *text, size_t len, json_error_t *why)
{
    size_t n;
    char *copy = write_reals(text, len, &n);
    json_t *root = copy ? json_loadb(copy, n, JSON_REJECT_DUPLICATES, why) : NULL;
    mem_free(copy);
    return root;
}

enum pv_status json_hf_parse(json_t **out, const char *text, size_t len, const char *name,
                             struct pv_error *err)
{
    json_error_t why;
    json_t *root = json_loadb(text ? text : "", len, JSON_REJECT_DUPLICATES, &why);

    if (!root && json_error_code(&why) == json_error_numeric_overflow)
        root = parse_large(text, len, &why);
    if (!root && json_error_code(&why) == json_error_out_of_memory)
        return fail_nomem(err, len);
    if (!root) {
        make_printable(why.text);
        return fail(err, PV_E_FORMAT, "%s: line %d is not valid JSON: %s", name, why.line,
                    why.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return fail(err, PV_E_FORMAT, "%s: not a JSON object", name);
    }
    *out = root;
    return PV_OK;
}

enum pv_status json_hf_open(json_t **out, const char *path, uint64_t limit, struct pv_error *err)
{
    struct file_map map;
    enum pv_status s = file_map_open(&map, path, limit, err);

    if (s)
        return s;
    s = json_hf_parse(out, (const char *)map.data, map.size, path, err);
    file_map_close(&map);
    return s;
}

json_t *json_hf_member(const json_t *obj, const char *key)
{
    json_t *v = json_object_get(obj, key);
    return json_is_null(v) ? NULL : v;
}

const char *json_hf_text(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

enum pv_status json_hf_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                           int64_t *out, const char *name, struct pv_error *err)
{
    const json_t *v = json_hf_member(obj, key);
    int64_t value;

    if (!v)
        return fail(err, PV_E_FORMAT, "%s: the key %s is missing", name, key);
    if (!json_is_integer(v))
        return fail(err, PV_E_FORMAT, "%s: %s is not an integer", name, key);
    value = json_integer_value(v);
    if (value < min || value > max)
        return fail(err, PV_E_FORMAT, "%s: %s is %lld, outside %lld to %lld", name, key,
                    (long long)value, (long long)min, (long long)max);
    *out = value;
    return PV_OK;
}

enum pv_status json_hf_float(const json_t *obj, const char *key, double *out, const char *name,
                             struct pv_error *err)
{
    const json_t *v = json_hf_member(obj, key);

    if (!v)
        return fail(err, PV_E_FORMAT, "%s: the key %s is missing", name, key);
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return fail(err, PV_E_FORMAT, "%s: %s is not a finite number", name, key);
    *out = json_number_value(v);
    return PV_OK;
}

static bool is_word(const json_t *v, const char *words)
{
    const char *text = json_is_string(v) ? json_string_value(v) : "";
    size_t len = strlen(text);

    for (const char *w = words; *w; w += strcspn(w, "|"), w += *w == '|')
        if (strcspn(w, "|") == len && !strncmp(w, text, len))
            return true;
    return false;
}

bool json_hf_has_sign(const void *root, const struct family_sign *sign)
{
    const json_t *v = json_hf_member(root, sign->key);

    if (!sign->values)
        return v != NULL;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (is_word(json_array_get(v, i), sign->values))
            return true;
    return is_word(v, sign->values);
}

void json_hf_version(char *out, size_t size)
{
    snprintf(out, size, "%s", jansson_version_str());
}
