/* Thread groups: divides the threads of a session between the model and a drafter that runs in
 * parallel. */
#ifndef PV_ENGINE_THREAD_GROUPS_H
#define PV_ENGINE_THREAD_GROUPS_H

#include "engine/speculation.h"

/* Give the drafter its own threads: as many as the method says, or as measurements found best; a
 * draft model that was opened with its own threads keeps these. On failure both take turns as
 * before. */
enum pv_status thread_groups_divide(struct speculation *sp, struct pv_error *err);
/* Withdraw the drafter's threads from the model, which uses all threads until then because the
 * drafter has nothing to do. */
void thread_groups_make_room(struct pv_session *s);
/* Let both take turns again, with all threads. */
void thread_groups_unite(struct speculation *sp);

#endif
