/* The special-purpose addresses of IANA's registries (RFC 6890 and its successors). An IPv6 address
 * that stands for an IPv4 one is judged as that. */
#include "remote_rules.h"

#include <netinet/in.h>
#include <stdint.h>
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
        return memchr(host, ':', *len) && host[0] != '[' ? 0 : -1;
    port = end - at <= 5 ? strtol(at, NULL, 10) : 0; /* "" is 0, too */
    *len = (size_t)(at - 1 - host);
    return port <= 65535 ? (int)port : 0;
}

bool remote_host_allowed(const struct remote_host *host, const char *const *domains, int n)
{
    size_t len = strlen(host->name);
    for (int i = 0; i < n; i++) {
        size_t d = strlen(domains[i]);
        int port = split_port(domains[i], &d);
        bool below = domains[i][0] == '.' && len > d;
        if ((port < 0 ? host->usual_port : port == host->port) && (below || len == d) &&
            !strncasecmp(host->name + len - d, domains[i], d))
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
    if (memchr(at, '@', n))
        return false;
    port = split_port(at, &n);
    if (port == 0 || n == 0 || n >= REMOTE_HOST_SIZE || (at[0] == '[') != (at[n - 1] == ']'))
        return false;
    for (size_t i = 0; i < n; i++)
        out->name[i] = (char)(at[i] >= 'A' && at[i] <= 'Z' ? at[i] + 32 : at[i]);
    out->name[n] = 0;
    out->port = port > 0 ? port : secure ? 443 : 80;
    out->usual_port = out->port == (secure ? 443 : 80);
    return true;
}
