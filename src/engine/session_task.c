/* While a task runs, the session's steppers belong to it. When the scheduler wants its pages, they
 * go back to the pool; restoring adopts what the pool still has and computes the rest. */
#include "engine/session_task.h"

#include "engine/prefill.h"

static void set_task(struct pv_session *s, struct task *t)
{
    s->task = s->target.task = t;
    drafting_set_task(&s->draft, t);
}

/* A task's calls have one argument. */
struct session_call {
    struct pv_session *s;
    enum pv_status (*run)(struct task *t, void *call, struct pv_error *err);
    void *call;
};

static enum pv_status run_call(struct task *t, void *arg, struct pv_error *err)
{
    struct session_call *c = arg;
    enum pv_status st;
    set_task(c->s, t);
    st = c->run(t, c->call, err);
    kvcache_release(&c->s->seq.kv, c->s->seq.digest);
    set_task(c->s, NULL);
    return st;
}

static void give_back(void *arg)
{
    sequence_give_back(&((struct session_call *)arg)->s->seq);
}

static enum pv_status restore(void *arg, struct pv_error *err)
{
    struct pv_session *s = ((struct session_call *)arg)->s;
    sequence_restore(&s->seq, s->target.base.work);
    return prefill_again(s, s->seq.kept_len, err);
}

static int lacks(void *arg)
{
    return ((struct session_call *)arg)->s->seq.kept_len / KV_CHUNK + 1;
}

enum pv_status session_run(struct pv_session *s,
                           enum pv_status (*run)(struct task *t, void *arg, struct pv_error *err),
                           void *call, struct pv_error *err)
{
    static const struct task_calls calls = { run_call, give_back, restore, lacks };
    struct session_call c = { s, run, call };
    return engine_run(s->engine, &calls, &c, err);
}
