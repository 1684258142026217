/* Dynamic distribution of work among the threads of a pool (base/pool.h). */
#ifndef PV_BASE_WORK_QUEUE_H
#define PV_BASE_WORK_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>

/* Items 0..n-1, taken in order by whichever thread is free. */
struct work_queue {
    _Atomic int next;
    int n;
};

static inline void work_init(struct work_queue *q, int n)
{
    atomic_init(&q->next, 0);
    q->n = n;
}

/* Take a range of the remaining items, long at first and shorter towards the end ("guided"
 * scheduling): few atomic operations, and threads that finish together. False if none is left. */
static inline bool work_range(struct work_queue *q, int n_threads, int *begin, int *end)
{
    int at = atomic_load_explicit(&q->next, memory_order_relaxed), take;
    do {
        if (at >= q->n)
            return false;
        take = n_threads > 1 ? (q->n - at) / (2 * n_threads) : q->n - at;
        take = take > 0 ? take : 1;
    } while (!atomic_compare_exchange_weak_explicit(&q->next, &at, at + take, memory_order_relaxed,
                                                    memory_order_relaxed));
    *begin = at;
    *end = at + take;
    return true;
}

/* The next item, or -1 when none is left. */
static inline int work_next(struct work_queue *q)
{
    int i = atomic_fetch_add_explicit(&q->next, 1, memory_order_relaxed);
    return i < q->n ? i : -1;
}

#endif
