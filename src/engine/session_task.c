/* While a task runs, the session's steppers belong to it. When the scheduler wants its pages, they
 * go back to the pool; restoring adopts what the pool still has and computes the rest. */
#include "engine/session_task.h"

#include "engine/disk_pages.h"
#include "engine/prefill.h"

static void set_task(struct pv_session *s, struct task *t)
{
    s->task = s->target.task = t;
    drafting_set_task(&s->draft, t);
}

static enum pv_status run(struct task *t, void *arg, struct pv_error *err)
{
    struct pv_session *s = arg;
    enum pv_status st;
    set_task(s, t);
    s->seq.kept_len = 0;
    st = s->call.run(s->call.arg, err);
    if (s->engine->states && s->draft.states.n <= s->seq.kv.len)
        state_cache_keep(s->engine->states, s->seq.digest, &s->draft.states);
    if (!st || st == PV_E_CANCELLED)
        disk_pages_keep(&s->engine->disk, &s->seq, s->target.base.work, t);
    sequence_release(&s->seq);
    set_task(s, NULL);
    return st;
}

static void give_back(void *arg)
{
    sequence_give_back(&((struct pv_session *)arg)->seq);
}

static enum pv_status restore(void *arg, struct pv_error *err)
{
    struct pv_session *s = arg;
    enum pv_status st;
    sequence_restore(&s->seq, s->target.base.work);
    st = prefill_again(s, s->seq.kept_len, err);
    if (!st)
        s->seq.kept_len = 0;
    return st;
}

static int lacks(void *arg)
{
    return ((struct pv_session *)arg)->seq.kept_len / KV_CHUNK + 1;
}

static void ended(void *arg, enum pv_status status, const struct pv_error *err)
{
    struct pv_session *s = arg;
    if (s->call.ended)
        s->call.ended(s->call.arg, status, err);
}

enum pv_status session_submit(struct pv_session *s, struct task **out,
                              const struct session_call *call, struct pv_error *err)
{
    static const struct task_calls calls = { run, give_back, restore, lacks, ended };
    s->call = *call;
    return task_open(out, s->engine->scheduler, &calls, s, err);
}

enum pv_status session_run(struct pv_session *s, enum pv_status (*fn)(void *arg, struct pv_error *),
                           void *arg, struct pv_error *err)
{
    struct session_call call = { .run = fn, .arg = arg };
    struct task *t;
    enum pv_status st = session_submit(s, &t, &call, err);
    if (st)
        return st;
    st = task_wait(t, err);
    task_close(&t);
    return st;
}
