/* What the server is built on, for bug reports. */
#include "http.h"
#include "remote.h"
#include "serve.h"

#include <stdio.h>

void serve_libraries(char *out, size_t size)
{
    const char *remote = remote_library();
    snprintf(out, size, "libmicrohttpd %s, %s", http_library_version(),
             remote ? remote : "no libcurl");
}
