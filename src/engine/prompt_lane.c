/* The scheduler's thread hands over a batch and polls for its end; in between, the parts belong to
 * the lane's thread. */
#include "engine/prompt_lane.h"

#include "base/mem.h"
#include "base/thread.h"

#include <string.h>

struct lane {
    struct batch batch;
    pthread_mutex_t step_lock; /* of the batch alone: no other steps wait for it */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct batch_part *parts[STEP_MAX_PARTS];
    int n; /* 0: the lane is free */
    bool closing;
};

static void *run_lane(void *arg)
{
    struct lane *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (l->n == 0 && !l->closing)
            pthread_cond_wait(&l->changed, &l->lock);
        if (l->n == 0)
            break;
        pthread_mutex_unlock(&l->lock);
        batch_run(&l->batch, l->parts, l->n);
        pthread_mutex_lock(&l->lock);
        l->n = 0;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

enum pv_status lane_open(struct lane **out, const struct decoder *dec, struct decoder_state *st,
                         struct kvpool *pool, struct pv_error *err)
{
    struct lane *l = mem_zalloc(sizeof *l);
    if (!l)
        return fail_nomem(err, sizeof *l);
    pthread_mutex_init(&l->step_lock, NULL);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->batch = (struct batch){ .dec = dec, .st = st, .pool = pool, .lock = &l->step_lock };
    if (!thread_start(&l->thread, run_lane, l)) {
        lane_close(&l);
        return fail(err, PV_E_NOMEM, "the thread for prompts could not be started");
    }
    l->started = true;
    *out = l;
    return PV_OK;
}

void lane_close(struct lane **lane)
{
    struct lane *l = *lane;
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (l->started)
        pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->step_lock);
    mem_free(l);
    *lane = NULL;
}

int lane_rows(const struct lane *l)
{
    return decoder_state_rows(l->batch.st);
}

void lane_begin(struct lane *l, struct batch_part *const *parts, int n)
{
    pthread_mutex_lock(&l->lock);
    memcpy(l->parts, parts, sizeof *parts * (size_t)n);
    l->n = n;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

bool lane_free(struct lane *l, bool wait)
{
    bool is_free;
    pthread_mutex_lock(&l->lock);
    while (wait && l->n > 0)
        pthread_cond_wait(&l->changed, &l->lock);
    is_free = l->n == 0;
    pthread_mutex_unlock(&l->lock);
    return is_free;
}

const struct batch *lane_batch(const struct lane *l)
{
    return &l->batch;
}
