/* The texts that a family puts between the runs of a medium. */
#ifndef PV_ENGINE_CAPTIONS_H
#define PV_ENGINE_CAPTIONS_H

#include "engine/media_loader.h"

struct captions {
    char (*text)[MEDIA_CAPTION_SIZE]; /* [n]; owned */
    const char **list;                /* [n] of these; NULL: the medium has no texts; owned */
};

enum pv_status captions_make(struct captions *out, const struct loaded_media *s,
                             struct pv_error *err);
void captions_clear(struct captions *c);

#endif
