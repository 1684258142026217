/* Which heads of requests are refused. Where two programs read a head in different ways, a request
 * can be hidden in another one (request smuggling), so what RFC 9112 leaves open is refused. */
#ifndef PV_SERVER_HTTP_HEAD_H
#define PV_SERVER_HTTP_HEAD_H

struct MHD_Connection;

/* What is wrong with the head; NULL: nothing. version: "HTTP/1.1". target: as it was sent. */
const char *http_head_fault(struct MHD_Connection *c, const char *version, const char *target);

#endif
