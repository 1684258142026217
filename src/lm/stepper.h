/* A stepper runs the steps of a decoder for one caller: with a state of the caller's own, or
 * through an engine that combines the steps of several callers. The results have the same bits. */
#ifndef PV_LM_STEPPER_H
#define PV_LM_STEPPER_H

#include "lm/decoder.h"

#include <pthread.h>

struct stepper {
    const struct decoder *dec;
    struct device_work *work; /* for copies and moves of keys and values between steps */
    struct kvpool *pool;      /* for the pages of the caller's sequences */
    bool starved;             /* stepper_run found no free page; cleared by whoever handles that */
    /* See decoder_step. */
    enum pv_status (*run)(struct stepper *s, const struct step *step, struct pv_error *err);
};

/* A stepper with its own state, which is borrowed. */
struct lone_stepper {
    struct stepper base;
    struct decoder_state *st;
    pthread_mutex_t *lock; /* held while a step runs; NULL: none. Waited for as lock_take does: */
    bool (*go_on)(void *user);
    void *user;
};
void lone_stepper_init(struct lone_stepper *s, const struct decoder *dec, struct decoder_state *st,
                       struct kvpool *pool);

/* Run a drafter's step of one sequence, after taking the pages it needs from the pool. PV_E_DRAFTER
 * if there are no more pages; nothing has run then. */
enum pv_status stepper_run(struct stepper *s, const struct step *step, struct pv_error *err);

#endif
