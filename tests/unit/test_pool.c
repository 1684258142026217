/* The thread pool: every thread runs once, results are visible after pool_run, regions follow one
 * another at once or after a pause (workers then sleep), and opening fails cleanly. */
#define _GNU_SOURCE
#include "base/mem.h"
#include "base/pool.h"
#include "base/work_queue.h"
#include "test.h"

#include <limits.h>
#include <pthread.h>
#include <time.h>

enum { MAX_THREADS = 8 };

struct tally {
    int calls[MAX_THREADS]; /* plain ints: pool_run must order them before its return */
    int n_threads[MAX_THREADS];
};

static void count_call(void *ctx, int thread, int n_threads)
{
    struct tally *t = ctx;
    t->calls[thread]++;
    t->n_threads[thread] = n_threads;
}

TEST(every_thread_runs_once)
{
    for (int n = 1; n <= MAX_THREADS; n++) {
        struct pv_error err = { 0 };
        struct pool *pool = NULL;
        struct tally t = { 0 };
        if (!CHECK_MSG(pool_open(&pool, n, &err) == PV_OK, "%s", err.text))
            return;
        CHECK_EQ(pool_threads(pool), n);
        for (int round = 1; round <= 30; round++) {
            pool_run(pool, count_call, &t);
            for (int i = 0; i < n; i++)
                CHECK_EQ(t.calls[i], round);
        }
        for (int i = 0; i < MAX_THREADS; i++)
            CHECK_EQ(t.n_threads[i], i < n ? n : 0);
        pool_close(&pool);
        CHECK(!pool);
        pool_close(&pool);
    }
}

struct sum_job {
    struct work_queue queue;
    _Atomic long sum;
    _Atomic int items;
};

static void sum_items(void *ctx, int thread, int n_threads)
{
    struct sum_job *job = ctx;
    (void)thread;
    (void)n_threads;
    for (int i = work_next(&job->queue); i >= 0; i = work_next(&job->queue)) {
        atomic_fetch_add(&job->sum, i);
        atomic_fetch_add(&job->items, 1);
    }
}

TEST(queue_hands_out_each_item_once)
{
    struct pool *pool = NULL;
    if (!CHECK(pool_open(&pool, 3, NULL) == PV_OK))
        return;
    for (int n = 0; n < 300; n += 7) {
        struct sum_job job;
        work_init(&job.queue, n);
        atomic_init(&job.sum, 0);
        atomic_init(&job.items, 0);
        pool_run(pool, sum_items, &job);
        CHECK_EQ(atomic_load(&job.items), n);
        CHECK_EQ(atomic_load(&job.sum), (long)n * (n - 1) / 2);
    }
    pool_close(&pool);
}

static void pause_ms(int ms)
{
    struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&ts, NULL);
}

static void straggle(void *ctx, int thread, int n_threads)
{
    if (thread == n_threads - 1)
        pause_ms(5);
    count_call(ctx, thread, n_threads);
}

/* Workers that gave up spinning must wake, and a caller that is done first must wait. */
TEST(sleeping_and_late_threads)
{
    struct pool *pool = NULL;
    struct tally t = { 0 };
    if (!CHECK(pool_open(&pool, 4, NULL) == PV_OK))
        return;
    for (int round = 1; round <= 6; round++) {
        pause_ms(round * 15);
        pool_run(pool, round % 2 ? straggle : count_call, &t);
        for (int i = 0; i < 4; i++)
            CHECK_EQ(t.calls[i], round);
    }
    pool_close(&pool);
}

TEST(many_short_regions)
{
    struct pool *pool = NULL;
    struct tally t = { 0 };
    if (!CHECK(pool_open(&pool, 2, NULL) == PV_OK))
        return;
    for (int i = 0; i < 5000; i++)
        pool_run(pool, count_call, &t);
    CHECK_EQ(t.calls[0], 5000);
    CHECK_EQ(t.calls[1], 5000);
    pool_close(&pool);
}

TEST(closing_at_once)
{
    for (int i = 0; i < 50; i++) {
        struct pool *pool = NULL;
        if (!CHECK(pool_open(&pool, 4, NULL) == PV_OK))
            return;
        pool_close(&pool);
    }
}

TEST(bad_thread_counts)
{
    const int bad[] = { -1, INT_MIN, POOL_MAX_THREADS + 1, INT_MAX };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pv_error err = { 0 };
        struct pool *pool = NULL;
        CHECK(pool_open(&pool, bad[i], &err) != PV_OK);
        CHECK(!pool);
        CHECK(err.code != PV_OK && err.text[0]);
    }
}

/* Fail each allocation of the opening in turn: an error, no pool, no leak (ASan sees leaks). */
TEST(opening_survives_failed_allocations)
{
    enum pv_status s = PV_E_NOMEM;
    for (int k = 1; s != PV_OK && k < 100; k++) {
        struct pv_error err = { 0 };
        struct pool *pool = NULL;
        mem_fail_at((uint64_t)k);
        s = pool_open(&pool, 3, &err);
        mem_fail_at(0);
        CHECK((s == PV_OK) == (pool != NULL));
        CHECK(s == PV_OK || s == PV_E_NOMEM);
        CHECK(s == PV_OK || err.text[0]);
        pool_close(&pool);
    }
    CHECK_EQ(s, PV_OK);
}

static void use_stack(void *ctx, int thread, int n)
{
    volatile char frame[600 << 10]; /* more than a process with small stacks gives a thread */
    int *done = ctx;
    for (size_t i = 0; i < sizeof frame; i += 1024)
        frame[i] = (char)thread;
    done[thread] = frame[1024] == (char)thread && n == 3;
}

/* Workers have their own idea of a stack, whatever the process's default is. */
TEST(stacks_do_not_depend_on_the_process)
{
    pthread_attr_t small, before;
    struct pool *p = NULL;
    int done[3] = { 0 };
#ifdef __SANITIZE_THREAD__
    test_skip("ThreadSanitizer needs larger stacks");
    return;
#endif
    CHECK(!pthread_getattr_default_np(&before) && !pthread_attr_init(&small) &&
          !pthread_attr_setstacksize(&small, 128 << 10) && !pthread_setattr_default_np(&small));
    CHECK_EQ(pool_open(&p, 3, NULL), PV_OK);
    if (p)
        pool_run(p, use_stack, done);
    CHECK(done[0] && done[1] && done[2]);
    pool_close(&p);
    CHECK(!pthread_setattr_default_np(&before));
    pthread_attr_destroy(&small);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
