/* An index of a video's packets, built before decoding: the order of decoding, the order and times
 * of display, and the packets at which decoding can start. A frame's `rank` is its number in
 * display order. */
#ifndef PV_VIDEO_FRAME_INDEX_H
#define PV_VIDEO_FRAME_INDEX_H

#include "base/status.h"

enum {
    INDEX_PACKETS_MAX = 1 << 23, /* 24 hours at 97 frames a second */
    INDEX_REORDER_MAX = 32 /* frames that may lie between decoding and display; codecs use 16 */
};

#define INDEX_NO_PTS INT64_MIN

enum packet_flag {
    PACKET_KEY = 1,        /* decoding can start here */
    PACKET_HIDDEN = 2,     /* decoded but never displayed */
    PACKET_BROKEN = 4,     /* the container reports missing bytes */
    PACKET_OPTIONAL = 8,   /* may mean "repeat the last picture" and give no frame */
    PACKET_UNSAFE = 16,    /* marked as a key frame, but decoding failed when started here */
    PACKET_DISPOSABLE = 32 /* no other frame refers to its frame (disposable.h) */
};

struct index_packet {
    int64_t pts;
    int64_t pos;   /* offset in the file; negative: unknown */
    int32_t size;  /* bytes */
    uint32_t rank; /* rank of its frame; if hidden, of the next frame that is displayed */
    uint32_t top;  /* highest rank of all packets up to this one */
    unsigned flags;
};

/* Normally built from packets. If their times are unusable, the frames are counted by decoding the
 * whole video; such a "counted" index has no packets and no key frames. */
struct frame_index {
    struct index_packet *packet; /* [n_packets] in decoding order */
    size_t n_packets, packet_cap;
    uint32_t *order; /* [n_frames] packet of each rank; NULL: counted */
    double *time; /* [n_frames] seconds after the first frame; has room for time_cap if counted */
    size_t n_frames, time_cap;
};

enum pv_status frame_index_add(struct frame_index *ix, const struct index_packet *p,
                               struct pv_error *err);

/* Compute ranks from the packets' times, whose unit is `unit` seconds. *sorted is false, and
 * nothing changes, if times are missing, repeated or not plausible; the frames must then be
 * counted. */
enum pv_status frame_index_sort(struct frame_index *ix, double unit, bool *sorted,
                                struct pv_error *err);

/* Add a frame to a counted index, displayed `time` seconds after the first. */
enum pv_status frame_index_count(struct frame_index *ix, double time, struct pv_error *err);
/* Drop the packets, before counting. */
void frame_index_drop_packets(struct frame_index *ix);

/* The packet at which decoding must start for frame `rank`: the last key frame that is displayed no
 * later, or 0. */
size_t frame_index_start(const struct frame_index *ix, size_t rank);
/* The packet to try if decoding from `start` failed: `back` key frames earlier, or 0. */
size_t frame_index_step_back(const struct frame_index *ix, size_t start, int back);

/* Packets from number `begin` to `end` - 1 that other frames may refer to. */
size_t frame_index_references(const struct frame_index *ix, size_t begin, size_t end);

/* By how many frames display lags behind decoding, at most 16. */
int frame_index_delay(const struct frame_index *ix);

static inline bool frame_index_is_disposable(const struct frame_index *ix, size_t packet)
{
    return ix->order && (ix->packet[packet].flags & PACKET_DISPOSABLE);
}

static inline size_t frame_index_packet(const struct frame_index *ix, size_t rank)
{
    return ix->order ? ix->order[rank] : rank;
}

/* The highest rank among this frame and all that are decoded before it. */
static inline size_t frame_index_top(const struct frame_index *ix, size_t rank)
{
    return ix->order ? ix->packet[ix->order[rank]].top : rank;
}

void frame_index_clear(struct frame_index *ix);

#endif
