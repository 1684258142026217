/* Which tokens of its video the drafter of a finished answer got. */
#ifndef PV_ENGINE_VIEW_MAP_H
#define PV_ENGINE_VIEW_MAP_H

#include "engine/session.h"

/* The memory to which a map points; zero it before the first use. */
struct view_copy {
    bool *visible; /* [frames, height, width] */
    float *scores; /* the same */
};

/* The map of the session's last answer. PV_E_ARG: there was no video or no drafter. */
enum pv_status view_of_answer(const struct pv_session *s, struct view_copy *copy,
                              struct pv_view_map *out, struct pv_error *err);
void view_copy_clear(struct view_copy *copy);

#endif
