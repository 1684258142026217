/* The sound of a file, decoded in this process: 16 kHz, one channel (audio/sound.h). */
#ifndef PV_VIDEO_SOUND_AV_H
#define PV_VIDEO_SOUND_AV_H

#include "video/demuxer_av.h"

/* Takes samples, in order and without a gap. A failure ends the reading, and becomes its own with
 * the file's name before it. */
typedef enum pv_status (*sound_fn)(void *user, const float *samples, size_t n,
                                   struct pv_error *err);

struct sound_wish {
    double
        origin; /* second of the file's own time that is 0 of the clip; NAN: where sound begins */
    double start, end; /* seconds of the clip, start >= 0; INFINITY: to the end */
    sound_fn fn;
    void *user;
};

/* Most samples that a wish can give, within a limit of seconds. */
int64_t sound_most(double start, double end, double seconds);

/* `in` is set up but not open (source, limits, hand, packet), and closed again afterwards. *lost:
 * packets that could not be decoded. A file without sound gives no samples. */
enum pv_status sound_decode(struct demuxer *in, const struct sound_wish *wish, int *lost,
                            struct pv_error *err);

#endif
