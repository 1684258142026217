/* Shared by http_daemon.c and http_exchange.c. */
#ifndef PV_SERVER_HTTP_PARTS_H
#define PV_SERVER_HTTP_PARTS_H

#include "http.h"

#include <microhttpd.h>

enum { HTTP_MAX_HEADERS = 8 };

/* A connection. */
struct http_link {
    struct http_link *next, *prev;
    struct http *http;
    struct MHD_Connection *connection;
    int fd;
    double since;                /* clock_now() when it last became idle */
    bool hung_up;                /* the client has closed its side */
    bool used;                   /* it has had an exchange */
    char target[HTTP_PATH_SIZE]; /* of the newest request, as it was sent; cut */
    struct exchange *x;          /* NULL: none */
    struct {
        char name[48], value[256];
    } header[HTTP_MAX_HEADERS]; /* of the next reply */
    int n_headers;
};

struct http {
    struct http_params p;
    struct loop *loop;
    struct MHD_Daemon *daemon;
    struct http_link *links;
    int n_links;
    int port;
    double swept; /* clock_now() of the last search for timeouts */
    bool quiet;   /* http_quiesce was called */
};

/* Pass the reply to libmicrohttpd; only possible inside one of its callbacks. */
enum MHD_Result exchange_queue(struct exchange *x);
void exchange_suspend(struct exchange *x);
void exchange_resume(struct exchange *x);
void exchange_free(struct exchange *x);

#endif
