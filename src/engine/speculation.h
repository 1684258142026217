/* The speculation of one answer: its method, and the drafter's progress. */
#ifndef PV_ENGINE_SPECULATION_H
#define PV_ENGINE_SPECULATION_H

#include "engine/session.h"
#include "engine/view_signal.h"
#include "spec/policy.h"
#include "spec/price.h"
#include "spec/view.h"

struct schedule;
struct draft_ahead;

/* The drafter's progress with the prompt of this answer. */
enum draft_phase {
    DRAFT_OFF,      /* there is no drafter: plain decoding */
    DRAFT_NO_VIEW,  /* the view has not yet chosen the rows that the drafter gets */
    DRAFT_HAS_VIEW, /* the rows are chosen (draft.visible); the drafter's prefill is not done, as
                       far as the serial schedule needs it */
    DRAFT_AWAKE,    /* the drafter's prefill is done */
    DRAFT_FAILED    /* the drafter failed; the answer continues without it */
};

struct speculation {
    struct pv_session *s;          /* borrowed */
    const struct pv_gen_params *p; /* the caller's parameters; borrowed */
    struct pv_method method;       /* with defaults filled in */
    int n_prompt;                  /* rows of the prompt */
    int32_t next;                  /* position of the answer's first token */
    const struct drafter_kind *kind;
    struct drafter *drafter; /* NULL in DRAFT_OFF */
    enum view_kind view;
    enum draft_media media; /* what the drafter gets of the prompt's media */
    struct view_signal signal;
    struct shape shape;
    enum draft_phase phase;
    const struct schedule *schedule; /* in use */
    const struct schedule *wanted;   /* the method's; serial as soon as there are other requests */
    void *state;                     /* of the open schedule */
    struct draft_ahead *ahead;       /* the drafter's tower during the prefill; or NULL */
    double wake_s;                   /* seconds of a drafter's prefill inside the answer */
    struct price_book *book;         /* the engine's statistics for answers like this one */
    struct policy policy;            /* of the method `auto` */
    struct auto_memory *learnt;      /* the engine's, for answers like this one; NULL: not `auto` */
    bool early;                      /* the drafter reads the prompt before the first round */
    struct policy_choice choice;
    struct shape tree;
    int slow_rounds; /* successive rounds whose times were not representative */
};

#endif
