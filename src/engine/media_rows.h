/* Rows of media in the model's space: kept in memory, kept on disk, or made by the engine's tower,
 * and then kept. */
#ifndef PV_ENGINE_MEDIA_ROWS_H
#define PV_ENGINE_MEDIA_ROWS_H

#include "engine/session.h"

/* Room in the engine's tower. */
enum pv_status session_reserve_tower(struct pv_session *s, const struct media *m,
                                     struct pv_error *err);
/* Rows [row, row + n) of a media item in the model's space, on the host or where the model is.
 * Decodes a media item without pixels if the tower has to run. */
enum pv_status session_media_rows(struct pv_session *s, const struct media_item *m, int row, int n,
                                  float *out, bool there, struct pv_error *err);
/* What tells media of all sessions of an engine apart. */
uint64_t session_media_key(const struct pv_session *s, const struct media_item *m);
/* Seconds that the engine's tower took for this session since the last call. */
double session_take_tower(struct pv_session *s);
/* The same, which go on counting. */
double session_tower_seconds(struct pv_session *s);

#endif
