/* What our pages have in common: they stand alone, and look alike. */
#ifndef PV_CLI_HTML_H
#define PV_CLI_HTML_H

#include "base/buf.h"

/* Everything up to the page's own style, which is to follow, and "</style></head><body>" then.
 * Nothing is loaded from elsewhere, and the page's policy says so. The title is both strings. */
void html_begin(struct buf *b, const char *title, const char *rest);
/* Text that is no markup, whatever it holds. */
void html_text(struct buf *b, const char *utf8);

#endif
