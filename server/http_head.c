/* The library hands out the headers one by one, with their names as they were sent. It has taken
 * the lines apart by then: that a line ended in a bare LF, or went on behind a zero byte, cannot be
 * seen here. */
#include "http_head.h"

#include "host_rules.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { LENGTH_DIGITS = 18, HEAD_BYTES = 1 << 16 };

struct head {
    int hosts, lengths, encodings, expectations;
    const char *fault;
};

/* A character of a header's name (RFC 9110, token). */
static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_name(const char *name)
{
    const char *at = name;
    while (is_token(*at))
        at++;
    return at > name && !*at;
}

static bool has_controls(const char *value)
{
    for (; *value; value++)
        if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
            return true;
    return false;
}

/* A name stands before its value, in the memory of the head. For a header that is folded over two
 * lines libmicrohttpd 0.9.75 makes a new one, of the name and the second line. */
static bool is_folded(const char *name, const char *value)
{
    return (uintptr_t)value - (uintptr_t)name > HEAD_BYTES;
}

static bool is_length(const char *value)
{
    size_t n = strspn(value, "0123456789");
    return n > 0 && n <= LENGTH_DIGITS && !value[n];
}

static bool is_chunked(const char *value)
{
    return !strcasecmp(value, "chunked");
}

static bool is_continue(const char *value)
{
    return !strcasecmp(value, "100-continue");
}

/* Headers that say where a request ends and for whom it is: one of each, with one meaning. */
static const struct {
    const char *name;
    size_t count; /* in struct head */
    bool (*valid)(const char *value);
    const char *twice, *fault;
} single[] = {
    { "Host", offsetof(struct head, hosts), host_is_valid, "the request has two Host headers",
      "the Host header is no host with an optional port" },
    { "Content-Length", offsetof(struct head, lengths), is_length,
      "the request has two Content-Length headers", "the Content-Length header is no number" },
    { "Transfer-Encoding", offsetof(struct head, encodings), is_chunked,
      "the request has two Transfer-Encoding headers",
      "the Transfer-Encoding header is not \"chunked\"" },
    { "Expect", offsetof(struct head, expectations), is_continue,
      "the request has two Expect headers", "the Expect header is not \"100-continue\"" },
};

static enum MHD_Result judge(void *user, enum MHD_ValueKind kind, const char *name,
                             const char *value)
{
    struct head *h = user;
    (void)kind;
    if (value && is_folded(name, value))
        h->fault = "a header is folded over two lines";
    value = value ? value : "";
    if (h->fault)
        return MHD_NO;
    if (!is_name(name))
        h->fault = "the name of a header has a character that names cannot have";
    else if (has_controls(value))
        h->fault = "a header has a control character";
    for (size_t i = 0; i < sizeof single / sizeof *single && !h->fault; i++) {
        int *count = (int *)((char *)h + single[i].count);
        if (strcasecmp(name, single[i].name) != 0)
            continue;
        if (++*count > 1)
            h->fault = single[i].twice;
        else if (!single[i].valid(value))
            h->fault = single[i].fault;
    }
    return h->fault ? MHD_NO : MHD_YES;
}

const char *http_head_fault(struct MHD_Connection *c, const char *version, const char *target)
{
    bool old = !strcmp(version, "HTTP/1.0");
    struct head h = { 0 };
    MHD_get_connection_values(c, MHD_HEADER_KIND, judge, &h);
    if (h.fault)
        return h.fault;
    if (h.encodings && h.lengths)
        return "the request has both a Transfer-Encoding and a Content-Length header";
    if (h.encodings && old)
        return "a request of HTTP/1.0 has a Transfer-Encoding header";
    if (!h.hosts && !old)
        return "the request has no Host header";
    return strstr(target, "%00") || has_controls(target) ? "the path has a control character"
                                                         : NULL;
}
