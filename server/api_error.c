/* Which status goes with which type, and which with the library's. */
#include "api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *type;
} types[] = {
    { 400, "invalid_request_error" }, { 401, "authentication_error" },
    { 403, "permission_error" },      { 404, "not_found_error" },
    { 405, "invalid_request_error" }, { 408, "invalid_request_error" },
    { 413, "invalid_request_error" }, { 415, "invalid_request_error" },
    { 429, "unavailable_error" },     { 500, "server_error" },
    { 501, "not_supported_error" },   { 503, "unavailable_error" },
    { 507, "insufficient_storage" },
};

static const struct {
    enum pv_status status;
    int http;
} statuses[] = {
    { PV_E_ARG, 400 },    { PV_E_FORMAT, 400 },    { PV_E_UNSUPPORTED, 400 },
    { PV_E_LIMIT, 400 },  { PV_E_CANCELLED, 503 }, { PV_E_NOMEM, 503 },
    { PV_E_DEVICE, 500 }, { PV_E_DRAFTER, 500 },   { PV_E_NOT_FINITE, 500 },
    { PV_E_IO, 500 },
};

bool api_fail(struct api_error *e, int status, const char *param, const char *fmt, ...)
{
    va_list ap;
    if (e->status)
        return false;
    e->status = status;
    e->type = "server_error";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == status)
            e->type = types[i].type;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return false;
}

bool api_fail_status(struct api_error *e, enum pv_status status, const char *param,
                     const char *message)
{
    int http = 500;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].status == status)
            http = statuses[i].http;
    if (e->status)
        return false;
    api_fail(e, http, param, "%s", message);
    if (status == PV_E_LIMIT &&
        (strstr(message, "context") || strstr(message, "tokens there is room for"))) {
        e->type = "exceed_context_size_error";
        e->code = "context_length_exceeded";
    }
    return false;
}

void api_error_json(struct buf *b, const struct api_error *e)
{
    buf_puts(b, "{\"error\":{\"message\":");
    buf_json(b, e->message, strlen(e->message));
    buf_printf(b, ",\"type\":\"%s\",\"param\":", e->type);
    if (e->param[0])
        buf_json(b, e->param, strlen(e->param));
    else
        buf_puts(b, "null");
    if (e->code)
        buf_printf(b, ",\"code\":\"%s\"}}", e->code);
    else
        buf_printf(b, ",\"code\":%d}}", e->status);
}
