/* Crews: the threads of a session divided between the model and a drafter that runs beside it. */
#ifndef PV_ENGINE_CREW_H
#define PV_ENGINE_CREW_H

#include "engine/speculate.h"

/* From now on the drafter runs on threads of its own, as many as the method says or as measuring
 * found best; a draft model that was opened with threads of its own keeps these. */
enum pv_status crew_divide(struct pv_session *s, struct speculation *sp, struct pv_error *err);
/* The model leaves these to it. Until then it has all, while the drafter has nothing to do. */
void crew_make_room(struct pv_session *s);
/* All threads for whoever runs, one at a time. */
void crew_unite(struct pv_session *s);

#endif
