/* The head of a page, and text that is safe in it. */
#include "html.h"

#include <string.h>

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ground:#fafafa;--ink:#1c1e22;--dim:#646a74;--line:#d4d7dc;"
    "--on:#1c1e22;--off:#fff}\n"
    "@media(prefers-color-scheme:dark){:root{--ground:#16181d;--ink:#eceef2;--dim:#9ea4ae;"
    "--line:#363a42;--on:#eceef2;--off:#16181d}}\n"
    "body{margin:1.5rem;font:15px/1.45 system-ui,sans-serif;background:var(--ground);"
    "color:var(--ink)}\n"
    "h1{font-size:1.25rem;margin:0;overflow-wrap:anywhere}\n"
    "p{margin:.3rem 0;color:var(--dim);overflow-wrap:anywhere}\n";

void html_text(struct buf *b, const char *utf8)
{
    for (; *utf8; utf8++) {
        if (strchr("&<>\"'", *utf8))
            buf_printf(b, "&#%d;", *utf8);
        else if ((unsigned char)*utf8 >= ' ' || *utf8 == '\n' || *utf8 == '\t')
            buf_add(b, utf8, 1);
    }
}

void html_begin(struct buf *b, const char *title, const char *rest)
{
    buf_puts(b, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                "img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
                "<title>");
    html_text(b, title);
    html_text(b, rest);
    buf_puts(b, "</title>\n");
    buf_puts(b, style);
}
