/* The scheduler's thread, on which all tasks run as fibers: it admits them, resumes those that can
 * continue, and decides what to run when all of them wait. */
#include "base/mem.h"
#include "base/thread.h"
#include "engine/scheduler_parts.h"

#include <assert.h>
#include <math.h>

/* ---- opening ---- */

static void *run_thread(void *arg);

enum pv_status scheduler_open(struct scheduler **out, int max_tasks, struct pv_error *err)
{
    struct scheduler *s = mem_zalloc(sizeof *s);
    if (!s)
        return fail_nomem(err, sizeof *s);
    assert(max_tasks >= 1 && max_tasks <= MAX_TASKS);
    s->max_tasks = max_tasks;
    s->to_preempt = -1;
    atomic_init(&s->n_present, 0);
    atomic_init(&s->hurry, false);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->ended, NULL);
    if (!thread_start(&s->thread, run_thread, s)) {
        scheduler_close(&s);
        return fail(err, PV_E_NOMEM, "the scheduler's thread could not be started");
    }
    s->started = true;
    *out = s;
    return PV_OK;
}

void scheduler_close(struct scheduler **scheduler)
{
    struct scheduler *s = *scheduler;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    atomic_store(&s->hurry, true);
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->started)
        pthread_join(s->thread, NULL);
    lane_close(&s->lane);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
    *scheduler = NULL;
}

bool scheduler_no_hurry(void *user)
{
    return !atomic_load(&((struct scheduler *)user)->hurry);
}

enum pv_status scheduler_add_batch(struct scheduler *s, struct batch **out,
                                   const struct decoder *dec, struct decoder_state *st,
                                   struct kvpool *pool, pthread_mutex_t *lock, struct pv_error *err)
{
    if (s->n_batches == MAX_BATCHES)
        return fail(err, PV_E_LIMIT, "a scheduler runs at most %d decoders", MAX_BATCHES);
    *out = &s->batch[s->n_batches++];
    **out = (struct batch){
        .dec = dec, .st = st, .pool = pool, .lock = lock, .go_on = scheduler_no_hurry, .user = s
    };
    return PV_OK;
}

enum pv_status scheduler_add_lane(struct scheduler *s, struct decoder_state *st,
                                  struct pv_error *err)
{
    const struct batch *b = &s->batch[0];
    return lane_open(&s->lane, b->dec, st, b->pool, err);
}

/* ---- from any thread ---- */

struct scheduler_counts scheduler_counts(struct scheduler *s)
{
    struct scheduler_counts c;
    pthread_mutex_lock(&s->lock);
    c = s->counts;
    c.queued = s->n_queued;
    pthread_mutex_unlock(&s->lock);
    return c;
}

void scheduler_watch(struct scheduler *s, void (*fn)(void *user, int64_t iteration), void *user)
{
    pthread_mutex_lock(&s->lock);
    s->watch = fn;
    s->watch_user = user;
    pthread_mutex_unlock(&s->lock);
}

void scheduler_preempt(struct scheduler *s, int place)
{
    s->to_preempt = place;
}

/* ---- the thread ---- */

static void run_fiber(void *arg)
{
    struct task *t = arg;
    t->status = t->calls.run(t, t->arg, &t->error);
    t->state = TASK_ENDED;
}

static void note_counts(struct scheduler *s)
{
    struct scheduler_counts *c = &s->counts;
    const struct batch *b = scheduler_target(s);
    pthread_mutex_lock(&s->lock);
    c->iterations = s->iterations;
    c->preemptions = s->preemptions;
    c->page_waits = s->page_waits;
    c->steps = b->steps + s->lane_steps;
    c->rows = b->rows + s->lane_rows;
    c->parts = b->parts + s->lane_parts;
    c->lane_steps = s->lane_steps;
    c->draft_steps = c->draft_parts = 0;
    for (int i = 1; i < s->n_batches; i++) {
        c->draft_steps += s->batch[i].steps;
        c->draft_parts += s->batch[i].parts;
    }
    c->running = s->n_running;
    c->most_running = s->n_running > c->most_running ? s->n_running : c->most_running;
    pthread_mutex_unlock(&s->lock);
}

static void end_task(struct task *t)
{
    struct scheduler *s = t->s;
    fiber_close(&t->fiber);
    atomic_fetch_sub(&s->n_present, 1);
    note_counts(s); /* counted before the end is reported */
    if (t->calls.ended)
        t->calls.ended(t->arg, t->status, &t->error);
    pthread_mutex_lock(&s->lock);
    t->over = true; /* from here on another thread may free it */
    pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
}

