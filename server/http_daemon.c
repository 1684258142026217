/* libmicrohttpd with our own event loop: connections come and go, heads and bodies are read with
 * bounds on size and time, and clients that leave are noticed.
 *
 * The library watches the socket of a connection only while it reads or writes. While a connection
 * is suspended (it waits for an answer) nobody would notice that the client has left; so each
 * socket is also in the loop's own set, for EPOLLRDHUP alone. */
#include "http_head.h"
#include "http_parts.h"

#include "serve_loop.h"

#include "base/clock.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTION_MEMORY = 24 << 10, /* of the library: heads must fit */
    SEND_BUFFER = 128 << 10,      /* of the kernel: bounds what a slow client holds there */
    DISCARD = 1 << 20,            /* of a refused body is read, so that the client sees the reply */
    BACKLOG = 1024,
    FIRST_SECONDS = 1, /* from the connection to the first request, of clients in no trouble */
    IDLE_SECONDS = 120 /* of a whole reply that does not move */
};

/* ---- connections ---- */

static void name_remote(char out[HTTP_REMOTE_SIZE], const struct sockaddr *a)
{
    char host[INET6_ADDRSTRLEN] = "?";
    unsigned port = 0;
    if (a && a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)a;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        port = ntohs(in->sin_port);
    } else if (a && a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)a;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        port = ntohs(in->sin6_port);
    }
    snprintf(out, HTTP_REMOTE_SIZE, "%s:%u", host, port);
}

/* The client has closed its side: it is gone. (The library, whose events are edge-triggered, can
 * miss the end of a body that is cut off.) */
static void hang_up(void *user)
{
    struct http_link *l = user;
    l->hung_up = true;
    if (l->x)
        exchange_drop(l->x);
    else
        shutdown(l->fd, SHUT_RDWR);
}

