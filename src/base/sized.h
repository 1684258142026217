/* Structs that callers fill begin with their size, so that later releases can add fields at the
 * end: a caller that was compiled with fewer of them means the defaults of the others. */
#ifndef PV_BASE_SIZED_H
#define PV_BASE_SIZED_H

#include "base/status.h"

/* The defaults, `own` of `size` bytes, into a caller's struct of `room` bytes. */
void sized_init(void *theirs, size_t room, const void *own, size_t size);
/* A caller's struct over `own`, which has the defaults. PV_E_ARG: it has no size, or one that this
 * library does not know. `what` is for the sentence: "a request". */
enum pv_status sized_read(void *own, size_t size, const void *theirs, const char *what,
                          struct pv_error *err);
/* As much of `own` as a caller's struct, which has its size, has room for. */
void sized_write(void *theirs, const void *own, size_t size);

#endif
