/* The thread pool. A region is announced by raising `generation`; workers that still spin see it
 * at once, those that went to sleep are woken through the condition variable. `sleepers` is raised
 * under the lock before the last look at `generation`, and looked at after raising it, both
 * sequentially consistent, so that no wake-up is lost. */
#include "base/pool.h"

#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    SPIN_WORKER = 4000, /* looks before a worker sleeps: some 100 us */
    SPIN_YIELD = 2000   /* looks before the caller begins to yield (more threads than cores) */
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    int n;
    int n_started;
    pool_fn *fn;
    void *ctx;
    _Alignas(64) atomic_uint generation;
    _Alignas(64) atomic_int finished;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint barrier_phase;
    atomic_int sleepers;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct worker worker[POOL_MAX_THREADS];
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static unsigned wait_generation(struct pool *p, unsigned last)
{
    for (int i = 0; i < SPIN_WORKER; i++) {
        unsigned g = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (g != last)
            return g;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->generation) == last)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    return atomic_load(&p->generation);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned last = 0;
    for (;;) {
        last = wait_generation(p, last);
        if (atomic_load(&p->stop))
            return NULL;
        p->fn(p->ctx, w->index, p->n);
        atomic_fetch_add_explicit(&p->finished, 1, memory_order_release);
    }
}

static void announce(struct pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

enum pv_status pool_open(struct pool **out, int n_threads, struct pv_error *err)
{
    struct pool *p;
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS)
        return fail(err, PV_E_ARG, "%d threads asked for: 1 to %d are possible", n_threads,
                    POOL_MAX_THREADS);
    p = mem_zalloc(sizeof *p);
    if (!p)
        return fail_nomem(err, sizeof *p);
    p->n = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (int i = 1; i < n_threads; i++) {
        p->worker[i] = (struct worker){ .pool = p, .index = i };
        if (!thread_start(&p->worker[i].thread, worker_main, &p->worker[i])) {
            pool_close(&p);
            return fail(err, PV_E_NOMEM, "thread %d of %d could not be started", i, n_threads);
        }
        p->n_started = i;
    }
    *out = p;
    return PV_OK;
}

void pool_close(struct pool **pool)
{
    struct pool *p = *pool;
    if (!p)
        return;
    atomic_store(&p->stop, true);
    announce(p);
    for (int i = 1; i <= p->n_started; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    mem_free(p);
    *pool = NULL;
}

int pool_threads(const struct pool *pool)
{
    return pool->n;
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx)
{
    if (p->n == 1) {
        fn(ctx, 0, 1);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->finished, 0, memory_order_relaxed);
    announce(p);
    fn(ctx, 0, p->n);
    for (int i = 0; atomic_load_explicit(&p->finished, memory_order_acquire) != p->n - 1; i++) {
        relax();
        if (i > SPIN_YIELD)
            sched_yield();
    }
}

void pool_barrier(struct pool *p)
{
    unsigned phase;
    if (p->n == 1)
        return;
    phase = atomic_load_explicit(&p->barrier_phase, memory_order_relaxed);
    if (atomic_fetch_add(&p->arrived, 1) == p->n - 1) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&p->barrier_phase, phase + 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&p->barrier_phase, memory_order_acquire) == phase; i++) {
        relax();
        if (i > SPIN_YIELD)
            sched_yield();
    }
}