static void open_link(struct http *h, struct MHD_Connection *c, void **context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_link *l = mem_zalloc(sizeof *l);
    int send_buffer = SEND_BUFFER, on = 1;
    if (!l)
        return;
    l->http = h;
    l->connection = c;
    l->fd = info ? info->connect_fd : -1;
    l->since = clock_now();
    l->next = h->links;
    if (h->links)
        h->links->prev = l;
    h->links = l;
    h->n_links++;
    *context = l;
    setsockopt(l->fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    loop_watch_hangup(h->loop, l->fd, hang_up, l);
}

static void close_link(struct http *h, void **context)
{
    struct http_link *l = *context;
    if (!l)
        return;
    loop_unwatch(h->loop, l->fd, l);
    if (l->next)
        l->next->prev = l->prev;
    *(l->prev ? &l->prev->next : &h->links) = l->next;
    h->n_links--;
    mem_free(l);
    *context = NULL;
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        open_link(cls, c, context);
    else
        close_link(cls, context);
}

static struct http_link *link_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* ---- exchanges ---- */

/* Bytes that the client has acknowledged on this connection. */
static uint64_t received(const struct http_link *l)
{
    struct tcp_info info = { 0 };
    socklen_t size = sizeof info;
    return getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_acked : 0;
}

/* The first line of a request, before the library decodes its path. */
static void *note_target(void *cls, const char *target, struct MHD_Connection *c)
{
    struct http_link *l = link_of(c);
    (void)cls;
    if (l)
        snprintf(l->target, sizeof l->target, "%s", target);
    return NULL;
}

static struct exchange *open_exchange(struct http *h, struct http_link *l, const char *url,
                                      const char *method, const char *version)
{
    const union MHD_ConnectionInfo *address =
        MHD_get_connection_info(l->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct exchange *x = mem_zalloc(sizeof *x);
    const char *length;
    if (!x)
        return NULL;
    buf_init(&x->out, h->p.stream_bytes);
    x->http = h;
    x->link = l;
    x->begun = clock_now();
    x->received_before = received(l);
    x->first = !l->used;
    l->used = true;
    snprintf(x->method, sizeof x->method, "%s", method);
    snprintf(x->path, sizeof x->path, "%s", strlen(url) < sizeof x->path ? url : "");
    name_remote(x->remote, address ? address->client_addr : NULL);
    l->x = x;
    l->n_headers = 0;
    x->fault = http_head_fault(l->connection, version, l->target);
    length = exchange_header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (exchange_header(x, MHD_HTTP_HEADER_TRANSFER_ENCODING))
        x->declared = -1; /* whatever the length says */
    else
        x->declared = length ? strtoll(length, NULL, 10) : 0;
    return x;
}

/* The head is complete. A refused body is read and thrown away while it is short; a long one ends
 * the connection, and so does a head that cannot be trusted. */
static enum MHD_Result begin(struct http *h, struct exchange *x)
{
    h->p.handler.begin(h->p.user, x);
    if (!exchange_replied(x) && x->declared > 0 && (uint64_t)x->declared > x->body_limit)
        h->p.handler.too_long(h->p.user, x);
    if (exchange_replied(x) && (x->fault || x->declared < 0 || x->declared > DISCARD))
        return exchange_queue(x);
    return MHD_YES;
}

static enum MHD_Result take_body(struct http *h, struct exchange *x, const char *data, size_t *size)
{
    size_t n = *size;
    *size = 0;
    x->bytes_in += n;
    if (!exchange_replied(x) && x->bytes_in > x->body_limit)
        h->p.handler.too_long(h->p.user, x);
    if (exchange_replied(x))
        return x->bytes_in > 2 * x->body_limit + DISCARD ? MHD_NO : MHD_YES;
    h->p.handler.body(h->p.user, x, data, n);
    return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **context)
{
    struct http *h = cls;
    struct exchange *x = *context;
    struct http_link *l = x ? x->link : link_of(c);
    if (!l)
        return MHD_NO;
    if (!x) {
        x = open_exchange(h, l, url, method, version);
        *context = x;
        return x ? begin(h, x) : MHD_NO;
    }
    if (x->dropped)
        return MHD_NO;
    if (*size > 0)
        return take_body(h, x, data, size);
    if (x->phase == EXCHANGE_BODY) {
        x->phase = EXCHANGE_WAITS;
        if (l->hung_up)
            return MHD_NO;
        if (!exchange_replied(x))
            h->p.handler.complete(h->p.user, x);
    }
    if (x->response)
        return exchange_queue(x);
    exchange_suspend(x);
    return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode why)
{
    struct http *h = cls;
    struct exchange *x = *context;
    (void)c;
    if (!x)
        return;
    h->p.handler.gone(h->p.user, x, why == MHD_REQUEST_TERMINATED_COMPLETED_OK && !x->dropped);
    x->link->x = NULL;
    x->link->since = clock_now();
    exchange_free(x);
    *context = NULL;
}

/* ---- time ---- */

/* Bodies of a steady trickle are as bad as heads of one, and so are replies that are read so. */
static bool too_slow(const struct http *h, const struct http_link *l, double now)
{
    const struct exchange *x = l->x;
    if (!x)
        return now - l->since > h->p.head_seconds;
    if (x->phase == EXCHANGE_BODY)
        return now - x->begun >
               h->p.head_seconds + (double)x->bytes_in / (double)(h->p.body_rate + 1);
    if (x->streaming)
        return x->out.len > x->out_sent && now - x->moved > h->p.stall_seconds;
    return x->phase == EXCHANGE_REPLIES &&
           now - x->moved > h->p.stall_seconds + (double)(received(l) - x->received_before) /
                                                     (double)(h->p.body_rate + 1);
}

static void sweep(struct http *h, double now)
{
    for (struct http_link *l = h->links; l; l = l->next) {
        if (!too_slow(h, l, now))
            continue;
        if (l->x)
            exchange_drop(l->x);
        else
            shutdown(l->fd, SHUT_RDWR);
        l->since = now;
    }
}

double http_run(struct http *h)
{
    MHD_UNSIGNED_LONG_LONG ms;
    double now = clock_now(), wait = 1;
    MHD_run(h->daemon);
    if (now - h->swept >= 1) {
        h->swept = now;
        sweep(h, now);
    }
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES && 1e-3 * (double)ms < wait)
        wait = 1e-3 * (double)ms;
    return wait;
}

/* ---- opening ---- */

static int listen_on(const struct addrinfo *a)
{
    int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    close(fd);
    return -1;
}

static enum pv_status open_socket(struct http *h, int *out, struct pv_error *err)
{
    struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *list = NULL;
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    char port[16];
    int fd = -1, rc;
    snprintf(port, sizeof port, "%d", h->p.port);
    rc = getaddrinfo(h->p.host, port, &hints, &list);
    if (rc)
        return fail(err, PV_E_ARG, "the host '%s' is not known: %s", h->p.host, gai_strerror(rc));
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = listen_on(a);
    freeaddrinfo(list);
    if (fd < 0)
        return fail(err, PV_E_IO, "cannot listen on %s port %d: %m", h->p.host, h->p.port);
    memset(&bound, 0, sizeof bound);
    getsockname(fd, (struct sockaddr *)&bound, &size);
    h->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                : ((struct sockaddr_in *)&bound)->sin_port);
    *out = fd;
    return PV_OK;
}

