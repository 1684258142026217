/* The speculation of one answer: a method made ready, and how far its drafter is. */
#ifndef PV_ENGINE_SPECULATION_H
#define PV_ENGINE_SPECULATION_H

#include "engine/session.h"
#include "engine/view_signal.h"
#include "spec/policy.h"
#include "spec/price.h"
#include "spec/view.h"

struct schedule;
struct draft_ahead;

/* How far the drafter is with the prompt of this answer. */
enum draft_phase {
    DRAFT_OFF,      /* there is no drafter: plain decoding */
    DRAFT_NO_VIEW,  /* which rows of the prompt it sees is not chosen yet */
    DRAFT_HAS_VIEW, /* they are chosen (draft.visible), but it has not read them as the serial
                   schedule needs it */
    DRAFT_AWAKE,    /* it has read the prompt up to the answer */
    DRAFT_FAILED    /* it could not: the answer goes on without it */
};

struct speculation {
    struct pv_session *s;          /* borrowed, as */
    const struct pv_gen_params *p; /* what the caller asked for */
    struct pv_method method;       /* zeros filled in */
    const struct drafter_kind *kind;
    struct drafter *drafter; /* NULL in DRAFT_OFF */
    enum view_kind view;
    struct view_signal signal;
    struct shape shape;
    enum draft_phase phase;
    const struct schedule *schedule; /* at work */
    const struct schedule *wanted;   /* the method's; serial as soon as others run beside it */
    void *state;                     /* the schedule's own, while it is open */
    struct draft_ahead *ahead;       /* the drafter's tower beside the prefill; or NULL */
    double wake_s;                   /* seconds of the drafter's prefill amid the answer */
    struct price_book *book;         /* of the engine's, for answers like this one */
    struct policy policy;            /* automatic */
    struct policy_choice choice;
    struct shape tree;
    int slow_rounds; /* on end, whose times were not believed */
};

#endif
