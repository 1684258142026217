/* Input rows of media for the model: from the cache in memory, from the cache on disk, or computed
 * by the engine's tower and then cached. */
#ifndef PV_ENGINE_MEDIA_ROWS_H
#define PV_ENGINE_MEDIA_ROWS_H

#include "engine/session.h"

/* Reserve memory in the engine's tower. */
enum pv_status session_reserve_tower(struct pv_session *s, const struct media *m,
                                     struct pv_error *err);
/* Rows [row, row + n) of a media item, in host memory or (on_device) in memory of the model's
 * device. If the tower has to run and the pixels are not loaded, the file is decoded. */
enum pv_status session_media_rows(struct pv_session *s, const struct media_item *m, int row, int n,
                                  float *out, bool on_device, struct pv_error *err);
/* A number that identifies a media item among all sessions of an engine. */
uint64_t session_media_key(const struct pv_session *s, const struct media_item *m);
/* Seconds that the engine's tower took for this session since the last call. */
double session_take_tower(struct pv_session *s);
/* The same without resetting the count. */
double session_tower_seconds(struct pv_session *s);

#endif
