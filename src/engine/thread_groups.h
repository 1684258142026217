/* Thread groups: the threads of a session divided between the model and a drafter that runs beside
 * it. */
#ifndef PV_ENGINE_THREAD_GROUPS_H
#define PV_ENGINE_THREAD_GROUPS_H

#include "engine/speculation.h"

/* From now on the drafter runs on threads of its own, as many as the method says or as measuring
 * found best; a draft model that was opened with threads of its own keeps these. On failure it
 * takes turns as before. */
enum pv_status thread_groups_divide(struct speculation *sp, struct pv_error *err);
/* The model leaves these to it. Until then it has all, while the drafter has nothing to do. */
void thread_groups_make_room(struct pv_session *s);
/* They take turns again, with all threads. */
void thread_groups_unite(struct speculation *sp);

#endif
