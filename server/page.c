/* Serves the web page, whose files are embedded in the program. Its content security policy allows
 * requests to this server only, and forbids scripts to turn text into HTML. */
#include "page.h"
#include "server.h"

#include <string.h>

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

static const char *type_of(const char *name)
{
    static const struct {
        const char *end, *type;
    } types[] = { { ".html", "text/html; charset=utf-8" },
                  { ".css", "text/css; charset=utf-8" },
                  { ".js", "text/javascript; charset=utf-8" } };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (!strcmp(dot, types[i].end))
            return types[i].type;
    return "application/octet-stream";
}

void route_page(struct call *c)
{
    const char *name = c->arg[0] ? c->arg : "index.html";
    struct api_error e = { 0 };
    for (int i = 0; i < n_page_files; i++) {
        struct buf b = { .data = (char *)page_files[i].data, .len = page_files[i].size };
        if (strcmp(page_files[i].name, name) != 0)
            continue;
        exchange_set(c->x, "Content-Security-Policy", policy);
        exchange_set(c->x, "Referrer-Policy", "no-referrer");
        exchange_set(c->x, "Cache-Control", "no-cache");
        call_reply(c, 200, type_of(name), &b);
        return;
    }
    api_fail(&e, 404, NULL, "the page has no file \"%s\"", name);
    call_fail(c, &e);
}
