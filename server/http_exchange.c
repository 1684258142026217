/* Replies. A whole reply is one block; a stream is a bounded buffer from which the library takes
 * what the socket accepts. When the buffer is empty the connection is suspended, so that a thousand
 * waiting clients cost nothing. */
#include "http_parts.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAM_BLOCK = 16 << 10 };

/* ---- the request ---- */

const char *exchange_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->link->connection, MHD_HEADER_KIND, name);
}

const char *exchange_query(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->link->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* ---- suspending ---- */

void exchange_suspend(struct exchange *x)
{
    x->suspended = true;
    MHD_suspend_connection(x->link->connection);
}

void exchange_resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->link->connection);
}

/* ---- the reply ---- */

void exchange_set(struct exchange *x, const char *name, const char *value)
{
    struct http_link *l = x->link;
    if (l->n_headers == HTTP_MAX_HEADERS || x->response)
        return;
    snprintf(l->header[l->n_headers].name, sizeof l->header->name, "%s", name);
    snprintf(l->header[l->n_headers].value, sizeof l->header->value, "%s", value);
    l->n_headers++;
}

bool exchange_replied(const struct exchange *x)
{
    return x->status != 0;
}

static void set_response(struct exchange *x, int status, const char *type,
                         struct MHD_Response *response)
{
    struct http_link *l = x->link;
    x->status = status;
    x->moved = clock_now();
    x->response = response;
    if (!response) { /* without memory for a reply there is none */
        exchange_drop(x);
        return;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    for (int i = 0; i < l->n_headers; i++)
        MHD_add_response_header(response, l->header[i].name, l->header[i].value);
    l->n_headers = 0;
    exchange_resume(x);
}

void exchange_reply(struct exchange *x, int status, const char *type, const void *data, size_t size)
{
    if (exchange_replied(x))
        return;
    x->bytes_out = size;
    set_response(x, status, type,
                 MHD_create_response_from_buffer(size, (void *)data, MHD_RESPMEM_MUST_COPY));
}

void exchange_reply_file(struct exchange *x, int status, const char *type, int fd, uint64_t size)
{
    struct MHD_Response *r;
    if (exchange_replied(x)) {
        close(fd);
        return;
    }
    r = MHD_create_response_from_fd64(size, fd);
    if (!r)
        close(fd);
    x->bytes_out = size;
    set_response(x, status, type, r);
}

/* Takes from the stream what the client has room for. */
static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t room)
{
    struct exchange *x = cls;
    size_t n = x->out.len - x->out_sent;
    (void)pos;
    if (x->dropped)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0 && x->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        exchange_suspend(x);
        return 0;
    }
    n = n < room ? n : room;
    memcpy(to, x->out.data + x->out_sent, n);
    x->out_sent += n;
    x->moved = clock_now();
    if (x->out_sent == x->out.len) {
        buf_reset(&x->out);
        x->out_sent = 0;
    }
    return (ssize_t)n;
}

void exchange_stream(struct exchange *x, int status, const char *type)
{
    if (exchange_replied(x))
        return;
    x->streaming = true;
    set_response(
        x, status, type,
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, x, NULL));
}

/* Moves what is left to the front, so that the bound is on what waits. */
static void compact(struct exchange *x)
{
    size_t left = x->out.len - x->out_sent;
    if (x->out_sent == 0)
        return;
    memmove(x->out.data, x->out.data + x->out_sent, left);
    x->out.len = left;
    x->out_sent = 0;
}

bool exchange_write(struct exchange *x, const void *data, size_t size)
{
    if (x->dropped || x->ended)
        return false;
    if (x->out.len + size > x->out.limit)
        compact(x);
    if (x->out.len == 0)
        x->moved = clock_now(); /* from now on something waits for the client */
    if (!buf_add(&x->out, data, size)) {
        exchange_drop(x);
        return false;
    }
    x->bytes_out += size;
    exchange_resume(x);
    return true;
}

void exchange_end(struct exchange *x)
{
    x->ended = true;
    exchange_resume(x);
}

/* Shutting the socket down makes the library notice, whatever it waits for. What the kernel still
 * holds for the client is thrown away. */
void exchange_drop(struct exchange *x)
{
    struct linger at_once = { .l_onoff = 1 };
    if (x->dropped)
        return;
    x->dropped = true;
    setsockopt(x->link->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    shutdown(x->link->fd, SHUT_RDWR);
    exchange_resume(x);
}

enum MHD_Result exchange_queue(struct exchange *x)
{
    struct MHD_Response *r = x->response;
    enum MHD_Result result;
    if (!r)
        return MHD_NO;
    x->phase = EXCHANGE_REPLIES;
    result = MHD_queue_response(x->link->connection, (unsigned)x->status, r);
    MHD_destroy_response(r); /* the connection holds it */
    x->response = NULL;
    return result;
}

void exchange_free(struct exchange *x)
{
    if (x->response)
        MHD_destroy_response(x->response);
    buf_clear(&x->out);
    mem_free(x);
}
