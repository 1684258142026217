/* The thread pool. A region is announced by raising `generation`, its end by raising `ended`, the
 * meeting of all threads by raising `phase`. Whoever waits for one of them spins a while and then
 * sleeps until the counter changes: on a machine where others work too, a thread that kept spinning
 * or yielding would take the core from the thread that it waits for. `sleepers` is raised under the
 * lock before the last look at a counter, and looked at after raising the counter, both
 * sequentially consistent, so that no wake-up is lost. */
#include "base/pool.h"

#include "base/cpu.h"
#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SPINS = 4000,     /* looks before a thread sleeps: some 100 us */
    SPINS_SHARED = 50 /* where there are more threads than cores */
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    int n;
    int n_started;
    int spins;
    pool_fn *fn;
    void *ctx;
    _Alignas(64) atomic_uint generation;
    _Alignas(64) atomic_int finished;
    atomic_uint ended;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint phase;
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

/* Wait until a counter is no longer `last`; what it is then. */
static unsigned wait_change(struct pool *p, atomic_uint *counter, unsigned last)
{
    for (int i = 0; i < p->spins; i++) {
        unsigned now = atomic_load_explicit(counter, memory_order_acquire);
        if (now != last)
            return now;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(counter) == last)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    return atomic_load(counter);
}

static void raise_counter(struct pool *p, atomic_uint *counter)
{
    atomic_fetch_add(counter, 1);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned last = 0;
    for (;;) {
        last = wait_change(p, &p->generation, last);
        if (atomic_load(&p->stop))
            return NULL;
        p->fn(p->ctx, w->index, p->n);
        if (atomic_fetch_add(&p->finished, 1) == p->n - 2)
            raise_counter(p, &p->ended);
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
    p->spins = n_threads > cpu_count() ? SPINS_SHARED : SPINS;
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
    raise_counter(p, &p->generation);
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
    unsigned ended = atomic_load_explicit(&p->ended, memory_order_relaxed);
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->finished, 0, memory_order_relaxed);
    raise_counter(p, &p->generation);
    fn(ctx, 0, p->n);
    (void)wait_change(p, &p->ended, ended);
}

void pool_barrier(struct pool *p)
{
    unsigned phase;
    if (p->n == 1)
        return;
    phase = atomic_load_explicit(&p->phase, memory_order_relaxed);
    if (atomic_fetch_add(&p->arrived, 1) == p->n - 1) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        raise_counter(p, &p->phase);
    } else {
        (void)wait_change(p, &p->phase, phase);
    }
}
