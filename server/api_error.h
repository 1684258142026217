/* Errors as clients of the OpenAI protocol expect them: a status of HTTP and
 * {"error":{"message","type","param","code"}}. */
#ifndef PV_SERVER_API_ERROR_H
#define PV_SERVER_API_ERROR_H

#include "base/buf.h"
#include "base/status.h"

enum { API_MESSAGE_SIZE = 640, API_PARAM_SIZE = 64 };

struct api_error {
    int status;       /* of HTTP; 0: no error */
    const char *type; /* "invalid_request_error", ... */
    const char *code; /* NULL: none */
    char param[API_PARAM_SIZE];
    char message[API_MESSAGE_SIZE];
};

/* The type follows from the status. The first error stays. Returns false, for callers that return
 * whether all is well. `param` may be NULL. */
bool api_fail(struct api_error *e, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* An error of the library. */
bool api_fail_status(struct api_error *e, enum pv_status status, const char *param,
                     const char *message);
/* Adds {"error":{...}}. */
void api_error_json(struct buf *b, const struct api_error *e);

#endif
