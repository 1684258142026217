/* One thread and many fibers. Only this thread touches running tasks; requests from other threads
 * (new tasks, cancelling, ends) are protected by one lock.
 *
 * A task is in one state at any time, and only resumed when it is READY:
 *
 *   QUEUED  waits to begin            STEP   waits for a step of a batch
 *   READY   can go on                 ROWS   waits for a portion of its prompt
 *   AWAY    has given its pages back  PAGES  waits for KV pages
 *   PAUSED  lets others have a step   LANE   its step runs in the lane
 *   ENDED   its function has returned
 *
 * On a GPU, rows of prompts have separate steps, which take much longer than those of answers. So
 * that answers need not wait for them, they run in the lane: another thread with another stream.
 * The scheduler does not touch a task that is in the lane. */
#include "engine/scheduler.h"

#include "base/fiber.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/batch.h"
#include "engine/prompt_lane.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>

enum { MAX_BATCHES = 4, MAX_TASKS = STEP_MAX_PARTS, MAX_PROMPTS = 16 };
enum task_state {
    TASK_QUEUED,
    TASK_READY,
    TASK_STEP,
    TASK_ROWS,
    TASK_PAGES,
    TASK_AWAY,
    TASK_PAUSED,
    TASK_LANE,
    TASK_ENDED
};

struct task {
    struct scheduler *s;
    struct task_calls calls;
    void *arg;
    struct fiber *fiber;
    uint64_t number; /* lower numbers are older */
    enum task_state state;
    struct batch *batch; /* STEP */
    struct batch_part part;
    int want, granted; /* ROWS */
    int lacks;         /* PAGES */
    bool keeps;        /* it must keep its pages */
    bool preempt;      /* it is resumed to give its pages back */
    bool restoring;    /* it is computing them again */
    atomic_bool cancelled;
    enum pv_status status; /* result of `run` */
    struct pv_error error;
    struct task *next; /* in the queue */
    bool over;         /* protected by the lock: nothing of it runs any more */
};

struct scheduler {
    int max_tasks;
    int n_batches;
    struct batch batch[MAX_BATCHES];
    struct lane *lane; /* NULL: none */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake, ended;
    struct task *first, *last; /* the queue; protected by the lock */
    int n_queued;
    uint64_t last_number;
    bool closing;
    void (*watch)(void *user, int64_t iteration);
    void *watch_user;
    atomic_int n_present; /* queued and running */
    atomic_bool hurry;    /* a task was cancelled since the last iteration began, or all are */
    /* Used by the scheduler's thread only. */
    struct task *running[MAX_TASKS]; /* oldest first */
    int n_running;
    int64_t lane_steps, lane_parts, lane_rows; /* completed */
    double emitted, emitted_s;                 /* tokens and their time, with exponential decay */
    double decode_s;                           /* of all batches, as far as it is in emitted_s */
    int to_preempt;                            /* scheduler_preempt; -1: none */
    int64_t iterations, preemptions, page_waits;
    struct scheduler_counts counts; /* under the lock */
};

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

/* Waiting for a lock ends when a task is cancelled. Then the cancelled tasks are handled, and the
 * others wait again. */
static bool no_hurry(void *user)
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
        .dec = dec, .st = st, .pool = pool, .lock = lock, .go_on = no_hurry, .user = s
    };
    return PV_OK;
}

enum pv_status scheduler_add_lane(struct scheduler *s, struct decoder_state *st,
                                  struct pv_error *err)
{
    const struct batch *b = &s->batch[0];
    return lane_open(&s->lane, b->dec, st, b->pool, err);
}

static struct batch *target_of(struct scheduler *s)
{
    return &s->batch[0];
}

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

/* ---- inside a task ---- */

static enum pv_status fail_cancelled(struct pv_error *err)
{
    return fail(err, PV_E_CANCELLED, "the request was cancelled");
}

/* Wait until the scheduler has done what the state requests. */
static enum pv_status wait_as(struct task *t, enum task_state state, struct pv_error *err)
{
    if (task_cancelled(t))
        return fail_cancelled(err);
    t->state = state;
    fiber_yield(t->fiber);
    if (task_cancelled(t))
        return fail_cancelled(err);
    if (!t->preempt)
        return PV_OK;
    t->preempt = false;
    return TASK_PREEMPTED;
}

