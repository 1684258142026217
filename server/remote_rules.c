/* The special-purpose addresses of IANA's registries (RFC 6890 and its successors). An IPv6 address
 * that stands for an IPv4 one is judged as that. */
#include "remote_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    uint32_t address;
    int bits;
} special4[] = {
    { 0x00000000, 8 },  { 0x0a000000, 8 },  { 0x64400000, 10 }, { 0x7f000000, 8 },
    { 0xa9fe0000, 16 }, { 0xac100000, 12 }, { 0xc0000000, 24 }, { 0xc0000200, 24 },
    { 0xc0586300, 24 }, { 0xc0a80000, 16 }, { 0xc6120000, 15 }, { 0xc6336400, 24 },
    { 0xcb007100, 24 }, { 0xe0000000, 4 },  { 0xf0000000, 4 },
};

/* Within 2000::/3, outside of which nothing is public. */
static const struct {
    uint8_t begin[4];
    int bits;
} special6[] = {
    { { 0x20, 0x01, 0x00, 0x00 }, 23 }, /* Teredo and other protocols */
    { { 0x20, 0x01, 0x0d, 0xb8 }, 32 }, /* documentation */
    { { 0x20, 0x02, 0x00, 0x00 }, 16 }, /* 6to4: holds any IPv4 address */
    { { 0x3f, 0xff, 0x00, 0x00 }, 20 }, /* documentation */
};

static bool public4(uint32_t a)
{
    for (size_t i = 0; i < sizeof special4 / sizeof *special4; i++)
        if ((a ^ special4[i].address) >> (32 - special4[i].bits) == 0)
            return false;
    return true;
}

static uint32_t load_be(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool public6(const uint8_t a[16])
{
    static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
    static const uint8_t translated[12] = { 0, 0x64, 0xff, 0x9b };
    if (!memcmp(a, mapped, sizeof mapped) || !memcmp(a, translated, sizeof translated))
        return public4(load_be(a + 12));
    if (a[0] >> 5 != 1)
        return false;
    for (size_t i = 0; i < sizeof special6 / sizeof *special6; i++)
        if ((load_be(a) ^ load_be(special6[i].begin)) >> (32 - special6[i].bits) == 0)
            return false;
    return true;
}

bool remote_address_public(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return public4(ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr));
    if (a->sa_family == AF_INET6)
        return public6(((const struct sockaddr_in6 *)a)->sin6_addr.s6_addr);
    return false;
}

/* Cuts ":8080" off the length of a host; -1: it has no port, 0: not a valid one. */
static int split_port(const char *host, size_t *len)
{
    const char *end = host + *len, *at = end;
    long port;
    while (at > host && at[-1] >= '0' && at[-1] <= '9')
        at--;
    if (at == host || at[-1] != ':')
        return -1;
    port = end - at <= 5 ? strtol(at, NULL, 10) : 0; /* "" is 0, too */
    *len = (size_t)(at - 1 - host);
    return port <= 65535 ? (int)port : 0;
}

/* "[...]" -> an address of IPv6 in the form in which it is usually written. */
static bool parse_address6(char name[REMOTE_HOST_SIZE])
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr a;
    size_t n = strlen(name);
    if (name[n - 1] != ']' || n - 2 >= sizeof text)
        return false;
    memcpy(text, name + 1, n - 2);
    text[n - 2] = 0;
    if (inet_pton(AF_INET6, text, &a) != 1 || !inet_ntop(AF_INET6, &a, text, sizeof text))
        return false;
    snprintf(name, REMOTE_HOST_SIZE, "[%s]", text);
    return true;
}

/* Whether clients take the name for an address of IPv4: its last label is a number, as in
 * 127.0.0.1, 127.1, 2130706433 and 0x7f.0x1 (WHATWG URL). 127.0.0.1.example.com is a name. */
static bool ends_in_number(const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    size_t n = strlen(last);
    return strspn(last, "0123456789") == n ||
           (!strncmp(last, "0x", 2) && strspn(last + 2, "0123456789abcdef") == n - 2);
}

/* The n characters of a host, without a port. Only the usual form of an address is accepted, so
 * that each address has one name here. */
static bool parse_host(struct remote_host *out, const char *text, size_t n)
{
    char *name = out->name;
    struct in_addr a;
    if (n == 0 || n >= REMOTE_HOST_SIZE)
        return false;
    for (size_t i = 0; i < n; i++)
        name[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
    name[n] = 0;
    out->is_address = true;
    if (name[0] == '[')
        return parse_address6(name);
    if (name[n - 1] == '.') /* a name that is complete */
        name[--n] = 0;
    if (n == 0 || name[0] == '.' || name[n - 1] == '.' || strstr(name, "..") ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.")])
        return false;
    out->is_address = ends_in_number(name);
    return !out->is_address || inet_pton(AF_INET, name, &a) == 1;
}

bool remote_domain_parse(struct remote_domain *out, const char *text)
{
    size_t n;
    out->below = text[0] == '.';
    text += out->below;
    n = strlen(text);
    out->host.port = split_port(text, &n);
    return out->host.port != 0 && parse_host(&out->host, text, n) &&
           !(out->below && out->host.is_address);
}

bool remote_host_allowed(const struct remote_host *host, const char *const *domains, int n)
{
    size_t len = strlen(host->name);
    for (int i = 0; i < n; i++) {
        struct remote_domain d;
        size_t tail;
        if (!remote_domain_parse(&d, domains[i]) ||
            (d.host.port < 0 ? !host->usual_port : d.host.port != host->port))
            continue;
        tail = strlen(d.host.name);
        if (d.below ? !host->is_address && len > tail + 1 && host->name[len - tail - 1] == '.' &&
                          !strcmp(host->name + len - tail, d.host.name)
                    : !strcmp(host->name, d.host.name))
            return true;
    }
    return false;
}

bool remote_url_host(struct remote_host *out, const char *url)
{
    bool secure = !strncasecmp(url, "https://", 8);
    const char *at;
    size_t n;
    int port;
    for (const char *c = url; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f || *c == '\\')
            return false;
    if (!secure && strncasecmp(url, "http://", 7))
        return false;
    at = url + (secure ? 8 : 7);
    n = strcspn(at, "/?#");
    port = split_port(at, &n);
    if (port == 0 || !parse_host(out, at, n))
        return false;
    out->port = port > 0 ? port : secure ? 443 : 80;
    out->usual_port = out->port == (secure ? 443 : 80);
    return true;
}
