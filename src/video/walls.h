/* The walls of the helper process: what it may still do after they are up. */
#ifndef PV_VIDEO_WALLS_H
#define PV_VIDEO_WALLS_H

#include "base/status.h"

struct walls_limits {
    uint64_t memory;    /* bytes that may be allocated; 0: any number */
    uint64_t mapped;    /* and mapped besides */
    double cpu_seconds; /* 0: any number */
    int last_fd;        /* descriptors after this one are closed */
};

/* Whether memory is bounded in this build: sanitizers need their own. */
bool walls_bound_memory(void);
/* For the calling process, which has one thread. It dies with its parent. Afterwards no file can be
 * opened, no socket made, no process started, no code added, and what is open stays all there is.
 * PV_E_UNSUPPORTED: the system has no system-call filter. */
enum pv_status walls_raise(const struct walls_limits *l, struct pv_error *err);

#endif
