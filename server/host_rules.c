/* Names of hosts, see host_rules.h. */
#include "host_rules.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_SIZE = 256 }; /* the longest name has 253 characters */

bool host_is_loopback(const char *host)
{
    return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
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
