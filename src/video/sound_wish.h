/* Which part of a file's sound is asked for, and who receives it. */
#ifndef PV_VIDEO_SOUND_WISH_H
#define PV_VIDEO_SOUND_WISH_H

#include "base/status.h"

#include <stddef.h>

/* Receives samples, in order and without gaps. A failure ends the reading; its message is returned
 * with the file's name in front. */
typedef enum pv_status (*sound_fn)(void *user, const float *samples, size_t n,
                                   struct pv_error *err);

struct sound_wish {
    /* Time in the file, in seconds, that is 0 in the clip; NAN: where the sound begins. */
    double origin;
    double start, end; /* seconds of the clip, start >= 0; INFINITY: to the end */
    sound_fn fn;
    void *user;
};

#endif
