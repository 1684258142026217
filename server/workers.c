/* A queue under a lock. The callers bound its length: one piece of work per exchange. */
#include "workers.h"

#include "base/mem.h"
#include "base/thread.h"

enum { MAX_WORKERS = 16 };

struct workers {
    struct loop *loop;
    pthread_mutex_t lock; /* guards the queue */
    pthread_cond_t more;
    struct work *first, *last;
    bool closing;
    pthread_t thread[MAX_WORKERS];
    int n;
};

static void *run_worker(void *arg)
{
    struct workers *w = arg;
    for (;;) {
        struct work *job;
        pthread_mutex_lock(&w->lock);
        while (!w->first && !w->closing)
            pthread_cond_wait(&w->more, &w->lock);
        job = w->first;
        if (job) {
            w->first = job->next;
            w->last = w->first ? w->last : NULL;
        }
        pthread_mutex_unlock(&w->lock);
        if (!job)
            return NULL;
        job->run(job);
        loop_post(w->loop, &job->done);
    }
}

enum pv_status workers_open(struct workers **out, struct loop *loop, int threads,
                            struct pv_error *err)
{
    struct workers *w = mem_zalloc(sizeof *w);
    if (!w)
        return fail_nomem(err, sizeof *w);
    w->loop = loop;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    while (w->n < threads && w->n < MAX_WORKERS && thread_start(&w->thread[w->n], run_worker, w))
        w->n++;
    if (w->n == 0) {
        workers_close(&w);
        return fail(err, PV_E_NOMEM, "no worker thread could be started");
    }
    *out = w;
    return PV_OK;
}

void workers_close(struct workers **workers)
{
    struct workers *w = *workers;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n; i++)
        pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
    *workers = NULL;
}

void workers_add(struct workers *w, struct work *work)
{
    work->next = NULL;
    pthread_mutex_lock(&w->lock);
    *(w->last ? &w->last->next : &w->first) = work;
    w->last = work;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
}
