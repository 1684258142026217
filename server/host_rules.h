/* Which names a server may be asked by. A page from elsewhere can make its own name resolve to this
 * machine's loopback address (DNS rebinding) and then is of the server's origin; but browsers tell
 * the name in the Host header. */
#ifndef PV_SERVER_HOST_RULES_H
#define PV_SERVER_HOST_RULES_H

#include <stdbool.h>

bool host_is_loopback(const char *host);
/* `header`: of a request, with or without a port; NULL: it had none. True for addresses, localhost
 * and the names given. */
bool host_is_known(const char *header, const char *const *names, int n_names);

#endif
