/* Stop strings are searched for in the text that is held back, which is never longer than the
 * longest string plus the text of one token. */
#include "engine/stop_text.h"

#include "base/mem.h"

#include <string.h>

enum { HELD_LIMIT = 4 << 20 };

enum pv_status stop_text_open(struct stop_text *s, const char *const *strings, size_t n,
                              struct pv_error *err)
{
    *s = (struct stop_text){ .found = -1 };
    buf_init(&s->held, HELD_LIMIT);
    if (n > STOP_MAX_STRINGS)
        return fail(err, PV_E_ARG, "%zu stop strings were given, at most %d are possible", n,
                    STOP_MAX_STRINGS);
    for (size_t i = 0; i < n; i++) {
        size_t len = strings[i] ? strlen(strings[i]) : 0;
        if (len < 1 || len > STOP_MAX_LEN) {
            stop_text_close(s);
            return fail(err, PV_E_ARG, "stop string %zu has %zu bytes, 1 to %d are possible", i + 1,
                        len, STOP_MAX_LEN);
        }
        s->string[s->n] = mem_strdup(strings[i]);
        if (!s->string[s->n]) {
            stop_text_close(s);
            return fail_nomem(err, len + 1);
        }
        s->len[s->n++] = len;
    }
    return PV_OK;
}

void stop_text_close(struct stop_text *s)
{
    for (int i = 0; i < s->n; i++)
        mem_free(s->string[i]);
    buf_clear(&s->held);
    *s = (struct stop_text){ .found = -1 };
}

/* The index of the stop string that begins here; none; or perhaps one, if more text follows. */
enum { BEGINS_NONE = -1, BEGINS_PERHAPS = -2 };

static int begins(const struct stop_text *s, const char *text, size_t len)
{
    int result = BEGINS_NONE;
    for (int i = 0; i < s->n; i++) {
        size_t n = s->len[i] < len ? s->len[i] : len;
        if (memcmp(text, s->string[i], n) != 0)
            continue;
        if (s->len[i] <= len)
            return i;
        result = BEGINS_PERHAPS;
    }
    return result;
}

bool stop_text_push(struct stop_text *s, const char *utf8, size_t len, bool last, struct buf *out)
{
    size_t safe = 0;
    if (s->found >= 0)
        return true;
    if (s->n == 0)
        return buf_add(out, utf8, len);
    if (!buf_add(&s->held, utf8, len))
        return false;
    while (safe < s->held.len) {
        int which = begins(s, s->held.data + safe, s->held.len - safe);
        if (which >= 0)
            s->found = which;
        if (which >= 0 || (which == BEGINS_PERHAPS && !last))
            break;
        safe++;
    }
    if (safe > 0 && !buf_add(out, s->held.data, safe))
        return false;
    if (safe > 0)
        memmove(s->held.data, s->held.data + safe, s->held.len - safe);
    s->held.len -= safe;
    return true;
}
