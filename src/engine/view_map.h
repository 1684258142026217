/* What the drafter of an answer that has ended saw of its video. */
#ifndef PV_ENGINE_VIEW_MAP_H
#define PV_ENGINE_VIEW_MAP_H

#include "engine/session.h"

/* What a map points to; zero: nothing yet. */
struct view_copy {
    bool *visible; /* [frames, height, width] */
    float *scores; /* the same */
};

/* The map of the session's last answer. PV_E_ARG: no video, or nobody drafted. */
enum pv_status view_of_answer(const struct pv_session *s, struct view_copy *copy,
                              struct pv_view_map *out, struct pv_error *err);
void view_copy_clear(struct view_copy *copy);

#endif
