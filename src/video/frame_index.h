/* What a film's packets say before anything is decoded: in which order they are decoded, in which
 * order their frames are shown and when, and where decoding can start. */
#ifndef PV_VIDEO_FRAME_INDEX_H
#define PV_VIDEO_FRAME_INDEX_H

#include "base/status.h"

enum {
    INDEX_PACKETS_MAX = 1 << 23, /* 24 hours at 97 frames a second */
    INDEX_REORDER_MAX = 32       /* places between decoding and showing; codecs have 16 */
};

#define INDEX_NO_PTS INT64_MIN

enum packet_flag {
    PACKET_KEY = 1,      /* decoding can start here */
    PACKET_HIDDEN = 2,   /* decoded, never shown */
    PACKET_BROKEN = 4,   /* the container knows that bytes are missing */
    PACKET_OPTIONAL = 8, /* may stand for "the last picture again" and give no frame */
    PACKET_UNSAFE = 16   /* a key that starting from went wrong */
};

struct index_packet {
    int64_t pts;
    int64_t pos;   /* where in the file, or less than 0 */
    int32_t size;  /* bytes */
    uint32_t rank; /* the number of its frame; hidden: of the next one shown */
    uint32_t top;  /* the highest frame of the packets up to this one */
    unsigned flags;
};

/* Two kinds: by packets, or counted (frames were counted by decoding all: no packets, no keys). */
struct frame_index {
    struct index_packet *packet; /* [n_packets] in decoding order */
    size_t n_packets, packet_cap;
    uint32_t *order; /* [n_frames] packets in the order shown; NULL: counted */
    double *time;    /* [n_frames] seconds from the first; counted: time_cap */
    size_t n_frames, time_cap;
};

enum pv_status frame_index_add(struct frame_index *ix, const struct index_packet *p,
                               struct pv_error *err);

/* Ranks the packets by their times, whose unit is `unit` seconds. *sorted false (and nothing
 * ranked): times are missing, equal or jump about, so the frames must be counted. */
enum pv_status frame_index_sort(struct frame_index *ix, double unit, bool *sorted,
                                struct pv_error *err);

/* Counted: one more frame, shown `time` seconds after the first. */
enum pv_status frame_index_count(struct frame_index *ix, double time, struct pv_error *err);
/* Forgets the packets, before counting. */
void frame_index_drop_packets(struct frame_index *ix);

/* The packet decoding starts at for frame `rank`: the last key shown no later, or 0. */
size_t frame_index_start(const struct frame_index *ix, size_t rank);
/* The start to try when the one at packet `start` would not do: `back` keys earlier, or 0. */
size_t frame_index_step_back(const struct frame_index *ix, size_t start, int back);

/* By how many frames showing lags behind decoding, at most 16. */
int frame_index_delay(const struct frame_index *ix);

static inline size_t frame_index_packet(const struct frame_index *ix, size_t rank)
{
    return ix->order ? ix->order[rank] : rank;
}

/* The last frame, as shown, of all that are decoded before this one. */
static inline size_t frame_index_top(const struct frame_index *ix, size_t rank)
{
    return ix->order ? ix->packet[ix->order[rank]].top : rank;
}

void frame_index_clear(struct frame_index *ix);

#endif
