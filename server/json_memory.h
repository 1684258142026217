/* Bounds the memory that jansson takes to read the bodies of requests. Its values need up to 80
 * times as much as their text ("[{},{},...]"), and a body is read whole, unknown fields included.
 *
 * jansson allocates with the functions of this file. While it reads a body, an allocation that
 * fails or goes beyond the bound ends the reading at once. (jansson itself must not go on without
 * memory: 2.14 then reads beyond the end of a string.) */
#ifndef PV_SERVER_JSON_MEMORY_H
#define PV_SERVER_JSON_MEMORY_H

#include <jansson.h>
#include <stdint.h>

enum {
    JSON_TIMES = 2,        /* the values of a body may take so many times its size, */
    JSON_EXTRA = 15 << 20, /* and so many bytes more */
};

enum json_refusal {
    JSON_FITS,
    JSON_TOO_LARGE, /* the values of this body would take more than they may */
    JSON_BUSY,      /* those of all bodies together would */
    JSON_NO_MEMORY, /* the system has no more */
};

/* Call it once, before the first value: bodies of `bodies` bytes may be in memory at a time. */
void json_memory_open(uint64_t bodies);
/* The value of a text; NULL: *refusal says why it has no memory, or *why what is wrong with it. */
json_t *json_memory_parse(const char *text, size_t len, json_error_t *why,
                          enum json_refusal *refusal);
/* Free it. */
void json_memory_free(json_t *root);
/* Give memory back to the system, if so many bytes were freed that this is worth the time: malloc
 * would keep it. Call it when all that a body has taken is freed. */
void json_memory_trim(uint64_t freed);

#endif
