/* What a drafter is shown of the prompt, and its reading of it. */
#ifndef PV_ENGINE_DRAFT_READ_H
#define PV_ENGINE_DRAFT_READ_H

#include "engine/speculate.h"

/* The view: which rows of the prompt the drafter sees, in s->draft.seen. The scores it wants are in
 * s->draft.scores. */
enum pv_status draft_see(struct speculation *sp, struct pv_session *s, struct pv_error *err);

struct draft_reading {
    int n;        /* rows of the prompt: what follows is the answer, */
    int32_t next; /* which begins at this position of the target's */
    /* Asked now and then; false: stop, PV_E_CANCELLED. May be NULL. */
    bool (*go_on)(void *user, int done, int total);
    void *user;
    int rows; /* brought back: how many were seen, and how long it took without and in towers */
    double prefill_s, tower_s;
};
/* The drafter's prefill. On the target's thread, or on another where s->draft.alone. */
enum pv_status draft_read(struct speculation *sp, struct pv_session *s, struct draft_reading *r,
                          struct pv_error *err);

#endif