/* Return the pages, and get them again when other tasks have had their turn. */
static enum pv_status go_away(struct task *t, struct pv_error *err)
{
    enum pv_status s = TASK_PREEMPTED;
    while (s == TASK_PREEMPTED) {
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
    if (*st != TASK_PREEMPTED || t->restoring)
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
    bool target = s->batch == target_of(t->s);
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
    return !task_cancelled(t) && no_hurry(t->s);
}

enum pv_status task_lock(struct task *t, pthread_mutex_t *lock, struct pv_error *err)
{
    bool here = t && pthread_equal(pthread_self(), t->s->thread);
    while (!lock_take(lock, here ? none_cancelled : t ? task_goes_on : NULL, t)) {
        if (task_cancelled(t))
            return fail_cancelled(err);
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
        l.row_s = batch_row_s(target_of(s));
        l.level_s = drafter ? batch_part_s(drafter) : 0;
        l.tokens_s = s->emitted / s->emitted_s;
    }
    return l;
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
    const struct batch *b = target_of(s);
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

static bool in_state(const struct scheduler *s, enum task_state state)
{
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->state == state)
            return true;
    return false;
}

static int free_pages(struct scheduler *s)
{
    struct kvpool_counts c = kvpool_counts(target_of(s)->pool);
    return c.pages - c.used;
}

/* Whether the task waits for the target, and may lose its pages meanwhile. */
static bool can_preempt(const struct task *t, const struct batch *target)
{
    bool waits = t->state == TASK_ROWS || t->state == TASK_PAGES ||
                 (t->state == TASK_STEP && t->batch == target);
    return waits && !t->keeps && t->calls.give_back && !task_cancelled(t);
}

static void preempt(struct scheduler *s, struct task *t)
{
    t->preempt = true;
    t->state = TASK_READY;
    s->preemptions++;
}

/* Give pages to the oldest task that lacks some, if necessary from the youngest that has some.
 * Returns true if a task can continue. */
static bool give_pages(struct scheduler *s)
{
    for (int i = 0; i < s->n_running; i++) {
        struct task *t = s->running[i];
        if (t->state != TASK_PAGES)
            continue;
        if (free_pages(s) >= t->lacks) {
            t->state = TASK_READY;
            return true;
        }
        s->page_waits++;
        for (int k = s->n_running - 1; k > i; k--)
            if (can_preempt(s->running[k], target_of(s))) {
                preempt(s, s->running[k]);
                return true;
            }
        return false; /* older tasks have the pages, and come first */
    }
    return false;
}

/* Bring back the oldest task that is AWAY if there is room, or if no other task could use the room.
 */
static bool bring_back(struct scheduler *s)
{
    int others = 0;
    struct task *oldest = NULL;
    for (int i = s->n_running - 1; i >= 0; i--) {
        struct task *t = s->running[i];
        if (t->state == TASK_AWAY)
            oldest = t;
        others += t->state != TASK_AWAY;
    }
    if (!oldest || (others > 0 &&
                    (in_state(s, TASK_PAGES) || free_pages(s) <= oldest->calls.lacks(oldest->arg))))
        return false;
    oldest->state = TASK_READY;
    return true;
}

/* ---- steps ---- */

/* List the tasks that wait for a step of a batch: those with prompt rows, or the others. */
static int waiting(const struct scheduler *s, const struct batch *b, bool prompts,
                   struct task **who, struct batch_part **parts)
{
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        struct task *t = s->running[i];
        if (t->state != TASK_STEP || t->batch != b || t->part.step->bulk != prompts)
            continue;
        who[n] = t;
        parts[n++] = &t->part;
    }
    return n;
}

/* Run the steps that wait for a batch. Returns false if there is none. With a lane, prompt rows run
 * here only if they delay no other task. */
