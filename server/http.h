/* The HTTP part of the server. An exchange is one request and its reply. The types of the HTTP
 * library (libmicrohttpd) stay in http_daemon.c and http_exchange.c.
 *
 * Everything here runs on the thread of the event loop (serve_loop.h). A handler may reply at once
 * or later; a waiting exchange occupies no thread. */
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
    EXCHANGE_WAITS,   /* the body is complete; the handler has not replied yet */
    EXCHANGE_REPLIES, /* the reply is being sent */
};

/* The handler may read the fields before `http`, and set `user` and `body_limit`. */
struct exchange {
    char method[16], path[HTTP_PATH_SIZE], remote[HTTP_REMOTE_SIZE];
    int64_t declared;    /* Content-Length; -1: not given */
    uint64_t body_limit; /* bytes; a longer body is refused with 413. Set by `begin` */
    double begun;        /* clock_now() */
    uint64_t bytes_in, bytes_out;
    int status;        /* of the reply; 0: none yet */
    bool first;        /* the first exchange of its connection */
    const char *fault; /* what is wrong with the head: refuse it; NULL: nothing */
    void *user;

    struct http *http;
    struct http_link *link;
    enum exchange_phase phase;
    bool suspended, dropped, refused, streaming, ended, in_callback;
    void *response; /* of libmicrohttpd; NULL: none, or passed to it */
    struct buf out; /* of a stream: bytes from out_sent on are not sent yet */
    size_t out_sent;
    double
        moved; /* clock_now() when the reply began, or a stream's client last received something */
    uint64_t received_before; /* bytes that the client had received of the connection before */
};

/* Callbacks for requests, all on the loop's thread. */
struct http_handler {
    /* The head is complete. May reply at once; sets body_limit (0: no body is accepted). */
    void (*begin)(void *user, struct exchange *x);
    /* A piece of the body, within body_limit. Not called after a reply. */
    void (*body)(void *user, struct exchange *x, const char *data, size_t size);
    /* The body is complete: reply now, or later. Not called after a reply. */
    void (*complete)(void *user, struct exchange *x);
    /* The body is longer than body_limit: reply with 413. */
    void (*too_long)(void *user, struct exchange *x);
    /* The last call: the reply was sent, or the client disconnected before. */
    void (*gone)(void *user, struct exchange *x, bool sent);
};

struct http_params {
    const char *host;
    int port; /* 0: any free one */
    int max_connections;
    double head_seconds;  /* from the connection, or the last reply, to a complete head */
    double stall_seconds; /* a client that receives nothing of a reply this long is disconnected */
    uint64_t body_rate;  /* least bytes per second of a body, on average, after head_seconds; and of
                            a whole reply, after stall_seconds */
    size_t stream_bytes; /* most bytes that may wait for a slow client; more disconnects it */
    struct http_handler handler;
    void *user;
};

enum pv_status http_open(struct http **out, struct loop *loop, const struct http_params *p,
                         struct pv_error *err);
/* Drops all connections. */
void http_close(struct http **http);
/* The port that it listens on. */
int http_port(const struct http *h);
int http_connections(const struct http *h);
/* Accept no new connections, except those that clients have opened already. */
void http_quiesce(struct http *h);
/* Whether a connection is so new that its first request may still arrive. */
bool http_expects(const struct http *h);
/* Handle everything that is ready; called by the loop. Returns the seconds until it must be called
 * again. */
double http_run(struct http *h);

/* A header of the request, or a parameter of its query string; NULL: it has none. */
const char *exchange_header(const struct exchange *x, const char *name);
const char *exchange_query(const struct exchange *x, const char *name);

/* Set a header of the reply; call it before replying. At most 8. */
void exchange_set(struct exchange *x, const char *name, const char *value);
/* Send a complete reply; the data is copied. */
void exchange_reply(struct exchange *x, int status, const char *type, const void *data,
                    size_t size);
/* Reply with the rest of this file, which is closed afterwards. */
void exchange_reply_file(struct exchange *x, int status, const char *type, int fd, uint64_t size);
/* Send a reply in pieces. exchange_write returns false if the client has disconnected, or was
 * dropped because it is too slow. */
void exchange_stream(struct exchange *x, int status, const char *type);
bool exchange_write(struct exchange *x, const void *data, size_t size);
void exchange_end(struct exchange *x);
/* Disconnect the client; the handler's `gone` is called. */
void exchange_drop(struct exchange *x);
bool exchange_replied(const struct exchange *x);

/* The version of libmicrohttpd. */
const char *http_library_version(void);

#endif
