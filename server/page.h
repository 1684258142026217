/* The files of server/page, which the build embeds in the program. */
#ifndef PV_SERVER_PAGE_H
#define PV_SERVER_PAGE_H

#include <stddef.h>

struct page_file {
    const char *name; /* without its directory */
    const unsigned char *data;
    size_t size;
};

extern const struct page_file page_files[];
extern const int n_page_files;

#endif
