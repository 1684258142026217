/* The HTTP side of the server: one thread, a table of connections, and exchanges. An exchange is
 * one request and its reply. The types of the HTTP library (libmicrohttpd) stay in http_daemon.c
 * and http_exchange.c.
 *
 * Everything here runs on the thread of the loop (serve_loop.h). A handler answers at once or
 * later; until then the exchange waits and costs no thread. */
#ifndef PV_SERVER_HTTP_H
#define PV_SERVER_HTTP_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct http;
struct loop;

enum { HTTP_REMOTE_SIZE = 64, HTTP_PATH_SIZE = 512 };

enum exchange_phase {
    EXCHANGE_BODY,    /* the request's body is being read */
    EXCHANGE_WAITS,   /* read whole; the handler has not replied yet */
    EXCHANGE_REPLIES, /* the reply is on its way */
};

/* Fields above `http` are for the handler to read, `user` and `body_limit` for it to set. */
struct exchange {
    char method[16], path[HTTP_PATH_SIZE], remote[HTTP_REMOTE_SIZE];
    int64_t declared;    /* Content-Length; -1: not told */
    uint64_t body_limit; /* bytes; what is longer is refused with 413. Set by `begin` */
    double begun;        /* clock_now() */
    uint64_t bytes_in, bytes_out;
    int status; /* of the reply; 0: none yet */
    bool first; /* of its connection */
    void *user;

    struct http *http;
    struct http_link *link;
    enum exchange_phase phase;
    bool suspended, dropped, refused, streaming, ended, in_callback;
    void *response;  /* the library's; NULL: none, or handed over */
    struct buf out;  /* of a stream: what the client has not been sent yet, */
    size_t out_sent; /* from here on */
    double moved;    /* clock_now() when the client last took something */
};

/* What becomes of requests. All calls come on the loop's thread. */
struct http_handler {
    /* The head is complete. May reply at once, and sets body_limit (0: no body wanted). */
    void (*begin)(void *user, struct exchange *x);
    /* A piece of the body, within body_limit. Not called after a reply. */
    void (*body)(void *user, struct exchange *x, const char *data, size_t size);
    /* The body is complete: reply now, or later. Not called after a reply. */
    void (*complete)(void *user, struct exchange *x);
    /* The body is longer than body_limit: reply with 413. */
    void (*too_long)(void *user, struct exchange *x);
    /* The last call: the reply was sent, or the client left before. */
    void (*gone)(void *user, struct exchange *x, bool sent);
};

struct http_params {
    const char *host;
    int port; /* 0: any free one */
    int max_connections;
    double head_seconds;  /* from the connection, or the last reply, to a complete head */
    double stall_seconds; /* a client that takes nothing of a reply for so long is disconnected */
    uint64_t body_rate;   /* bytes a second that a body must have on average after head_seconds */
    size_t stream_bytes;  /* most that waits for a slow client; more disconnects it */
    struct http_handler handler;
    void *user;
};

enum pv_status http_open(struct http **out, struct loop *loop, const struct http_params *p,
                         struct pv_error *err);
/* Drops what there is. */
void http_close(struct http **http);
/* The port that it listens on. */
int http_port(const struct http *h);
int http_connections(const struct http *h);
/* No new connections from now on. Those that clients have opened already are taken. */
void http_quiesce(struct http *h);
/* Whether a connection is so young that its first request may be on the way. */
bool http_expects(const struct http *h);
/* Does what has become possible; called by the loop. Returns seconds until it wants to be called
 * again. */
double http_run(struct http *h);

/* A header of the request, or of its query string; NULL: it has none. */
const char *exchange_header(const struct exchange *x, const char *name);
const char *exchange_query(const struct exchange *x, const char *name);

/* A header of the reply; before it. At most 8. */
void exchange_set(struct exchange *x, const char *name, const char *value);
/* The whole reply; copied. */
void exchange_reply(struct exchange *x, int status, const char *type, const void *data,
                    size_t size);
/* The reply is the rest of this file, which is closed afterwards. */
void exchange_reply_file(struct exchange *x, int status, const char *type, int fd, uint64_t size);
/* A reply that comes in pieces. Write: false when the client is too slow and was dropped, or has
 * left. */
void exchange_stream(struct exchange *x, int status, const char *type);
bool exchange_write(struct exchange *x, const void *data, size_t size);
void exchange_end(struct exchange *x);
/* Disconnects the client; `gone` follows. */
void exchange_drop(struct exchange *x);
bool exchange_replied(const struct exchange *x);

/* The version of libmicrohttpd. */
const char *http_library_version(void);

#endif
