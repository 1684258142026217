/* Names of hosts, see host_rules.h. */
#include "host_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_SIZE = 256 }; /* the longest name has 253 characters */

bool host_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return !strcasecmp(host, "localhost");
}

/* "" or ":" and digits */
static bool is_port(const char *text)
{
    return !*text || (*text == ':' && strspn(text + 1, "0123456789") == strlen(text + 1));
}

static bool is_address6(const char *text, size_t len)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr v6;
    if (len >= sizeof address)
        return false;
    snprintf(address, sizeof address, "%.*s", (int)len, text);
    return inet_pton(AF_INET6, address, &v6) == 1;
}

bool host_is_valid(const char *header)
{
    size_t n;
    if (header[0] == '[') {
        n = strcspn(header, "]");
        return header[n] && is_address6(header + 1, n - 1) && is_port(header + n + 1);
    }
    n = strcspn(header, ":");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)header[i] <= ' ' || strchr("/?#@,;\\[]<>\"\x7f", header[i]))
            return false;
    return n > 0 && is_port(header + n);
}

/* Its length without the port that the scheme has anyway. */
static size_t without_port(const char *host, const char *port)
{
    size_t n = strlen(host), tail = strlen(port);
    return n > tail && !strcmp(host + n - tail, port) ? n - tail : n;
}

bool host_is_origin(const char *header, const char *origin)
{
    static const struct {
        const char *begins, *port;
    } schemes[] = { { "http://", ":80" }, { "https://", ":443" } };
    for (size_t i = 0; header && i < sizeof schemes / sizeof *schemes; i++) {
        size_t begin = strlen(schemes[i].begins), n = without_port(header, schemes[i].port);
        if (!strncasecmp(origin, schemes[i].begins, begin))
            return without_port(origin + begin, schemes[i].port) == n &&
                   !strncasecmp(origin + begin, header, n);
    }
    return false;
}

static bool is_local_name(const char *name)
{
    static const char below[] = ".localhost";
    size_t n = strlen(name), tail = sizeof below - 1;
    return !strcasecmp(name, below + 1) || (n > tail && !strcasecmp(name + n - tail, below));
}

bool host_is_known(const char *header, const char *const *names, int n_names)
{
    char name[NAME_SIZE];
    struct in_addr address;
    size_t n;
    if (!header || header[0] == '[') /* an address of IPv6 */
        return true;
    n = strcspn(header, ":");
    if (n == 0 || n >= sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)n, header);
    if (name[n - 1] == '.') /* a name that is complete */
        name[n - 1] = 0;
    if (inet_pton(AF_INET, name, &address) == 1 || is_local_name(name))
        return true;
    for (int i = 0; i < n_names; i++)
        if (!strcasecmp(name, names[i]))
            return true;
    return false;
}
