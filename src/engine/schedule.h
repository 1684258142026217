/* Schedules: when the drafter proposes and when the model verifies. A schedule is a table of
 * functions, one file each. speculate.c chooses one and may change it between two rounds: the
 * drafter stays the same, and so does the text. */
#ifndef PV_ENGINE_SCHEDULE_H
#define PV_ENGINE_SCHEDULE_H

#include "engine/round.h"

struct schedule {
    const char *name;
    /* Its rounds block the scheduler while they wait for another thread, so it is used only while
     * there is no other request. */
    bool alone;
    /* Before the prefill (DRAFT_NO_VIEW), or between two rounds. On failure nothing is open. */
    enum pv_status (*open)(struct speculation *sp, struct pv_error *err);
    /* Called in the middle of the prefill, when the view's signal has been measured (signal.early).
     * NULL: the schedule does not need the view so early, and the prefill runs as a whole. */
    enum pv_status (*signal_ready)(struct speculation *sp, struct pv_error *err);
    /* The prefill is over. */
    enum pv_status (*prefill_done)(struct speculation *sp, struct pv_error *err);
    /* One round: the drafter proposes tokens after the last one of the answer, the model verifies
     * them. Nothing is committed: round_commit does that when tokens are emitted. PV_E_DRAFTER: the
     * drafter failed on its own thread, and the round did not begin. */
    enum pv_status (*round)(struct speculation *sp, struct round *r, struct pv_error *err);
    /* End the schedule, at any time, and set sp->phase to the drafter's progress. PV_E_DRAFTER: the
     * drafter has failed in the meantime. */
    enum pv_status (*close)(struct speculation *sp, struct pv_error *err);
};

extern const struct schedule schedule_serial, schedule_parallel;

#endif
