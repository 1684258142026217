/* Which host names requests may use. A page from another site can make its own name resolve to this
 * machine's loopback address (DNS rebinding), so that browsers treat it as the server's origin. But
 * browsers send that name in the Host header, so unknown names are refused. */
#ifndef PV_SERVER_HOST_RULES_H
#define PV_SERVER_HOST_RULES_H

#include <stdbool.h>

/* Whether this names an address of this machine alone: localhost, or such an address. */
bool host_is_loopback(const char *host);
/* Whether a Host header is a name or an address, with or without a port. */
bool host_is_valid(const char *header);
/* header: a valid Host header; NULL: the request has none. True for IP addresses, localhost and the
 * given names. */
bool host_is_known(const char *header, const char *const *names, int n_names);
/* Whether pages of this origin ("http://name:80") come from this host. NULL: no host. */
bool host_is_origin(const char *header, const char *origin);

#endif
