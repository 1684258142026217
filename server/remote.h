/* Fetches media from the network; disabled unless a domain is allowed. */
#ifndef PV_SERVER_REMOTE_H
#define PV_SERVER_REMOTE_H

#include "media_part.h"

#include <stdatomic.h>

/* If the media item has a URL, fetch it into memory: at most rules->limit bytes, from the allowed
 * domains only, and never from an address of a private network. Stops when *left is set. */
bool remote_fetch(struct media_part *m, const struct media_rules *rules, const atomic_bool *left,
                  struct api_error *e);
/* Name and version of the HTTP client library; NULL: this build has none. */
const char *remote_library(void);

#endif
