/* The sound of a file, decoded in this process: 16 kHz, one channel (audio/sound.h). */
#ifndef PV_VIDEO_SOUND_AV_H
#define PV_VIDEO_SOUND_AV_H

#include "video/demuxer_av.h"

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

/* Most samples between start and end, if the sound has at most `seconds` seconds. */
int64_t sound_most(double start, double end, double seconds);

/* Decode sound. `in` has source, limits, hand and packet set but is not open; it is closed again on
 * return. *lost: number of packets that could not be decoded. A file without sound is no error: it
 * gives no samples. */
enum pv_status sound_decode(struct demuxer *in, const struct sound_wish *wish, int *lost,
                            struct pv_error *err);

#endif
