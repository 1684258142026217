/* Threads of the library. */
#ifndef PV_BASE_THREAD_H
#define PV_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* pthread_create with a stack that suffices for everything the library does on threads of its own,
 * however small the limit on stacks (ulimit -s) of the process is. */
bool thread_start(pthread_t *out, void *(*run)(void *), void *arg);

#endif
