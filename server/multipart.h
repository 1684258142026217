/* Parses bodies of multipart/form-data (RFC 7578) as they arrive; only the heads of parts are kept
 * in memory. */
#ifndef PV_SERVER_MULTIPART_H
#define PV_SERVER_MULTIPART_H

#include "base/status.h"

enum { MULTIPART_NAME = 64, MULTIPART_FILE = 256, MULTIPART_TYPE = 64, MULTIPART_HEAD = 4096 };

struct multipart_part {
    char name[MULTIPART_NAME];
    char file[MULTIPART_FILE]; /* "": it is not a file */
    char type[MULTIPART_TYPE];
};

/* Callbacks of the parser. If one returns false, multipart_add fails without an error message. */
struct multipart_calls {
    bool (*begin)(void *user, const struct multipart_part *part);
    bool (*data)(void *user, const char *data, size_t size);
    bool (*end)(void *user);
};

struct multipart {
    struct multipart_calls calls;
    void *user;
    char mark[80]; /* "\r\n--BOUNDARY" */
    size_t mark_len, matched;
    int state, parts;
    char head[MULTIPART_HEAD];
    size_t head_len;
};

/* content_type: the request's header; NULL: it has none. */
enum pv_status multipart_init(struct multipart *m, const char *content_type,
                              const struct multipart_calls *calls, void *user,
                              struct pv_error *err);
enum pv_status multipart_add(struct multipart *m, const char *data, size_t size,
                             struct pv_error *err);
/* The body has ended; an error if it is incomplete. */
enum pv_status multipart_end(const struct multipart *m, struct pv_error *err);

#endif
