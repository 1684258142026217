/* What a drafter is shown of the prompt, and its reading of it. */
#ifndef PV_ENGINE_DRAFT_READ_H
#define PV_ENGINE_DRAFT_READ_H

#include "engine/speculation.h"

/* The view: chooses which rows of the prompt the drafter sees, in draft.visible; the scores it
 * wants are in draft.scores. DRAFT_NO_VIEW becomes DRAFT_HAS_VIEW. */
enum pv_status draft_see(struct speculation *sp, struct pv_error *err);
/* The view, unless it is chosen, and the drafter's prefill, on the thread of the caller:
 * DRAFT_AWAKE. May be called in the middle of an answer. */
enum pv_status draft_wake(struct speculation *sp, struct pv_error *err);

struct draft_reading {
    int n;        /* rows of the prompt: what follows is the answer, */
    int32_t next; /* which begins at this position of the target's */
    /* Asked now and then; false: stop, PV_E_CANCELLED. May be NULL. */
    bool (*go_on)(void *user, int done, int total);
    void *user;
    int rows; /* brought back: how many were seen, and how long it took without and in towers */
    double prefill_s, tower_s;
};
/* The draft model's tower over the videos that drafting_make_ahead has made room for, before the
 * view is known, on whatever thread calls it: until all rows are made or go_on says no, which is no
 * failure. */
enum pv_status draft_read_ahead(struct speculation *sp, const struct draft_reading *r,
                                struct pv_error *err);
/* The drafter's prefill, on whatever thread calls it. */
enum pv_status draft_read(struct speculation *sp, struct draft_reading *r, struct pv_error *err);

#endif
