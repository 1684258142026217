/* Counts the resources that reading a video has used, compares them with its limits, and asks the
 * caller whether to continue. One meter serves all readers (threads) of a video. */
#ifndef PV_VIDEO_USAGE_H
#define PV_VIDEO_USAGE_H

#include "video/video.h"

#include <pthread.h>
#include <stdatomic.h>

enum { USAGE_ASK_MS = 20 }; /* least time between two calls of video_limits.go_on */

struct usage {
    const char *path;                  /* for errors; borrowed */
    const struct video_limits *limits; /* borrowed */
    pthread_t caller;                  /* the thread that called a function of video.h */
    double asked;                      /* time of the last call of go_on */
    atomic_bool stopped;               /* go_on returned false */
    atomic_ullong packets, pixels;     /* decoded */
    atomic_ullong cpu_ns;              /* spent by all readers */
    atomic_ullong bytes;               /* held by decoders and painters */
    atomic_bool starved;               /* the system had no memory for a frame */
    atomic_ullong refused; /* total that a refused request would have reached; 0: none refused */
};

/* One reader's share of the meter: the CPU time of its thread. */
struct usage_hand {
    struct usage *usage;
    pthread_t thread;
    double mark; /* CPU seconds of the thread when last added; 0: not yet */
};

void usage_init(struct usage *m, const char *path, const struct video_limits *limits);
/* The calling thread becomes the one on which go_on is called. */
void usage_enter(struct usage *m);
/* False: stop reading. Calls go_on if this is the caller's thread. */
bool usage_go_on(struct usage *m);
/* PV_E_CANCELLED, or PV_E_LIMIT naming what was exceeded. Must be called often. */
enum pv_status usage_check(struct usage_hand *h, struct pv_error *err);

/* A packet of a frame of so many pixels goes to a decoder. */
void usage_decoded(struct usage *m, int64_t pixels);
/* Reserve bytes for a decoder. False if that exceeds the limit, which usage_check then reports. */
bool usage_take(struct usage *m, uint64_t bytes);
/* Record that the system refused memory. */
void usage_starve(struct usage *m);
/* FFmpeg says that the file is damaged, which it also says of some failures for lack of memory. If
 * the system refuses some megabytes now, record that and return true. */
bool usage_doubt(struct usage *m);
void usage_give(struct usage *m, uint64_t bytes);
/* Bytes of the limit that are left. */
uint64_t usage_left(const struct usage *m);

#endif
