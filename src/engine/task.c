/* Tasks: what any thread may ask of one, and how the code of a task waits for the scheduler. */
#include "base/mem.h"
#include "base/thread.h"
#include "engine/scheduler_parts.h"

/* ---- from any thread ---- */

enum pv_status task_open(struct task **out, struct scheduler *s, const struct task_calls *calls,
                         void *arg, struct pv_error *err)
{
    struct task *t = mem_zalloc(sizeof *t);
    if (!t)
        return fail_nomem(err, sizeof *t);
    t->s = s;
    t->calls = *calls;
    t->arg = arg;
    atomic_init(&t->cancelled, false);
    *out = t;
    pthread_mutex_lock(&s->lock);
    t->number = ++s->last_number;
    *(s->last ? &s->last->next : &s->first) = t;
    s->last = t;
    s->n_queued++;
    atomic_fetch_add(&s->n_present, 1);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return PV_OK;
}

void task_cancel(struct task *t)
{
    atomic_store(&t->cancelled, true);
    atomic_store(&t->s->hurry, true);
    pthread_mutex_lock(&t->s->lock);
    pthread_cond_signal(&t->s->wake);
    pthread_mutex_unlock(&t->s->lock);
}

enum pv_status task_wait(struct task *t, struct pv_error *err)
{
    pthread_mutex_lock(&t->s->lock);
    while (!t->over)
        pthread_cond_wait(&t->s->ended, &t->s->lock);
    pthread_mutex_unlock(&t->s->lock);
    if (t->status)
        fail(err, t->status, "%s", t->error.text);
    return t->status;
}

bool task_ended(struct task *t)
{
    bool over;
    pthread_mutex_lock(&t->s->lock);
    over = t->over;
    pthread_mutex_unlock(&t->s->lock);
    return over;
}

void task_close(struct task **task)
{
    struct task *t = *task;
    if (!t)
        return;
    task_wait(t, NULL);
    mem_free(t);
    *task = NULL;
}

/* ---- inside a task ---- */

enum pv_status task_fail_cancelled(struct pv_error *err)
{
    return fail(err, PV_E_CANCELLED, "the request was cancelled");
}

/* Wait until the scheduler has done what the state requests. */
static enum pv_status wait_as(struct task *t, enum task_state state, struct pv_error *err)
{
    if (task_cancelled(t))
        return task_fail_cancelled(err);
    t->state = state;
    fiber_yield(t->fiber);
    if (task_cancelled(t))
        return task_fail_cancelled(err);
    if (!t->preempt)
        return PV_OK;
    t->preempt = false;
    return PV_E_PREEMPTED;
}

/* Return the pages, and get them again when other tasks have had their turn. */
static enum pv_status go_away(struct task *t, struct pv_error *err)
{
    enum pv_status s = PV_E_PREEMPTED;
    while (s == PV_E_PREEMPTED) {
        t->calls.give_back(t->arg);
        t->restoring = false;
        s = wait_as(t, TASK_AWAY, err);
        if (s)
            continue;
        t->restoring = true;
        s = t->calls.restore(t->arg, err);
        t->restoring = false;
    }
    return s;
}

/* After a wait: whether it must be repeated, because the pages were returned in between. */
static bool again(struct task *t, enum pv_status *st, struct pv_error *err)
{
    if (*st != PV_E_PREEMPTED || t->restoring)
        return false;
    *st = go_away(t, err);
    return *st == PV_OK;
}

static enum pv_status reserve(struct task *t, const struct stepper *s, const struct step_seq *seq,
                              struct pv_error *err)
{
    while (!kvcache_reserve(seq->kv, s->work, seq->pending + seq->n)) {
        enum pv_status st;
        if (seq->n > seq->kv->cap - seq->kv->len)
            return fail(err, PV_E_LIMIT, "%d rows after %d do not fit a context of %d tokens",
                        seq->n, seq->kv->len, seq->kv->cap);
        t->lacks = kvcache_lacks(seq->kv, seq->pending + seq->n);
        t->lacks = t->lacks > 0 ? t->lacks : 1; /* one page for a copy */
        st = wait_as(t, TASK_PAGES, err);
        again(t, &st, err);
        if (st)
            return st;
    }
    return PV_OK;
}

static enum pv_status run_step(struct stepper *base, const struct step *step, struct pv_error *err)
{
    struct task_stepper *s = (struct task_stepper *)base;
    struct task *t = s->task;
    bool target = s->batch == scheduler_target(t->s);
    for (;;) {
        enum pv_status st = target ? reserve(t, base, &step->seqs[0], err) : PV_OK;
        if (st)
            return st;
        t->batch = s->batch;
        t->part = (struct batch_part){ .step = step, .err = err };
        st = wait_as(t, TASK_STEP, err);
        if (again(t, &st, err))
            continue;
        return st ? st : t->part.status;
    }
}

void task_stepper_init(struct task_stepper *s, struct batch *b)
{
    *s = (struct task_stepper){ .base = { .dec = b->dec,
                                          .work = decoder_state_work(b->st),
                                          .pool = b->pool,
                                          .run = run_step },
                                .batch = b };
}

enum pv_status task_prompt_rows(struct task *t, int want, int *granted, struct pv_error *err)
{
    enum pv_status s;
    do {
        t->want = want;
        t->granted = 0;
        s = wait_as(t, TASK_ROWS, err);
    } while (again(t, &s, err));
    *granted = t->granted;
    return s;
}

bool task_alone(const struct task *t)
{
    return task_company(t) == 1;
}

int task_company(const struct task *t)
{
    return atomic_load(&t->s->n_present);
}

bool task_cancelled(const struct task *t)
{
    return atomic_load(&t->cancelled);
}

bool task_goes_on(void *task)
{
    return !task_cancelled(task);
}

void task_preemptible(struct task *t, bool yes)
{
    t->keeps = !yes;
}

void task_pause(struct task *t)
{
    t->state = TASK_PAUSED;
    fiber_yield(t->fiber);
}

/* Called for a task on the scheduler's thread. */
static bool none_cancelled(void *user)
{
    const struct task *t = user;
    return !task_cancelled(t) && scheduler_no_hurry(t->s);
}

enum pv_status task_lock(struct task *t, pthread_mutex_t *lock, struct pv_error *err)
{
    bool here = t && pthread_equal(pthread_self(), t->s->thread);
    while (!lock_take(lock, here ? none_cancelled : t ? task_goes_on : NULL, t)) {
        if (task_cancelled(t))
            return task_fail_cancelled(err);
        task_pause(t);
    }
    return PV_OK;
}

void task_count_tokens(struct task *t, int tokens)
{
    t->s->emitted += tokens;
}

struct task_load task_load(const struct task *t, const struct batch *drafter)
{
    struct scheduler *s = t->s;
    struct task_load l = { 0 };
    if (s->n_running > 1 && s->emitted_s > 0) {
        l.row_s = batch_row_s(scheduler_target(s));
        l.level_s = drafter ? batch_part_s(drafter) : 0;
        l.tokens_s = s->emitted / s->emitted_s;
    }
    return l;
}
