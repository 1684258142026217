/* The stepper with its own decoder state. */
#include "lm/stepper.h"

#include "base/thread.h"

static enum pv_status run_alone(struct stepper *base, const struct step *step, struct pv_error *err)
{
    struct lone_stepper *s = (struct lone_stepper *)base;
    enum pv_status st;
    if (s->lock && !lock_take(s->lock, s->go_on, s->user))
        return fail(err, PV_E_CANCELLED, "a step was cancelled before it began");
    st = decoder_step(base->dec, s->st, step, err);
    if (s->lock)
        pthread_mutex_unlock(s->lock);
    return st;
}

void lone_stepper_init(struct lone_stepper *s, const struct decoder *dec, struct decoder_state *st,
                       struct kvpool *pool)
{
    *s = (struct lone_stepper){
        .base = { .dec = dec, .work = decoder_state_work(st), .pool = pool, .run = run_alone },
        .st = st
    };
}

enum pv_status stepper_run(struct stepper *s, const struct step *step, struct pv_error *err)
{
    const struct step_seq *seq = &step->seqs[0];
    int n = seq->n + step_further_rows(step);
    if (!kvcache_reserve(seq->kv, s->work, seq->pending + n)) {
        s->starved = true;
        return fail(err, PV_E_DRAFTER, "no KV page is free for %d rows of the drafter after %d", n,
                    seq->kv->len);
    }
    return s->run(s, step, err);
}
