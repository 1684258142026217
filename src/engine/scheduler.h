/* The scheduler: one thread that runs the answers of all requests and the steps of their decoders.
 * Only rows of prompts on a GPU run on another thread, in parallel with the steps of answers
 * (prompt_lane.h).
 *
 * The work of a request is a task: a function that runs on a fiber and is written as if there were
 * only one request. When it needs a step of a decoder, it yields; when all running tasks wait, the
 * scheduler runs their steps together. Steps of drafters run first: they are small, and their tasks
 * can then join the next step of the target. Rows of prompts are granted in portions, oldest
 * request first, so that a long prompt delays running answers by a bounded amount only.
 *
 * When the pool of KV pages is empty, the youngest task returns its pages and computes them again
 * later. So the oldest task always makes progress, and every task becomes the oldest in time. */
#ifndef PV_ENGINE_SCHEDULER_H
#define PV_ENGINE_SCHEDULER_H

#include "lm/stepper.h"

#include <pthread.h>

struct scheduler;
struct task;

/* Callbacks of a task. All of them run on the scheduler's thread. */
struct task_calls {
    enum pv_status (*run)(struct task *t, void *arg, struct pv_error *err);
    /* Return the task's pages to the target's pool; NULL: it has none. */
    void (*give_back)(void *arg);
    /* Compute the returned pages again. It may wait for steps like any code of the task, and
     * returns PV_E_PREEMPTED if a wait does. */
    enum pv_status (*restore)(void *arg, struct pv_error *err);
    /* Pages that restore needs. */
    int (*lacks)(void *arg);
    /* Called when it has ended, possibly without having begun; may be NULL. */
    void (*ended)(void *arg, enum pv_status status, const struct pv_error *err);
};

enum pv_status scheduler_open(struct scheduler **out, int max_tasks, struct pv_error *err);
/* Cancels all tasks, and waits for them. */
void scheduler_close(struct scheduler **s);

/* Add a decoder whose steps the scheduler runs; `lock` is held while one runs. The first one is the
 * target, whose pool the tasks share; the others are those of drafters. Borrows its arguments. Call
 * it before any task is opened. */
struct batch;
enum pv_status scheduler_add_batch(struct scheduler *s, struct batch **out,
                                   const struct decoder *dec, struct decoder_state *st,
                                   struct kvpool *pool, pthread_mutex_t *lock,
                                   struct pv_error *err);

/* Add a second state of the target, for rows of prompts that run in parallel with the steps of
 * answers. Borrows it. Call it after the target's batch was added, before any task is opened. */
enum pv_status scheduler_add_lane(struct scheduler *s, struct decoder_state *st,
                                  struct pv_error *err);

/* ---- from any thread ---- */

/* Queues a task; it begins when fewer than max_tasks run. */
enum pv_status task_open(struct task **out, struct scheduler *s, const struct task_calls *calls,
                         void *arg, struct pv_error *err);
/* Make every wait of the task return PV_E_CANCELLED, within one step. */
void task_cancel(struct task *t);
/* Wait for its end; returns the result of `run`. */
enum pv_status task_wait(struct task *t, struct pv_error *err);
/* Waits for its end and frees it. */
void task_close(struct task **t);

/* ---- inside a task ---- */

/* While a task computes returned pages again (task_calls.restore), its waits return PV_E_PREEMPTED
 * if its pages are needed by others once more. It goes to the caller of restore and no further. */

/* A stepper for a task's steps on a batch. Steps of the target reserve their pages, and wait for
 * them if necessary. */
struct task_stepper {
    struct stepper base;
    struct task *task; /* set by the user of the stepper, while it has a task */
    struct batch *batch;
};
void task_stepper_init(struct task_stepper *s, struct batch *b);

/* Wait until rows of a prompt may run; *granted: how many of `want`, at least 1. */
enum pv_status task_prompt_rows(struct task *t, int want, int *granted, struct pv_error *err);
/* Number of tasks that run or are queued, this one included; and whether it is the only one. */
int task_company(const struct task *t);
bool task_alone(const struct task *t);
bool task_cancelled(const struct task *t);
bool task_goes_on(void *task); /* the opposite, for whoever asks by a callback */
/* false: the task's pages cannot be taken away. */
void task_preemptible(struct task *t, bool yes);
/* Call it between parts of long work that is not a step: lets other tasks run a step. */
void task_pause(struct task *t);
/* Takes a lock that others may hold for long. PV_E_CANCELLED: the task was cancelled meanwhile, and
 * the lock is not held. Other tasks can end, and have steps, while it waits on the scheduler's
 * thread. t NULL: waits for as long as it takes. */
enum pv_status task_lock(struct task *t, pthread_mutex_t *lock, struct pv_error *err);

/* What a task's rows cost at present: seconds that one more row adds to a batched step, seconds of
 * a step of its drafter (NULL: none) divided by the tasks that share it, and tokens per second of
 * steps of all tasks together. 0 while the task is alone, or while nothing is known. */
struct task_load {
    double row_s, level_s, tokens_s;
};
struct task_load task_load(const struct task *t, const struct batch *drafter);
/* Count tokens that a task has emitted, for the rate above. */
void task_count_tokens(struct task *t, int tokens);

/* ---- for tests and measurements ---- */

bool task_ended(struct task *t);
struct scheduler_counts {
    int64_t iterations, steps, rows, parts; /* of the target */
    int64_t lane_steps;                     /* of those, in parallel with other steps */
    int64_t draft_steps, draft_parts;
    int64_t preemptions, page_waits;
    int running, queued, most_running;
};
struct scheduler_counts scheduler_counts(struct scheduler *s);
/* Set a function that is called at the beginning of every iteration, on the scheduler's thread. It
 * may call scheduler_preempt. NULL: none. */
void scheduler_watch(struct scheduler *s, void (*fn)(void *user, int64_t iteration), void *user);
/* Make the task at this place among the running ones return its pages at its next wait. */
void scheduler_preempt(struct scheduler *s, int place);

#endif
