/* Which characters a terminal does not print but acts on, and how they are shown instead. The form
 * of the escapes is that of C strings. A backslash stays single: messages are read by people, and
 * the names of most files have none. */
#include "base/escape.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* C1 controls; line and paragraph separator; embeddings, overrides and isolates of direction. */
static bool acts(uint32_t cp)
{
    return (cp >= 0x80 && cp < 0xa0) || (cp >= 0x2028 && cp <= 0x202e) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

/* Besides those of `acts`: fillers, joiners, marks, selectors of variants, tags. */
static const struct {
    uint32_t from, to;
} hidden[] = {
    { 0x0000, 0x001f },   { 0x007f, 0x007f },   { 0x00ad, 0x00ad }, { 0x034f, 0x034f },
    { 0x061c, 0x061c },   { 0x115f, 0x1160 },   { 0x17b4, 0x17b5 }, { 0x180b, 0x180f },
    { 0x200b, 0x200f },   { 0x2060, 0x206f },   { 0x3164, 0x3164 }, { 0xfe00, 0xfe0f },
    { 0xfeff, 0xfeff },   { 0xffa0, 0xffa0 },   { 0xfff0, 0xfffb }, { 0x1bca0, 0x1bca3 },
    { 0x1d173, 0x1d17a }, { 0xe0000, 0xe0fff },
};

bool escape_hidden(uint32_t cp)
{
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (cp >= hidden[i].from && cp <= hidden[i].to)
            return true;
    return acts(cp);
}

size_t escape_char(char out[ESCAPE_MAX], size_t *n, const char *s, size_t len)
{
    uint32_t cp = 0;
    int taken = utf8_decode(s, len, &cp);

    if (taken <= 0 || cp < 0x20 || cp == 0x7f) {
        *n = (size_t)snprintf(out, ESCAPE_MAX, "\\x%02x", (unsigned char)*s);
        return 1;
    }
    if (acts(cp)) {
        *n = (size_t)snprintf(out, ESCAPE_MAX, "\\u%04x", (unsigned)cp);
    } else {
        *n = (size_t)taken;
        memcpy(out, s, *n);
    }
    return (size_t)taken;
}

size_t escape_text(char *out, size_t cap, const char *s)
{
    size_t len = strlen(s), used = 0;

    while (len > 0) {
        char shown[ESCAPE_MAX];
        size_t n, taken = escape_char(shown, &n, s, len);
        if (n >= cap - used)
            break;
        memcpy(out + used, shown, n);
        used += n;
        s += taken;
        len -= taken;
    }
    out[used] = 0;
    return used;
}
