/* Speculation in a session: the method of an answer is made ready, and its schedule is chosen. */
#ifndef PV_ENGINE_SPECULATE_H
#define PV_ENGINE_SPECULATE_H

#include "engine/round.h"

/* Before the prefill: the method's parts, and the video rows of the timeline. Borrows s and p. */
enum pv_status speculation_open(struct speculation *sp, struct pv_session *s,
                                const struct pv_gen_params *p, struct pv_error *err);
/* Before the prefill, too: the method's schedule begins, where it can. */
enum pv_status speculation_start(struct speculation *sp, struct pv_error *err);
/* The prefill, in the parts that the schedule wants. */
enum pv_status speculation_prefill(struct speculation *sp, enum want want, struct pv_error *err);
/* After the prefill: the view and the drafter's prefill, by the schedule. */
enum pv_status speculation_begin(struct speculation *sp, struct pv_error *err);
/* One round by the schedule that suits best now. PV_E_DRAFTER: the drafter failed, and the method
 * is not `auto`, which goes on without it. */
enum pv_status speculation_round(struct speculation *sp, struct round *r, struct pv_error *err);
/* Ends the schedule. */
void speculation_close(struct speculation *sp);

#endif
