/* From which network addresses media may be fetched. */
#ifndef PV_SERVER_REMOTE_RULES_H
#define PV_SERVER_REMOTE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { REMOTE_HOST_SIZE = 256 };

struct remote_host {
    char name[REMOTE_HOST_SIZE]; /* in lower case; addresses as they are usually written */
    bool is_address;
    int port;        /* of a domain: -1: the usual one */
    bool usual_port; /* 80 of http, 443 of https */
};

/* From where media may be fetched: "example.org"; ".example.org": every host below it; and with
 * another port than the usual one, "example.org:8080". */
struct remote_domain {
    struct remote_host host;
    bool below;
};

/* False: the text is none of these. */
bool remote_domain_parse(struct remote_domain *out, const char *text);
/* The host of an http or https URL; false: it has none, or the URL has a user name, a malformed
 * port or invalid characters, or an address in an unusual form, such as 127.1. */
bool remote_url_host(struct remote_host *out, const char *url);
/* Whether the host is in one of the domains, which are valid. */
bool remote_host_allowed(const struct remote_host *host, const char *const *domains, int n);
/* Whether this is a public internet address: not loopback, private, link-local, multicast or
 * otherwise special. */
bool remote_address_public(const struct sockaddr *a);

#endif
