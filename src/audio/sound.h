/* Sound in the form that models take: 16,000 samples per second, one channel, 32-bit floats.
 * video_read_sound (video/video.h) decodes it with FFmpeg; the functions here do not need
 * FFmpeg. */
#ifndef PV_AUDIO_SOUND_H
#define PV_AUDIO_SOUND_H

#include "base/status.h"

enum { SOUND_RATE = PV_SOUND_RATE };

struct sound {
    float *samples; /* [n] finite, around -1 .. 1; owned. NULL when n is 0 */
    size_t n;       /* 0: no sound in the requested range */
    size_t cap;     /* capacity of `samples` */
    double start;   /* time of samples[0] in the clip, in seconds */
    int lost;       /* packets that could not be decoded; they were replaced by silence */
};

/* The sample at a time; far beyond what any file has, a place that is far away. */
int64_t sound_place(double seconds);
/* Most samples between start and end, if the sound has at most `seconds` seconds. */
int64_t sound_most(double start, double end, double seconds);
/* Append samples (NULL: silence). Numbers that are not finite become 0. */
enum pv_status sound_append(struct sound *s, const float *samples, size_t n, struct pv_error *err);
void sound_clear(struct sound *s);

#endif
