/* The stack of a thread is the process's limit on stacks, unless one asks: 8 MiB as a rule, but it
 * may be a few pages. Memory of a stack is taken when it is touched, so asking for 1 MiB costs
 * address space only. */
#include "base/thread.h"

enum { STACK = 1 << 20 };

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