static bool run_batch(struct scheduler *s, struct batch *b)
{
    struct batch_part *parts[MAX_TASKS];
    struct task *who[MAX_TASKS];
    int n = waiting(s, b, false, who, parts);
    if (b != target_of(s) || !s->lane || (n == 0 && !in_state(s, TASK_LANE)))
        n += waiting(s, b, true, who + n, parts + n);
    if (n == 0)
        return false;
    batch_run(b, parts, n);
    for (int i = 0; i < n; i++)
        if (who[i]->part.ran)
            who[i]->state = TASK_READY;
    return true;
}

/* Hands steps with rows of prompts to the lane, if it is free and others are decoding. */
static void begin_lane(struct scheduler *s)
{
    struct batch_part *parts[MAX_TASKS];
    struct task *who[MAX_TASKS];
    const struct batch *b = target_of(s);
    const struct device_ops *ops = decoder_device(b->dec)->ops;
    struct pv_error err;
    enum pv_status st;
    int n;
    if (!s->lane || in_state(s, TASK_LANE) || waiting(s, b, false, who, parts) == 0)
        return;
    n = waiting(s, b, true, who, parts);
    if (n == 0)
        return;
    /* pages were copied on the other stream */
    st = ops->wait(decoder_state_work(b->st), &err);
    for (int i = 0; i < n; i++) {
        who[i]->state = st ? TASK_READY : TASK_LANE;
        if (st)
            parts[i]->status = fail(parts[i]->err, st, "%s", err.text);
    }
    if (!st)
        lane_begin(s->lane, parts, n);
}

/* Continue the tasks whose steps the lane has completed. Returns false if it is still busy. */
static bool end_lane(struct scheduler *s, bool wait)
{
    if (!in_state(s, TASK_LANE))
        return true;
    if (!lane_free(s->lane, wait))
        return false;
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->state == TASK_LANE)
            s->running[i]->state = TASK_READY;
    s->lane_steps = lane_batch(s->lane)->steps;
    s->lane_parts = lane_batch(s->lane)->parts;
    s->lane_rows = lane_batch(s->lane)->rows;
    return true;
}

/* Number of prompt rows that may be granted now. */
static int prompt_rows(const struct scheduler *s, int rows)
{
    const struct batch *b = &s->batch[0];
    if (in_state(s, TASK_LANE))
        return 0;
    if (rows == 0)
        return decoder_state_rows(b->st);
    return s->lane ? lane_rows(s->lane) : batch_prompt_rows(b, rows);
}

/* Grant portions of prompts, to the oldest request first. */
static void grant_rows(struct scheduler *s)
{
    int rows = 0, left, prompts = 0;
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->state == TASK_STEP)
            rows += s->running[i]->part.step->n;
    left = prompt_rows(s, rows);
    for (int i = 0; i < s->n_running && left > 0 && prompts < MAX_PROMPTS; i++) {
        struct task *t = s->running[i];
        if (t->state != TASK_ROWS)
            continue;
        t->granted = t->want < left ? t->want : left;
        left -= t->granted;
        t->state = TASK_READY;
        prompts++;
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
    end_lane(s, false);
    run_ready(s);
    if (s->to_preempt >= 0 && s->to_preempt < s->n_running &&
        can_preempt(s->running[s->to_preempt], target_of(s)))
        preempt(s, s->running[s->to_preempt]);
    s->to_preempt = -1;
    if (in_state(s, TASK_READY) || give_pages(s) || bring_back(s))
        return;
    for (int i = 1; i < s->n_batches; i++)
        drafted = run_batch(s, &s->batch[i]) || drafted;
    if (drafted)
        return;
    grant_rows(s);
    run_ready(s);
    begin_lane(s);
    if (!run_batch(s, target_of(s)) && !in_state(s, TASK_PAUSED))
        end_lane(s, true);
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->state == TASK_PAUSED)
            s->running[i]->state = TASK_READY;
}

/* Start new tasks in the order of arrival, when there is a place for them and no task waits for
 * pages. If there is no memory for its fiber, a task ends at once. */
static void admit(struct scheduler *s)
{
    while (s->first && s->n_running < s->max_tasks &&
           (s->n_running == 0 || !(in_state(s, TASK_PAGES) || in_state(s, TASK_AWAY)))) {
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
        t->status = fail_cancelled(&t->error);
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
