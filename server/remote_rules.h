/* From which network addresses media may be fetched. */
#ifndef PV_SERVER_REMOTE_RULES_H
#define PV_SERVER_REMOTE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { REMOTE_HOST_SIZE = 256 };

struct remote_host {
    char name[REMOTE_HOST_SIZE]; /* in lower case */
    int port;
    bool usual_port; /* 80 of http, 443 of https */
};

/* The host of an http or https URL; false: it has none, or the URL has a user name, a malformed
 * port or invalid characters. */
bool remote_url_host(struct remote_host *out, const char *url);
/* Whether the host is allowed. ".example.org" allows every host below example.org, and
 * "example.org:8080" another port than the usual one. */
bool remote_host_allowed(const struct remote_host *host, const char *const *domains, int n);
/* Whether this is a public internet address: not loopback, private, link-local, multicast or
 * otherwise special. */
bool remote_address_public(const struct sockaddr *a);

#endif
