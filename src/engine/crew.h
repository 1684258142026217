/* Crews: the threads of a session divided between the model and a drafter that runs beside it. */
#ifndef PV_ENGINE_CREW_H
#define PV_ENGINE_CREW_H

#include "engine/speculation.h"

/* From now on the drafter runs on threads of its own, as many as the method says or as measuring
 * found best; a draft model that was opened with threads of its own keeps these. On failure it
 * takes turns as before. */
enum pv_status crew_divide(struct speculation *sp, struct pv_error *err);
/* The model leaves these to it. Until then it has all, while the drafter has nothing to do. */
void crew_make_room(struct pv_session *s);
/* They take turns again, with all threads. */
void crew_unite(struct speculation *sp);

#endif
