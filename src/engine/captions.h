/* The texts that a model family puts before the runs of a media item and after the item. */
#ifndef PV_ENGINE_CAPTIONS_H
#define PV_ENGINE_CAPTIONS_H

#include "engine/media_loader.h"

struct captions {
    char (*text)[MEDIA_CAPTION_SIZE]; /* [n]; owned */
    const char **list;                /* [n] of these; NULL: the media item has no texts; owned */
    struct buf note;                  /* the text after it; empty: none */
};

enum pv_status captions_make(struct captions *out, const struct loaded_media *s,
                             struct pv_error *err);
void captions_clear(struct captions *c);

#endif
