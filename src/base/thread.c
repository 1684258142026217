/* The stack of a thread is the process's limit on stacks, unless one asks: 8 MiB as a rule, but it
 * may be a few pages. Memory of a stack is taken when it is touched, so asking for 1 MiB costs
 * address space only. */
#include "base/thread.h"

#include <time.h>

enum { STACK = 1 << 20, ASK_NS = 10 * 1000 * 1000, SECOND_NS = 1000 * 1000 * 1000 };

bool thread_start(pthread_t *out, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    size_t size = 0;
    int r = pthread_attr_init(&attr);

    if (r != 0)
        return false;
    if (pthread_attr_getstacksize(&attr, &size) == 0 && size < STACK)
        r = pthread_attr_setstacksize(&attr, STACK);
    if (r == 0)
        r = pthread_create(out, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return r == 0;
}

/* By the clock of pthread_mutex_timedlock, which may be set: the next question then comes early or
 * late, and those after it in time. */
static bool take_soon(pthread_mutex_t *lock)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ASK_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    return pthread_mutex_timedlock(lock, &until) == 0;
}

bool lock_take(pthread_mutex_t *lock, bool (*go_on)(void *user), void *user)
{
    if (!go_on)
        return pthread_mutex_lock(lock) == 0;
    if (pthread_mutex_trylock(lock) == 0)
        return true;
    while (go_on(user))
        if (take_soon(lock))
            return true;
    return false;
}
