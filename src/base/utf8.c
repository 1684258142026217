/* UTF-8 by the table of well-formed sequences (Unicode 15, table 3-7): the lead byte gives the
 * length and the range of the second byte, which alone excludes overlong forms, surrogates and
 * everything above U+10FFFF. */
#include "base/utf8.h"

/* Length of the sequence a lead byte begins (0: it begins none) and the second byte's range. */
static int lead_info(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    if (lead < 0xe0)
        return 2;
    if (lead < 0xf0) {
        if (lead == 0xe0)
            *low = 0xa0; /* below: overlong */
        if (lead == 0xed)
            *high = 0x9f; /* above: surrogates */
        return 3;
    }
    if (lead == 0xf0)
        *low = 0x90; /* below: overlong */
    if (lead == 0xf4)
        *high = 0x8f; /* above: past U+10FFFF */
    return 4;
}

int utf8_decode(const char *s, size_t len, uint32_t *cp)
{
    static const uint8_t lead_mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    const uint8_t *p = (const uint8_t *)s;
    uint8_t low, high;
    uint32_t value;
    int n;

    if (len == 0)
        return -1;
    n = lead_info(p[0], &low, &high);
    if (n == 0)
        return 0;
    value = p[0] & lead_mask[n];
    for (int i = 1; i < n; i++) {
        if ((size_t)i == len)
            return -1;
        if (p[i] < low || p[i] > high)
            return 0;
        value = value << 6 | (p[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    *cp = value;
    return n;
}

int utf8_encode(char *out, uint32_t cp)
{
    uint8_t *p = (uint8_t *)out;

    if (cp < 0x80) {
        p[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        p[0] = (uint8_t)(0xc0 | cp >> 6);
        p[1] = (uint8_t)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        p[0] = (uint8_t)(0xe0 | cp >> 12);
        p[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
        p[2] = (uint8_t)(0x80 | (cp & 0x3f));
        return 3;
    }
    p[0] = (uint8_t)(0xf0 | cp >> 18);
    p[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
    p[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
    p[3] = (uint8_t)(0x80 | (cp & 0x3f));
    return 4;
}

size_t utf8_prefix(const char *s, size_t len)
{
    size_t i = 0;

    while (i < len) {
        uint32_t cp;
        int n = utf8_decode(s + i, len - i, &cp);
        if (n <= 0)
            break;
        i += (size_t)n;
    }
    return i;
}

bool utf8_valid(const char *s, size_t len)
{
    return utf8_prefix(s, len) == len;
}
