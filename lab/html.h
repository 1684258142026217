/* The common parts of our HTML pages, which are self-contained and share a style. */
#ifndef PV_LAB_HTML_H
#define PV_LAB_HTML_H

#include "base/buf.h"

/* Adds everything up to the page's own style; the caller adds that style and
 * "</style></head><body>". The page's content security policy forbids loading anything. The title
 * is both strings together. */
void html_begin(struct buf *b, const char *title, const char *rest);
/* Adds text, escaped so that it contains no markup. */
void html_text(struct buf *b, const char *utf8);

#endif
