/* From which network addresses media may be fetched. */
#ifndef PV_SERVER_REMOTE_RULES_H
#define PV_SERVER_REMOTE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { REMOTE_HOST_SIZE = 256 };

/* The host of an http or https URL, in lower case; false: it has none, or the URL has a user name
 * or invalid characters. */
bool remote_url_host(char out[REMOTE_HOST_SIZE], const char *url);
/* Whether the host is allowed. ".example.org" allows every host below example.org. */
bool remote_host_allowed(const char *host, const char *const *domains, int n);
/* Whether this is a public internet address: not loopback, private, link-local, multicast or
 * otherwise special. */
bool remote_address_public(const struct sockaddr *a);

#endif