enum pv_status http_open(struct http **out, struct loop *loop, const struct http_params *p,
                         struct pv_error *err)
{
    struct http *h = mem_zalloc(sizeof *h);
    const union MHD_DaemonInfo *info;
    enum pv_status s;
    int fd = -1;
    if (!h)
        return fail_nomem(err, sizeof *h);
    h->p = *p;
    h->loop = loop;
    s = open_socket(h, &fd, err);
    if (s) {
        mem_free(h);
        return s;
    }
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, h,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_URI_LOG_CALLBACK, note_target,
        NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)p->max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    info = h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info || !loop_watch_input(loop, info->epoll_fd)) {
        if (!h->daemon)
            close(fd);
        http_close(&h);
        return fail(err, PV_E_NOMEM, "the HTTP library could not be started");
    }
    *out = h;
    return PV_OK;
}

/* Clients whose connection waits in the kernel's queue believe that they are connected: closing the
 * socket would reset them, and their requests would be lost. */
static void accept_waiting(struct http *h, int fd)
{
    struct sockaddr_storage from;
    for (int i = 0; i < BACKLOG; i++) {
        socklen_t size = sizeof from;
        int client = accept(fd, (struct sockaddr *)&from, &size);
        if (client < 0)
            return;
        fcntl(client, F_SETFD, FD_CLOEXEC);
        MHD_add_connection(h->daemon, client, (const struct sockaddr *)&from, size);
    }
}

void http_quiesce(struct http *h)
{
    int fd;
    if (h->quiet)
        return;
    h->quiet = true;
    fd = MHD_quiesce_daemon(h->daemon);
    if (fd < 0)
        return;
    accept_waiting(h, fd);
    close(fd);
}

bool http_expects(const struct http *h)
{
    double now = clock_now();
    for (const struct http_link *l = h->links; l; l = l->next)
        if (!l->used && !l->hung_up && now - l->since < FIRST_SECONDS)
            return true;
    return false;
}

void http_close(struct http **http)
{
    struct http *h = *http;
    if (!h)
        return;
    for (struct http_link *l = h->links; l; l = l->next)
        if (l->x)
            exchange_drop(l->x);
    if (h->daemon) {
        MHD_run(h->daemon); /* suspended connections must have been resumed */
        MHD_stop_daemon(h->daemon);
    }
    mem_free(h);
    *http = NULL;
}

int http_port(const struct http *h)
{
    return h->port;
}

int http_connections(const struct http *h)
{
    return h->n_links;
}

const char *http_library_version(void)
{
    return MHD_get_version();
}
