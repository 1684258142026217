/* Status codes and the one way to record why something failed. */
#ifndef PV_BASE_STATUS_H
#define PV_BASE_STATUS_H

#include "prevue/prevue.h"

/* Record the cause (the first one wins) and return `code`. `err` may be NULL. The text holds no
 * control characters, whatever the arguments do. */
enum pv_status fail(struct pv_error *err, enum pv_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "NAME: " before the text of a failure that does not have that name in it: for callers who
 * know the file, where the callee does not. */
void fail_names(struct pv_error *err, const char *name);

/* fail() for an allocation of `size` bytes. */
enum pv_status fail_nomem(struct pv_error *err, size_t size);

#endif
