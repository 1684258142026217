/* Threads of the library. */
#ifndef PV_BASE_THREAD_H
#define PV_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* pthread_create with a stack that is large enough for the library's code, even if the process has
 * a small limit on stacks (ulimit -s). */
bool thread_start(pthread_t *out, void *(*run)(void *), void *arg);

/* Takes a lock that others may hold for long. Meanwhile `go_on` is asked about every 10 ms; false:
 * the lock is not held. NULL: waits for as long as it takes. */
bool lock_take(pthread_mutex_t *lock, bool (*go_on)(void *user), void *user);

#endif
