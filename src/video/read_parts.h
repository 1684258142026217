/* Reads chosen frames of one video with several threads ("readers").
 *
 * The list of wanted frames is divided into parts at key frames, where a decoder can start. Each
 * reader takes the next open part and decodes it with a new decoder, so the result depends on the
 * part only. The division depends on the video and the list, never on the number of readers. At the
 * first frame that is not intact, parallel reading ends and one reader reads the rest in order,
 * because a substitute may come from any earlier part. So the pictures do not depend on the number
 * of readers.
 *
 * Readers are reached through three functions; no types of FFmpeg are used. */
#ifndef PV_VIDEO_READ_PARTS_H
#define PV_VIDEO_READ_PARTS_H

#include "video/frame_index.h"
#include "video/usage.h"
#include "video/video.h"

#include <stdatomic.h>

enum {
    PARTS_MAX = 128,
    PARTS_READERS = 16,     /* most readers at once */
    PARTS_AHEAD = 64,       /* most pictures that may wait for their turn */
    PARTS_BYTES = 64 << 20, /* most bytes of waiting pictures; two pictures may always wait */
    PARTS_LEAST = 8         /* fewest packets to decode that justify a part of its own */
};

/* One frame to read. */
struct part_want {
    int64_t frame, after;   /* after: the frame that is wanted next, -1: none */
    bool plain;             /* no substitute, and the index must not be changed */
    int at;                 /* index into part_wish.want */
    const atomic_int *stop; /* may be NULL; give up with any error when *stop <= at */
};

/* The result. */
struct part_frame {
    int64_t index; /* number of the frame; -1: `plain` was set and the frame is not intact */
    const uint8_t *rgb;
};

struct part_source {
    void *user; /* the first reader; used by one thread at a time */
    /* Reader k > 0, created at the first call. Called before reading starts. If it returns NULL,
     * the other readers do the work. */
    void *(*twin)(void *user, int k);
    /* Opens what is not open yet, and drops everything decoded so far. */
    enum pv_status (*restart)(void *reader, struct pv_error *err);
    enum pv_status (*read)(void *reader, const struct part_want *want, struct part_frame *out,
                           struct pv_error *err);
};

struct part_wish {
    const char *path; /* for errors */
    const struct frame_index *index;
    int width, height;
    const int64_t *want; /* [n], ascending */
    int n;
    int threads;
    video_frame_fn fn;
    void *user;
    struct usage *usage; /* usage_go_on is called while waiting for pictures; may be NULL */
};

struct parts {
    int begin[PARTS_MAX + 1]; /* part k: want[begin[k]] up to, not including, want[begin[k + 1]] */
    int n;
};

/* Divide the list of wanted frames. If the result is one part, parallel reading is not worth it. */
void parts_cut(struct parts *out, const struct frame_index *index, const int64_t *want, int n);

/* How many frames must be decoded to get these. */
uint64_t parts_cost(const struct frame_index *index, const int64_t *want, int n);
/* Upper bound of the bytes of waiting pictures. */
uint64_t parts_memory(int width, int height);

/* Read all parts; calls w->fn for the pictures in order, on this thread. */
enum pv_status parts_read(const struct parts *parts, const struct part_source *source,
                          const struct part_wish *w, int *lost, struct pv_error *err);

/* Read want[from] and all that follow with the first reader only, adding to *lost. */
enum pv_status parts_read_rest(const struct part_source *source, const struct part_wish *w,
                               int from, int *lost, struct pv_error *err);

#endif
