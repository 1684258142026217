/* Names that nobody can guess. */
#ifndef PV_SERVER_UNIQUE_ID_H
#define PV_SERVER_UNIQUE_ID_H

#include <stddef.h>

/* `prefix` and 24 random hexadecimal digits, as far as `size` has room. */
void make_id(char *out, size_t size, const char *prefix);

#endif
