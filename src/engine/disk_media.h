/* Videos and pictures in the engine's cache on disk: the properties of a file in a prompt, so that
 * it need not be decoded, and the rows that the tower computes from it, so that the tower need not
 * run.
 *
 * The key of a file is a digest of its bytes and of all settings that determine which frames are
 * used and at what size (media_name). The key of rows is a digest of the pixels (struct media) and
 * the number of their unit. */
#ifndef PV_ENGINE_DISK_MEDIA_H
#define PV_ENGINE_DISK_MEDIA_H

#include "engine/disk_identity.h"
#include "engine/media_loader.h"

/* The media item `item` (media_name), without its pixels, if the cache has all its rows. */
bool disk_media_find(struct engine_disk *d, struct loaded_media *out, const uint8_t *item,
                     const struct vision_config *c, const struct video_source *from,
                     const struct pv_video_params *p, const struct load_bounds *b);
/* Enter it in the cache. Still pictures that may be cut into tiles are not entered, because their
 * tiling depends on the rest of the prompt. */
void disk_media_keep(struct engine_disk *d, const uint8_t *item, const struct loaded_media *s);

/* Rows [unit->n, hidden] of a unit, valid until the next call; NULL: not on disk. */
const float *disk_rows_find(struct engine_disk *d, const struct media *m,
                            const struct media_unit *unit, size_t hidden);
bool disk_rows_there(struct engine_disk *d, const struct media *m, int unit);
void disk_rows_keep(struct engine_disk *d, const struct media *m, const struct media_unit *unit,
                    const float *rows, size_t hidden);

#endif
