/* Random ids that cannot be guessed. */
#ifndef PV_SERVER_UNIQUE_ID_H
#define PV_SERVER_UNIQUE_ID_H

#include <stddef.h>

/* `prefix` and 24 random hexadecimal digits, truncated to `size`. */
void make_id(char *out, size_t size, const char *prefix);

#endif
