/* Finds a frame: decides whether the decoder continues or restarts at a key frame, when it has read
 * enough, which packets it need not decode, and what to do if decoding cannot start at a packet
 * that is marked as a key frame. Uses the frame index and the frame filter (frame_filter.h, which
 * decides what frames are intact); the decoder is reached through two functions only. */
#ifndef PV_VIDEO_FRAME_SEEKER_H
#define PV_VIDEO_FRAME_SEEKER_H

#include "video/frame_filter.h"

/* A decoder and where its packets come from. */
struct frame_seeker_source {
    void *user;
    /* Restart the decoder with `packet` as the next one. `surely`: do not seek but read from the
     * beginning, because seeking led to a wrong place before. */
    enum pv_status (*start)(void *user, size_t packet, bool surely, struct pv_error *err);
    /* Decode until one more frame was given to the frame filter, or call frame_filter_end. Asks
     * frame_seeker_feed before each packet. */
    enum pv_status (*pump)(void *user, struct pv_error *err);
};

enum feed { FEED_DRAIN, FEED_DECODE, FEED_PASS };

struct frame_seeker {
    struct frame_index *index; /* borrowed */
    struct frame_seeker_source source;
    struct frame_filter frame_filter;
    size_t start;        /* packet at which the decoder started */
    size_t next;         /* packet that it gets next */
    size_t drain_after;  /* the last packet that it gets before it is drained */
    const int64_t *list; /* [n_list] ranks that will be looked for, rising; borrowed */
    int n_list;
    size_t listed_at; /* `next` when the list was set: earlier packets may have been passed over */
    bool passed;      /* packets were passed over since the start */
    bool whole;       /* pass over none: a frame was lost */
    bool running, draining;
    bool astray;   /* the packets read are not those of the index */
    bool surely;   /* restarts read from the beginning instead of seeking */
    bool no_drain; /* draining this decoder early loses frames */
    bool plain;    /* do not look for substitutes and do not change the index */
    int misses;    /* failed restarts */
};

void frame_seeker_init(struct frame_seeker *f, struct frame_index *index,
                       struct frame_seeker_source source, void (*drop)(void *frame));

/* The frames that will be looked for, so that they are decoded on the way to each other: list[n] in
 * rising order, borrowed until the next call. Without a list the frames in between may be passed
 * over, and going back to one costs a restart. */
void frame_seeker_list(struct frame_seeker *f, const int64_t *list, int n);

/* Call before each packet. DECODE: feed packet f->next - 1 (the call advances f->next). PASS: read
 * it but do not feed it. DRAIN: drain the decoder. */
enum feed frame_seeker_feed(struct frame_seeker *f);
/* Tell the frame seeker that the packet just read is not number f->next - 1; decoding then stops.
 */
void frame_seeker_astray(struct frame_seeker *f);

/* Find frame `want`. If it is damaged, *out is a substitute with another rank: the last intact
 * frame before it, or the first after it if there is none before. *out is owned by the frame filter
 * and valid until the next call. It is NULL if no frame of the video decodes (with `plain`: if this
 * frame does not). `after`: the frame that will be wanted next, -1: none. */
enum pv_status frame_seeker_find(struct frame_seeker *f, size_t want, int64_t after,
                                 const struct judged **out, struct pv_error *err);

/* Release all frames; the next call restarts the decoder. */
void frame_seeker_stop(struct frame_seeker *f);
/* The same, and forget what was learned about the decoder: it will be replaced. */
void frame_seeker_restart(struct frame_seeker *f);

#endif
