/* Sound as models hear it: 16,000 samples a second, one channel, 32-bit floats. It is decoded with
 * the video it belongs to, by video_read_sound (video/video.h), where FFmpeg is; everything here
 * works without. */
#ifndef PV_AUDIO_SOUND_H
#define PV_AUDIO_SOUND_H

#include "base/status.h"

enum { SOUND_RATE = PV_SOUND_RATE };

struct sound {
    float *samples; /* [n] finite, around -1 .. 1; owned. NULL when n is 0 */
    size_t n;       /* 0: there is no sound in what was asked for */
    size_t cap;     /* samples that there is room for */
    double start;   /* seconds of the clip at which samples[0] is heard */
    int lost;       /* packets that could not be decoded; silence takes their place */
};

/* Adds samples (NULL: silence). Numbers that are not finite become 0. */
enum pv_status sound_append(struct sound *s, const float *samples, size_t n, struct pv_error *err);
void sound_clear(struct sound *s);

#endif