/* Resume all tasks that are READY, until all tasks wait. */
static void run_ready(struct scheduler *s)
{
    for (int i = 0; i < s->n_running;) {
        struct task *t = s->running[i];
        bool waits = t->state != TASK_ENDED && t->state != TASK_LANE;
        if (t->state == TASK_READY || (task_cancelled(t) && waits)) {
            t->state = TASK_READY;
            fiber_resume(t->fiber);
        }
        if (t->state != TASK_ENDED) {
            i += t->state != TASK_READY || !task_cancelled(t);
            continue;
        }
        s->n_running--;
        for (int k = i; k < s->n_running; k++)
            s->running[k] = s->running[k + 1];
        end_task(t);
    }
}

/* Time for prompts is not counted here: they must be read in any case, however long a further row
 * delays other tasks. */
static void note_time(struct scheduler *s)
{
    static const double fade_per_s = 0.25; /* decay of the emitted tokens per second */
    double passed = -s->decode_s, keep;
    for (int i = 0; i < s->n_batches; i++)
        passed += s->batch[i].decode_s;
    keep = fmax(1 - fade_per_s * passed, 0);
    s->emitted_s = (s->emitted_s + passed) * keep;
    s->emitted *= keep;
    s->decode_s += passed;
}

/* One iteration: all tasks run until they wait; then the steps of drafters run, or, if there are
 * none, those of the target. */
static void iterate(struct scheduler *s)
{
    bool drafted = false;
    s->iterations++;
    note_time(s);
    scheduler_end_lane(s, false);
    run_ready(s);
    if (s->to_preempt >= 0 && s->to_preempt < s->n_running &&
        task_can_preempt(s->running[s->to_preempt], scheduler_target(s)))
        task_preempt(s, s->running[s->to_preempt]);
    s->to_preempt = -1;
    if (any_in_state(s, TASK_READY) || scheduler_give_pages(s) || scheduler_bring_back(s))
        return;
    for (int i = 1; i < s->n_batches; i++)
        drafted = scheduler_run_batch(s, &s->batch[i]) || drafted;
    if (drafted)
        return;
    scheduler_grant_rows(s);
    run_ready(s);
    scheduler_begin_lane(s);
    if (!scheduler_run_batch(s, scheduler_target(s)) && !any_in_state(s, TASK_PAUSED))
        scheduler_end_lane(s, true);
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->state == TASK_PAUSED)
            s->running[i]->state = TASK_READY;
}

/* Start new tasks in the order of arrival, when there is a place for them and no task waits for
 * pages. If there is no memory for its fiber, a task ends at once. */
static void admit(struct scheduler *s)
{
    while (s->first && s->n_running < s->max_tasks &&
           (s->n_running == 0 || !(any_in_state(s, TASK_PAGES) || any_in_state(s, TASK_AWAY)))) {
        struct task *t = s->first;
        s->first = t->next;
        s->last = s->first ? s->last : NULL;
        s->n_queued--;
        pthread_mutex_unlock(&s->lock);
        t->fiber = fiber_open(run_fiber, t);
        if (t->fiber) {
            t->state = TASK_READY;
            s->running[s->n_running++] = t;
        } else {
            t->status = fail(&t->error, PV_E_NOMEM, "out of memory for the stack of a request");
            t->state = TASK_ENDED;
            end_task(t);
        }
        pthread_mutex_lock(&s->lock);
    }
}

/* Cancelled tasks need not wait for their turn: they run to their end at once. */
static void promote_cancelled(struct scheduler *s)
{
    struct task **at = &s->first, *before = NULL;
    while (*at) {
        struct task *t = *at;
        if (!atomic_load(&t->cancelled)) {
            before = t;
            at = &t->next;
            continue;
        }
        *at = t->next;
        s->last = s->last == t ? before : s->last;
        s->n_queued--;
        t->status = task_fail_cancelled(&t->error);
        t->state = TASK_ENDED;
        pthread_mutex_unlock(&s->lock);
        end_task(t);
        pthread_mutex_lock(&s->lock);
        at = &s->first;
        before = NULL;
    }
}

static void *run_thread(void *arg)
{
    struct scheduler *s = arg;
    void (*watch)(void *user, int64_t iteration), *user;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        atomic_store(&s->hurry, false);
        promote_cancelled(s);
        admit(s);
        if (s->n_running == 0) {
            if (s->closing && !s->first)
                break;
            s->emitted = s->emitted_s = 0;
            if (!s->first)
                pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        for (int i = 0; i < s->n_running && s->closing; i++)
            atomic_store(&s->running[i]->cancelled, true);
        watch = s->watch;
        user = s->watch_user;
        pthread_mutex_unlock(&s->lock);
        if (watch)
            watch(user, s->iterations);
        iterate(s);
        note_counts(s);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
