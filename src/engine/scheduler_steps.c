/* The steps that tasks wait for: run together as a batch, or in the lane.
 *
 * On a GPU, rows of prompts have separate steps, which take much longer than those of answers. So
 * that answers need not wait for them, they run in the lane: another thread with another stream.
 * The scheduler does not touch a task that is in the lane. */
#include "engine/scheduler_parts.h"

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

bool scheduler_run_batch(struct scheduler *s, struct batch *b)
{
    struct batch_part *parts[MAX_TASKS];
    struct task *who[MAX_TASKS];
    int n = waiting(s, b, false, who, parts);
    if (b != scheduler_target(s) || !s->lane || (n == 0 && !any_in_state(s, TASK_LANE)))
        n += waiting(s, b, true, who + n, parts + n);
    if (n == 0)
        return false;
    batch_run(b, parts, n);
    for (int i = 0; i < n; i++)
        if (who[i]->part.ran)
            who[i]->state = TASK_READY;
    return true;
}

void scheduler_begin_lane(struct scheduler *s)
{
    struct batch_part *parts[MAX_TASKS];
    struct task *who[MAX_TASKS];
    const struct batch *b = scheduler_target(s);
    const struct device_ops *ops = decoder_device(b->dec)->ops;
    struct pv_error err;
    enum pv_status st;
    int n;
    if (!s->lane || any_in_state(s, TASK_LANE) || waiting(s, b, false, who, parts) == 0)
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

bool scheduler_end_lane(struct scheduler *s, bool wait)
{
    if (!any_in_state(s, TASK_LANE))
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
    if (any_in_state(s, TASK_LANE))
        return 0;
    if (rows == 0)
        return decoder_state_rows(b->st);
    return s->lane ? lane_rows(s->lane) : batch_prompt_rows(b, rows);
}

void scheduler_grant_rows(struct scheduler *s)
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
