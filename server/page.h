/* The page, from server/page/index.html; the build makes an object of it. */
#ifndef PV_SERVER_PAGE_H
#define PV_SERVER_PAGE_H

#include <stddef.h>

extern const char page_html[];
extern const size_t page_html_size;

#endif
