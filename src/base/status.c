/* Recording of errors. The text is written where the cause is known; callers pass the status
 * up unchanged, so the first text is the true one and is kept. It is escaped here, because it may
 * hold names of files and words from inside them (base/escape.h). */
#include "base/status.h"

#include "base/escape.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text that was cut to its buffer may end in half a character: drop that. */
static void drop_half(char *text)
{
    size_t len = strlen(text), i = len;
    uint32_t cp;
    while (i > 0 && len - i < 4 && ((unsigned char)text[i - 1] & 0xc0) == 0x80)
        i--;
    if (i > 0 && utf8_decode(text + i - 1, len - i + 1, &cp) < 0)
        text[i - 1] = 0;
}

enum pv_status fail(struct pv_error *err, enum pv_status code, const char *fmt, ...)
{
    if (err && err->code == PV_OK) {
        char text[sizeof err->text];
        va_list ap;
        err->code = code;
        va_start(ap, fmt);
        if (vsnprintf(text, sizeof text, fmt, ap) >= (int)sizeof text)
            drop_half(text);
        va_end(ap);
        escape_text(err->text, sizeof err->text, text);
    }
    return code;
}

void fail_names(struct pv_error *err, const char *name)
{
    enum { MAX_NAME = sizeof err->text / 2 };
    char shown[MAX_NAME], text[sizeof err->text];
    size_t n;

    if (!err || err->code == PV_OK)
        return;
    n = escape_text(shown, sizeof shown, name);
    if (n == 0 || strstr(err->text, shown))
        return;
    memcpy(text, err->text, sizeof text);
    n = (size_t)snprintf(err->text, sizeof err->text, "%s: ", shown);
    escape_text(err->text + n, sizeof err->text - n, text);
}

enum pv_status fail_nomem(struct pv_error *err, size_t size)
{
    return fail(err, PV_E_NOMEM, "out of memory: %zu bytes were asked for", size);
}

enum pv_status status_of_errno(int why)
{
    return why == EMFILE || why == ENFILE || why == ENOMEM || why == EAGAIN ? PV_E_NOMEM : PV_E_IO;
}

const char *pv_status_name(enum pv_status status)
{
    static const char *const names[] = {
        "ok",          "bad argument", "out of memory", "input/output",   "bad format",
        "unsupported", "over a limit", "cancelled",     "device failure", "drafter failure"
    };
    if ((unsigned)status >= sizeof names / sizeof *names)
        return "unknown status";
    return names[status];
}
