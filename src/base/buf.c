/* The bounded growable buffer. Growth doubles, so that adding a byte at a time stays linear, and
 * one byte beyond the contents is always kept for the NUL. Failure is sticky: a caller may add
 * many pieces and look at `failed` once. */
#include "base/buf.h"

#include "base/escape.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_init(struct buf *b, size_t limit)
{
    *b = (struct buf){ .limit = limit };
}

void buf_clear(struct buf *b)
{
    mem_free(b->data);
    buf_init(b, b->limit);
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = 0;
}

/* Room for `len` more bytes and the NUL. */
static bool reserve(struct buf *b, size_t len)
{
    size_t need, cap;
    char *grown;

    if (b->failed)
        return false;
    if (!add_size(b->len, len, &need) || need > b->limit || !add_size(need, 1, &need)) {
        b->failed = true;
        return false;
    }
    if (need <= b->cap)
        return true;
    if (!mul_size(b->cap ? b->cap : 32, 2, &cap) || cap < need)
        cap = need;
    grown = mem_realloc(b->data, cap);
    if (!grown) {
        b->failed = true;
        return false;
    }
    b->data = grown;
    b->cap = cap;
    return true;
}

bool buf_add(struct buf *b, const void *data, size_t len)
{
    if (!reserve(b, len))
        return false;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    return true;
}

bool buf_puts(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        b->failed = true;
    if (n < 0 || !reserve(b, (size_t)n))
        return false;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return true;
}

/* As JSON has it: beyond 0xffff as two halves. */
static void json_escape(struct buf *b, uint32_t cp)
{
    if (cp > 0xffff)
        buf_printf(b, "\\u%04x", (unsigned)(0xd800 + ((cp - 0x10000) >> 10)));
    buf_printf(b, "\\u%04x", (unsigned)(cp > 0xffff ? 0xdc00 + (cp & 0x3ff) : cp));
}

/* One character (already known to be UTF-8) inside a JSON string. */
static void json_char(struct buf *b, const char *s, size_t len, uint32_t cp, bool visible)
{
    static const char short_form[] = "btn\0fr"; /* U+0008 .. U+000D, U+000B has none */

    if (cp == '"' || cp == '\\')
        buf_printf(b, "\\%c", (int)cp);
    else if (cp >= 8 && cp <= 13 && short_form[cp - 8])
        buf_printf(b, "\\%c", short_form[cp - 8]);
    else if (cp < 0x20 || cp == 0x7f || (visible && escape_hidden(cp)))
        json_escape(b, cp);
    else
        buf_add(b, s, len);
}

static bool add_json(struct buf *b, const char *utf8, size_t len, bool visible)
{
    size_t i = 0;

    buf_add(b, "\"", 1);
    while (i < len) {
        uint32_t cp;
        int n = utf8_decode(utf8 + i, len - i, &cp);
        if (n <= 0) {
            buf_puts(b, "\xef\xbf\xbd");
            i++;
        } else {
            json_char(b, utf8 + i, (size_t)n, cp, visible);
            i += (size_t)n;
        }
    }
    return buf_add(b, "\"", 1);
}

bool buf_json(struct buf *b, const char *utf8, size_t len)
{
    return add_json(b, utf8, len, false);
}

bool buf_json_visible(struct buf *b, const char *utf8, size_t len)
{
    return add_json(b, utf8, len, true);
}

bool buf_shown(struct buf *b, const char *s)
{
    size_t len = strlen(s);

    while (len > 0 && !b->failed) {
        char shown[ESCAPE_MAX];
        size_t n, taken = escape_char(shown, &n, s, len);
        buf_add(b, shown, n);
        s += taken;
        len -= taken;
    }
    return buf_add(b, "", 0);
}
