/* Public structs begin with their size, so that later releases can add fields at the end: for a
 * caller that was compiled with an older header, the new fields have their defaults. */
#ifndef PV_BASE_SIZED_H
#define PV_BASE_SIZED_H

#include "base/status.h"

/* Copy the defaults, `own` of `size` bytes, to a caller's struct of `room` bytes. */
void sized_init(void *theirs, size_t room, const void *own, size_t size);
/* Copy a caller's struct over `own`, which holds the defaults. PV_E_ARG if its size is 0 or larger
 * than this library's. `what` names it in the message: "a request". */
enum pv_status sized_read(void *own, size_t size, const void *theirs, const char *what,
                          struct pv_error *err);
/* Copy as much of `own` as fits into a caller's struct whose size is set. */
void sized_write(void *theirs, const void *own, size_t size);

#endif
