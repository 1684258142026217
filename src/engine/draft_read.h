/* Which part of the prompt a drafter gets, and its prefill of that part. */
#ifndef PV_ENGINE_DRAFT_READ_H
#define PV_ENGINE_DRAFT_READ_H

#include "engine/speculation.h"

/* Runs the view: it chooses which rows of the prompt the drafter gets (draft.visible), from the
 * scores in draft.scores. If these are to come from the drafter, it reads the whole prompt first.
 * DRAFT_NO_VIEW becomes DRAFT_HAS_VIEW. */
enum pv_status draft_see(struct speculation *sp, struct pv_error *err);
/* Runs the view, unless it has run, and the drafter's prefill, on the caller's thread; the phase
 * becomes DRAFT_AWAKE. May be called in the middle of an answer. */
enum pv_status draft_wake(struct speculation *sp, struct pv_error *err);

struct draft_reading {
    int n;        /* rows of the prompt; the answer follows */
    int32_t next; /* position, in the target, of the answer's first token */
    /* The drafter measures its attention to the video and adds it to draft.scores; all rows are
     * visible. */
    bool measures;
    /* Called from time to time; false stops with PV_E_CANCELLED. May be NULL. */
    bool (*go_on)(void *user, int done, int total);
    void *user;
    int rows; /* results: rows prefilled, and seconds without and in towers */
    double prefill_s, tower_s;
};
/* Run the draft model's tower, on the caller's thread, over the videos for which
 * drafting_make_ahead has allocated memory, before the view is known. Ends when all rows are
 * computed or go_on returns false, which is not a failure. */
enum pv_status draft_read_ahead(struct speculation *sp, const struct draft_reading *r,
                                struct pv_error *err);
/* The drafter's prefill, on the caller's thread. */
enum pv_status draft_read(struct speculation *sp, struct draft_reading *r, struct pv_error *err);

#endif
