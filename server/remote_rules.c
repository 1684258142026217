/* The special-purpose addresses of IANA's registries (RFC 6890 and its successors). An IPv6 address
 * that stands for an IPv4 one is judged as that. */
#include "remote_rules.h"

#include <netinet/in.h>
#include <stdint.h>
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

bool remote_host_allowed(const char *host, const char *const *domains, int n)
{
    size_t len = strlen(host);
    for (int i = 0; i < n; i++) {
        size_t d = strlen(domains[i]);
        if (!strcasecmp(host, domains[i]) ||
            (domains[i][0] == '.' && len > d && !strcasecmp(host + len - d, domains[i])))
            return true;
    }
    return false;
}

bool remote_url_host(char out[REMOTE_HOST_SIZE], const char *url)
{
    const char *at = strstr(url, "://");
    size_t n;
    for (const char *c = url; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f || *c == '\\')
            return false;
    if (!at || (strncasecmp(url, "http://", 7) && strncasecmp(url, "https://", 8)))
        return false;
    at += 3;
    n = strcspn(at, "/?#");
    if (memchr(at, '@', n))
        return false;
    n = *at == '[' ? strcspn(at, "]") + 1 : strcspn(at, ":/?#");
    if (n == 0 || n >= REMOTE_HOST_SIZE)
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(at[i] >= 'A' && at[i] <= 'Z' ? at[i] + 32 : at[i]);
    out[n] = 0;
    return true;
}
