/* Which addresses on the network media may come from. */
#ifndef PV_SERVER_REMOTE_RULES_H
#define PV_SERVER_REMOTE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { REMOTE_HOST_SIZE = 256 };

/* The host of an http or https URL, in lower case; false: it has none, or the URL has a user name
 * or characters that belong in no URL. */
bool remote_url_host(char out[REMOTE_HOST_SIZE], const char *url);
/* Is the host one of the allowed ones? ".example.org" allows every host below example.org. */
bool remote_host_allowed(const char *host, const char *const *domains, int n);
/* Is this an address that the whole internet can reach? Loopback, private, link-local, multicast
 * and all other special ones are not. */
bool remote_address_public(const struct sockaddr *a);

#endif
