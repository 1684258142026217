/* Errors in the form of the OpenAI protocol: an HTTP status and
 * {"error":{"message","type","param","code"}}. */
#ifndef PV_SERVER_API_ERROR_H
#define PV_SERVER_API_ERROR_H

#include "base/buf.h"
#include "base/status.h"

enum { API_MESSAGE_SIZE = 640, API_PARAM_SIZE = 64 };

struct api_error {
    int status;       /* HTTP status; 0: no error */
    const char *type; /* "invalid_request_error", ... */
    const char *code; /* NULL: none */
    char param[API_PARAM_SIZE];
    char message[API_MESSAGE_SIZE];
};

/* Record an error; the type follows from the status. The first recorded error is kept. Always
 * returns false, for callers that return success as a bool. `param` may be NULL. */
bool api_fail(struct api_error *e, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for an error of the library. */
bool api_fail_status(struct api_error *e, enum pv_status status, const char *param,
                     const char *message);
/* Adds {"error":{...}}. */
void api_error_json(struct buf *b, const struct api_error *e);

#endif
