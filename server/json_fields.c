/* jansson bounds the depth of what it parses (2048) and refuses numbers that do not fit, zero bytes
 * in strings and text that is not UTF-8. json_memory.h bounds its memory. */
#include "json_fields.h"

#include <math.h>
#include <string.h>

static bool refuse(enum json_refusal refusal, size_t len, struct api_error *e)
{
    if (refusal == JSON_TOO_LARGE)
        return api_fail(e, 413, NULL,
                        "the body has too many values: they would take more than %d times its %zu "
                        "bytes and %d MiB of memory",
                        JSON_TIMES, len, JSON_EXTRA >> 20);
    if (refusal == JSON_BUSY)
        return api_fail(e, 503, NULL, "the server holds too many long requests: try again soon");
    return api_fail(e, 503, NULL, "out of memory for a request");
}

json_t *json_object_parse(struct buf *text, struct api_error *e)
{
    json_error_t why;
    enum json_refusal refusal;
    size_t len = text->len;
    json_t *root = json_memory_parse(text->data ? text->data : "", len, &why, &refusal);
    buf_clear(text);
    if (root && json_is_object(root))
        return root;
    if (root)
        api_fail(e, 400, NULL, "the body is not a JSON object");
    else if (refusal == JSON_FITS)
        api_fail(e, 400, NULL, "the body is not JSON: %s (line %d, column %d)", why.text, why.line,
                 why.column);
    else
        refuse(refusal, len, e);
    json_memory_free(root);
    return NULL;
}

const json_t *field_find(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return v && !json_is_null(v) ? v : NULL;
}

bool field_int64(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *out,
                 struct api_error *e)
{
    const json_t *v = field_find(o, name);
    double d = v && json_is_real(v) ? json_real_value(v) : 0.5;
    int64_t n;
    if (!v)
        return true;
    if (json_is_integer(v))
        n = json_integer_value(v);
    else if (d == floor(d) && fabs(d) < 9e15) /* clients that know one kind of number only */
        n = (int64_t)d;
    else
        return api_fail(e, 400, name, "\"%s\" must be a whole number", name);
    if (n < min || n > max)
        return api_fail(e, 400, name, "\"%s\" is %lld: expected %lld to %lld", name, (long long)n,
                        (long long)min, (long long)max);
    *out = n;
    return true;
}

bool field_int(const json_t *o, const char *name, long long min, long long max, int *out,
               struct api_error *e)
{
    int64_t n = *out;
    if (!field_int64(o, name, min, max, &n, e))
        return false;
    *out = (int)n;
    return true;
}

bool field_number(const json_t *o, const char *name, double min, double max, double *out,
                  struct api_error *e)
{
    const json_t *v = field_find(o, name);
    double d;
    if (!v)
        return true;
    if (!json_is_number(v))
        return api_fail(e, 400, name, "\"%s\" must be a number", name);
    d = json_number_value(v);
    if (!(d >= min && d <= max))
        return api_fail(e, 400, name, "\"%s\" is %g: expected %g to %g", name, d, min, max);
    *out = d;
    return true;
}

bool field_bool(const json_t *o, const char *name, bool *out, struct api_error *e)
{
    const json_t *v = field_find(o, name);
    if (!v)
        return true;
    if (!json_is_boolean(v))
        return api_fail(e, 400, name, "\"%s\" must be true or false", name);
    *out = json_is_true(v);
    return true;
}

bool field_string(const json_t *o, const char *name, const char **out, struct api_error *e)
{
    const json_t *v = field_find(o, name);
    if (!v)
        return true;
    if (!json_is_string(v))
        return api_fail(e, 400, name, "\"%s\" must be a string", name);
    *out = json_string_value(v);
    return true;
}

bool field_object(const json_t *o, const char *name, const json_t **out, struct api_error *e)
{
    const json_t *v = field_find(o, name);
    if (!v)
        return true;
    if (!json_is_object(v))
        return api_fail(e, 400, name, "\"%s\" must be an object", name);
    *out = v;
    return true;
}
