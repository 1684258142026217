/* A build without libcurl fetches nothing. */
#include "remote.h"

bool remote_fetch(struct media_part *m, const struct media_rules *rules, const atomic_bool *left,
                  struct api_error *e)
{
    (void)rules;
    (void)left;
    if (!m->url)
        return true;
    return api_fail(e, 501, "url",
                    "this build of the server cannot fetch http(s) URLs: it was "
                    "built without libcurl");
}

const char *remote_library(void)
{
    return NULL;
}
