/* Shared by the files of the scheduler. Only the scheduler's thread touches running tasks; requests
 * from other threads (new tasks, cancelling, ends) are protected by one lock.
 *
 * A task is in one state at any time, and only resumed when it is READY:
 *
 *   QUEUED  waits to begin            STEP   waits for a step of a batch
 *   READY   can go on                 ROWS   waits for a portion of its prompt
 *   AWAY    has given its pages back  PAGES  waits for KV pages
 *   PAUSED  lets others have a step   LANE   its step runs in the lane
 *   ENDED   its function has returned
 */
#ifndef PV_ENGINE_SCHEDULER_PARTS_H
#define PV_ENGINE_SCHEDULER_PARTS_H

#include "base/fiber.h"
#include "engine/batch.h"
#include "engine/prompt_lane.h"
#include "engine/scheduler.h"

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

static inline struct batch *scheduler_target(struct scheduler *s)
{
    return &s->batch[0];
}

static inline bool any_in_state(const struct scheduler *s, enum task_state state)
{
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->state == state)
            return true;
    return false;
}

/* scheduler.c. Waiting for a lock ends when a task is cancelled. Then the cancelled tasks are
 * handled, and the others wait again. */
bool scheduler_no_hurry(void *scheduler);

/* task.c. */
enum pv_status task_fail_cancelled(struct pv_error *err);

/* scheduler_pages.c. Whether the task waits for the target, and may lose its pages meanwhile. */
bool task_can_preempt(const struct task *t, const struct batch *target);
/* Resume it to give its pages back. */
void task_preempt(struct scheduler *s, struct task *t);
/* Give pages to the oldest task that lacks some, if necessary from the youngest that has some.
 * Returns true if a task can continue. */
bool scheduler_give_pages(struct scheduler *s);
/* Bring back the oldest task that is AWAY if there is room, or if no other task could use the room.
 */
bool scheduler_bring_back(struct scheduler *s);

/* scheduler_steps.c. Grant portions of prompts, to the oldest request first. */
void scheduler_grant_rows(struct scheduler *s);
/* Run the steps that wait for a batch. Returns false if there is none. With a lane, prompt rows run
 * here only if they delay no other task. */
bool scheduler_run_batch(struct scheduler *s, struct batch *b);
/* Hands steps with rows of prompts to the lane, if it is free and others are decoding. */
void scheduler_begin_lane(struct scheduler *s);
/* Continue the tasks whose steps the lane has completed. Returns false if it is still busy. */
bool scheduler_end_lane(struct scheduler *s, bool wait);

#endif
