/* Recording of errors. The text is written where the cause is known; callers pass the status
 * up unchanged, so the first text is the true one and is kept. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

enum pv_status fail(struct pv_error *err, enum pv_status code, const char *fmt, ...)
{
    if (err && err->code == PV_OK) {
        va_list ap;
        err->code = code;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return code;
}

enum pv_status fail_nomem(struct pv_error *err, size_t size)
{
    return fail(err, PV_E_NOMEM, "out of memory: %zu bytes were asked for", size);
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
