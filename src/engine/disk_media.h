/* Videos and pictures in the engine's cache on disk: the properties of a file in a prompt, so that
 * it need not be decoded, and the rows that the tower computes from it, so that the tower need not
 * run.
 *
 * The key of a file is a digest of its bytes and of all settings that determine which frames are
 * used and at what size. The key of rows is a digest of the pixels (struct media) and the number of
 * their unit. */
#ifndef PV_ENGINE_DISK_MEDIA_H
#define PV_ENGINE_DISK_MEDIA_H

#include "engine/disk_identity.h"
#include "engine/media_loader.h"

/* Like media_load_file, but a file that is in the cache with all its rows is not decoded; other
 * files are entered in the cache. Still pictures that may be cut into tiles are always decoded,
 * because their tiling depends on the rest of the prompt. */
enum pv_status disk_media_load(struct engine_disk *d, struct loaded_media *out,
                               const struct vision_config *c, const struct video_source *from,
                               const struct pv_video_params *p, const struct load_bounds *b,
                               struct pv_error *err);

/* Rows [unit->n, hidden] of a unit, valid until the next call; NULL: not on disk. */
const float *disk_rows_find(struct engine_disk *d, const struct media *m,
                            const struct media_unit *unit, size_t hidden);
bool disk_rows_there(struct engine_disk *d, const struct media *m, int unit);
void disk_rows_keep(struct engine_disk *d, const struct media *m, const struct media_unit *unit,
                    const float *rows, size_t hidden);

#endif
