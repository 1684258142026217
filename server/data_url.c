/* Base64 (RFC 4648), also in its URL alphabet. Strict where a mistake would be silent: a character
 * outside the alphabet, data after padding, or a length that no bytes have. */
#include "data_url.h"

#include "base/mem.h"

#include <string.h>
#include <strings.h>

static const char begin[] = "data:";

bool data_url_is(const char *url)
{
    return strncasecmp(url, begin, sizeof begin - 1) == 0;
}

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    if (c == '/' || c == '_')
        return 63;
    return -1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* False: what is wrong is in *at. */
static bool decode(uint8_t *to, size_t *size, const char *text, size_t len, size_t *at)
{
    uint32_t bits = 0;
    int held = 0, padding = 0;
    size_t n = 0;
    for (*at = 0; *at < len; (*at)++) {
        char c = text[*at];
        int d = digit(c);
        if (is_blank(c))
            continue;
        padding += c == '=';
        if (c == '=' && padding <= 2)
            continue;
        if (d < 0 || padding > 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        held += 6;
        if (held >= 8) {
            held -= 8;
            to[n++] = (uint8_t)(bits >> held);
        }
    }
    *size = n;
    return held < 6; /* one character alone is no byte */
}

enum pv_status base64_parse(uint8_t **out, size_t *size, const char *text, size_t len,
                            uint64_t limit, struct pv_error *err)
{
    size_t most = len / 4 * 3 + 3, at = 0;
    uint8_t *to;
    if (most > limit && most - 3 > limit + limit / 2)
        return fail(err, PV_E_LIMIT,
                    "a media file of about %zu bytes in base64, but the limit is %llu", most,
                    (unsigned long long)limit);
    to = mem_alloc(most);
    if (!to)
        return fail_nomem(err, most);
    if (!decode(to, size, text, len, &at)) {
        mem_free(to);
        return fail(err, PV_E_FORMAT, "this is not base64: character %zu of %zu", at, len);
    }
    if (*size > limit) {
        mem_free(to);
        return fail(err, PV_E_LIMIT, "a media file of %zu bytes, but the limit is %llu", *size,
                    (unsigned long long)limit);
    }
    *out = to;
    return PV_OK;
}

/* Without parameters such as ";codecs=...". */
static void lower_type(char out[DATA_URL_TYPE_SIZE], const char *type, size_t len)
{
    const char *parameters = memchr(type, ';', len);
    len = parameters ? (size_t)(parameters - type) : len;
    len = len < DATA_URL_TYPE_SIZE ? len : 0;
    for (size_t i = 0; i < len; i++)
        out[i] = (char)(type[i] >= 'A' && type[i] <= 'Z' ? type[i] + 32 : type[i]);
    out[len] = 0;
}

enum pv_status data_url_parse(struct data_url *out, const char *url, size_t len, uint64_t limit,
                              struct pv_error *err)
{
    static const char mark[] = ";base64";
    size_t head = sizeof begin - 1, mark_len = sizeof mark - 1;
    const char *comma = len > head ? memchr(url, ',', len) : NULL;
    struct data_url u = { .data = NULL };
    size_t end = comma ? (size_t)(comma - url) : 0;
    enum pv_status s;
    if (len < head || strncasecmp(url, begin, head) != 0 || !comma)
        return fail(err, PV_E_FORMAT, "this is not a data URL: expected data:TYPE;base64,...");
    if (end < head + mark_len || strncasecmp(comma - mark_len, mark, mark_len) != 0)
        return fail(err, PV_E_FORMAT, "a data URL without ;base64 before its comma");
    end -= mark_len;
    lower_type(u.type, url + head, end - head);
    s = base64_parse(&u.data, &u.size, comma + 1, len - (size_t)(comma + 1 - url), limit, err);
    if (!s)
        *out = u;
    return s;
}

void data_url_clear(struct data_url *u)
{
    mem_free(u->data);
    *u = (struct data_url){ .data = NULL };
}
