/* Status codes and the one way to record why something failed. */
#ifndef PV_BASE_STATUS_H
#define PV_BASE_STATUS_H

#include "prevue/prevue.h"

/* Record the cause and return `code`. The first recorded cause is kept. `err` may be NULL. Control
 * characters in the text are escaped. */
enum pv_status fail(struct pv_error *err, enum pv_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "NAME: " before the text of an error, unless the text contains the name. For callers that
 * know the file's name if the function that failed does not. */
void fail_names(struct pv_error *err, const char *name);

/* fail() for an allocation of `size` bytes. */
enum pv_status fail_nomem(struct pv_error *err, size_t size);

/* The status of a system call that failed with this errno: PV_E_NOMEM if memory, descriptors or
 * processes are used up, which may pass; otherwise PV_E_IO. */
enum pv_status status_of_errno(int why);

#endif
