/* Speculation in a session: prepares the method of an answer and chooses its schedule. */
#ifndef PV_ENGINE_SPECULATE_H
#define PV_ENGINE_SPECULATE_H

#include "engine/round.h"

/* Before the prefill: open the method's parts and find the video rows. Borrows s and p. */
enum pv_status speculation_open(struct speculation *sp, struct pv_session *s,
                                const struct pv_gen_params *p, struct pv_error *err);
/* Also before the prefill: start the method's schedule, if possible. */
enum pv_status speculation_start(struct speculation *sp, struct pv_error *err);
/* The prefill, divided as the schedule needs it. */
enum pv_status speculation_prefill(struct speculation *sp, enum want want, struct pv_error *err);
/* After the prefill: run the view and the drafter's prefill, as the schedule says. */
enum pv_status speculation_begin(struct speculation *sp, struct pv_error *err);
/* One round with the schedule that suits best now. PV_E_DRAFTER: the drafter failed; the method
 * `auto` continues without it instead. */
enum pv_status speculation_round(struct speculation *sp, struct round *r, struct pv_error *err);
/* Ends the schedule. */
void speculation_close(struct speculation *sp);

#endif
