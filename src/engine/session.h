/* The fields of pv_session: a conversation, which consists of a sequence, the drafting for it and
 * the last answer. Each of these parts is allocated and freed by its own file. */
#ifndef PV_ENGINE_SESSION_H
#define PV_ENGINE_SESSION_H

#include "engine/answer_state.h"
#include "engine/budget.h"
#include "engine/dialogue.h"
#include "engine/drafting.h"
#include "engine/media_open.h"
#include "engine/sequence.h"
#include "spec/policy.h"

enum { SESSION_MAX_PENDING = 64 }; /* media of one message */

/* A media item of the next message: as it was loaded, and as it goes into the prompt, which can
 * depend on the other media of the message. */
struct pending_media {
    struct pv_media *media; /* a reference */
    struct media m;         /* store NULL: not made yet */
};

/* A function that gets the logits from which each token of an answer was chosen. */
struct logits_observer {
    void (*show)(void *user, int token, const float *logits);
    void *user;
};

/* For tests: a function that is called where the two sides of the parallel schedule synchronise, on
 * the thread of that side. */
struct side_delay {
    void (*wait)(void *user, enum pv_side side);
    void *user;
};

/* For tests: a function that may change what `auto` chose for the next round. */
struct choice_changer {
    void (*change)(void *user, struct policy_choice *c);
    void *user;
};

/* What a task of the session does. */
struct session_call {
    enum pv_status (*run)(void *arg, struct pv_error *err);
    /* After its end, on the scheduler's thread; may be NULL. */
    void (*ended)(void *arg, enum pv_status status, const struct pv_error *err);
    void *arg;
};

struct pv_session {
    struct pv_engine *engine;
    bool owns_engine;
    uint64_t number;        /* unique in its engine */
    struct pv_model *model; /* the engine's */
    struct session_call call;
    struct task *task; /* while an answer is generated; else NULL */
    struct task_stepper target;
    struct budget budget;
    struct dialogue *dialogue; /* NULL: no tokenizer */
    struct sequence seq;
    struct answer_state answer; /* the last one */
    bool speculates;
    struct drafting draft;
    int n_pending;
    struct pending_media pending[SESSION_MAX_PENDING];
    int message0;  /* first row after the last answer */
    bool messages; /* the last addition was a message: the template's answer prefix is due */
    struct logits_observer observer;
    struct side_delay delay;
    struct choice_changer changer;
    int64_t frames, lost_frames; /* since the last answer */
    double video_s;
    atomic_llong tower_ns; /* time of the target's tower not yet reported */
};

#endif
