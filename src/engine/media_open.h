/* Media for the prompts of an engine: found in memory or on disk, where files are known by their
 * content, or decoded. */
#ifndef PV_ENGINE_MEDIA_OPEN_H
#define PV_ENGINE_MEDIA_OPEN_H

#include "engine/engine.h"
#include "engine/shared_media.h"

/* A reference to the item of a file. It is decoded unless a cache has it. `p` and its limits are
 * complete. */
enum pv_status media_open_file(struct pv_media **out, struct pv_engine *e,
                               const struct video_source *from, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err);
/* The same for frames in memory. */
enum pv_status media_open_frames(struct pv_media **out, struct pv_engine *e,
                                 const struct pv_frame *frames, size_t n, double fps,
                                 const struct pv_video_params *p, const struct load_bounds *b,
                                 struct pv_error *err);
/* Decode the file of an item that was found on disk, unless its pixels are in memory. */
enum pv_status media_open_pixels(struct media *m, struct pv_engine *e, struct pv_error *err);

#endif
