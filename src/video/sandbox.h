/* The limits and the sandbox of the helper process. */
#ifndef PV_VIDEO_SANDBOX_H
#define PV_VIDEO_SANDBOX_H

#include "base/status.h"

#include <stdint.h>

struct sandbox_limits {
    uint64_t memory;    /* bytes that may be allocated; 0: no limit */
    uint64_t mapped;    /* further bytes that may be mapped */
    double cpu_seconds; /* 0: no limit */
    int last_fd;        /* all higher descriptors are closed */
};

/* Whether this build limits memory; builds with sanitizers do not, since these need much of it. */
bool sandbox_bound_memory(void);
/* The smaller of `bound` and of the calling process's limit on `resource` (RLIMIT_...). */
uint64_t sandbox_least(int resource, uint64_t bound);
/* Limit the calling process, which must have one thread, to this; it is killed when its parent
 * ends, and writes no file. */
enum pv_status sandbox_limit(const struct sandbox_limits *l, struct pv_error *err);
/* Put it into the sandbox: from then on it cannot open files, create sockets, start processes or
 * map executable memory. PV_E_UNSUPPORTED: the system has no system-call filter (seccomp).
 * PV_E_NOMEM: it may have one, but no memory for it now. */
enum pv_status sandbox_enter(struct pv_error *err);

#endif
