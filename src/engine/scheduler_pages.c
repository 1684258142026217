/* Which tasks have the KV pages of the target's pool when there are too few for all of them. */
#include "engine/scheduler_parts.h"

static int free_pages(struct scheduler *s)
{
    struct kvpool_counts c = kvpool_counts(scheduler_target(s)->pool);
    return c.pages - c.used;
}

bool task_can_preempt(const struct task *t, const struct batch *target)
{
    bool waits = t->state == TASK_ROWS || t->state == TASK_PAGES ||
                 (t->state == TASK_STEP && t->batch == target);
    return waits && !t->keeps && t->calls.give_back && !task_cancelled(t);
}

void task_preempt(struct scheduler *s, struct task *t)
{
    t->preempt = true;
    t->state = TASK_READY;
    s->preemptions++;
}

bool scheduler_give_pages(struct scheduler *s)
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
            if (task_can_preempt(s->running[k], scheduler_target(s))) {
                task_preempt(s, s->running[k]);
                return true;
            }
        return false; /* older tasks have the pages, and come first */
    }
    return false;
}

bool scheduler_bring_back(struct scheduler *s)
{
    int others = 0;
    struct task *oldest = NULL;
    for (int i = s->n_running - 1; i >= 0; i--) {
        struct task *t = s->running[i];
        if (t->state == TASK_AWAY)
            oldest = t;
        others += t->state != TASK_AWAY;
    }
    if (!oldest || (others > 0 && (any_in_state(s, TASK_PAGES) ||
                                   free_pages(s) <= oldest->calls.lacks(oldest->arg))))
        return false;
    oldest->state = TASK_READY;
    return true;
}
