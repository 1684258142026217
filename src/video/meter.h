/* What reading a video has cost so far, against its limits, and whether it is to go on: one for all
 * readers of a video. */
#ifndef PV_VIDEO_METER_H
#define PV_VIDEO_METER_H

#include "video/video.h"

#include <pthread.h>
#include <stdatomic.h>

enum { METER_ASK_MS = 20 }; /* the caller is asked no more often whether to go on */

struct meter {
    const char *path;                  /* for errors; borrowed, */
    const struct video_limits *limits; /* as these are */
    pthread_t caller;                  /* the thread that is in a call of the video */
    double asked;                      /* when it was asked last */
    atomic_bool stopped;               /* it said no */
    atomic_ullong pixels;              /* decoded */
    atomic_ullong cpu_ns;              /* spent by all readers */
    atomic_ullong bytes;               /* held by decoders and painters */
    atomic_bool starved;               /* the system had no memory for a frame */
    atomic_ullong refused; /* what would have been held when bytes were refused; 0: none */
};

/* One reader's time is that of the thread it is on. */
struct meter_hand {
    struct meter *meter;
    pthread_t thread;
    double mark; /* CPU seconds of the thread at the last look; 0: none yet */
};

void meter_init(struct meter *m, const char *path, const struct video_limits *limits);
/* The calling thread is the one to ask from now on. */
void meter_enter(struct meter *m);
/* False: reading is to end. Asks the caller, on the caller's thread only. */
bool meter_go_on(struct meter *m);
/* PV_E_CANCELLED, or PV_E_LIMIT with what was exceeded. To be called often. */
enum pv_status meter_check(struct meter_hand *h, struct pv_error *err);

void meter_decoded(struct meter *m, int64_t pixels);
/* Bytes for a decoder; false, and remembered: they are over the limit. */
bool meter_take(struct meter *m, uint64_t bytes);
/* The system refused memory. */
void meter_starve(struct meter *m);
void meter_give(struct meter *m, uint64_t bytes);
/* Bytes of the limit that are left. */
uint64_t meter_left(const struct meter *m);

#endif
