/* Reading chosen frames with several readers of one film at once.
 *
 * The wish is cut into parts at key frames, where a decoder starts afresh anyway; each reader takes
 * the next part that is left and starts it with a new decoder, so that what comes out depends on
 * the part alone. The cuts depend on the film and the wish alone, never on the number of readers.
 * From the first frame on that does not come out well, one reader reads the rest in order, for a
 * stand-in may lie in any part before. So the pictures are the same whatever the number of readers.
 *
 * Knows readers by three functions, and no types of FFmpeg. */
#ifndef PV_VIDEO_READ_PARTS_H
#define PV_VIDEO_READ_PARTS_H

#include "video/frame_index.h"
#include "video/meter.h"
#include "video/video.h"

#include <stdatomic.h>

enum {
    PARTS_MAX = 128,
    PARTS_READERS = 16,     /* most readers at once */
    PARTS_AHEAD = 64,       /* most pictures that wait for their turn ... */
    PARTS_BYTES = 64 << 20, /* ... and most bytes of them, two pictures excepted */
    PARTS_LEAST = 8         /* packets to decode that make a part worth its start */
};

/* One frame to read. */
struct part_want {
    int64_t frame, after; /* after: the frame wanted next, -1: none */
    bool plain;           /* only as it is: no stand-in, and the index is not written to */
    int at;
    const atomic_int *stop; /* NULL, or: to be given up (any failure) when *stop <= at */
};

/* What came of it. */
struct part_frame {
    int64_t index; /* -1: plain, and it did not come out well */
    const uint8_t *rgb;
};

struct part_source {
    void *user; /* the first reader; used by one thread at a time */
    /* Reader k > 0, made when asked for the first time; asked before reading starts. NULL when it
     * cannot be had; the others do its work. */
    void *(*twin)(void *user, int k);
    /* Opens what is not open yet, and forgets all that was decoded. */
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
    struct meter *meter; /* asked while pictures are waited for; NULL: nobody */
};

struct parts {
    int begin[PARTS_MAX + 1]; /* part k: want[begin[k]] to want[begin[k + 1]] */
    int n;
};

/* Where the wish is cut. One part: reading at once does not pay. */
void parts_cut(struct parts *out, const struct frame_index *index, const int64_t *want, int n);

/* Frames that have to be decoded for these. */
uint64_t parts_cost(const struct frame_index *index, const int64_t *want, int n);
/* Bytes of pictures that wait for their turn, at most. */
uint64_t parts_memory(int width, int height);

/* Reads in parts, handing the pictures to w->fn in order, on this thread. */
enum pv_status parts_read(const struct parts *parts, const struct part_source *source,
                          const struct part_wish *w, int *lost, struct pv_error *err);

/* Reads want[from] and what follows with the first reader alone, adding to *lost. */
enum pv_status parts_read_rest(const struct part_source *source, const struct part_wish *w,
                               int from, int *lost, struct pv_error *err);

#endif
