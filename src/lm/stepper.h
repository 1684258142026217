/* Who runs the steps of a decoder for one caller: a state of the caller's own, or an engine that
 * runs steps of several callers together. Either way a step has the same bits. */
#ifndef PV_LM_STEPPER_H
#define PV_LM_STEPPER_H

#include "lm/decoder.h"

#include <pthread.h>

struct stepper {
    const struct decoder *dec;
    struct device_work *work; /* for copies and moves of keys and values between two steps */
    struct kvpool *pool;      /* where the caller's sequences take their pages */
    bool starved;             /* stepper_run has found no page; whoever handles that clears it */
    /* As decoder_step. */
    enum pv_status (*run)(struct stepper *s, const struct step *step, struct pv_error *err);
};

/* A stepper with a state of its own, which it borrows. */
struct lone_stepper {
    struct stepper base;
    struct decoder_state *st;
    pthread_mutex_t *lock; /* held while a step runs; NULL: none */
};
void lone_stepper_init(struct lone_stepper *s, const struct decoder *dec, struct decoder_state *st,
                       struct kvpool *pool);

/* Runs a drafter's step of one sequence, whose pages are taken from the pool first. PV_E_DRAFTER:
 * there are no more pages, and nothing has run. */
enum pv_status stepper_run(struct stepper *s, const struct step *step, struct pv_error *err);

#endif
