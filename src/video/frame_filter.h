/* Decides which decoded frames are intact. After an error a decoder may continue to return frames
 * that are built from damaged or missing ones; the frame filter rejects them.
 *
 * A frame is intact if a key frame came out of the decoder, every packet decoded since then up to
 * the frame's own gave a frame, and none of these was marked as damaged. So the verdict on a frame
 * may depend on frames that are displayed later but decoded before it. It does not depend on other
 * frames that are disposable (frame_index.h), which may be left out of decoding. */
#ifndef PV_VIDEO_FRAME_FILTER_H
#define PV_VIDEO_FRAME_FILTER_H

#include "video/frame_index.h"

enum { FRAME_FILTER_QUEUE = 2 * INDEX_REORDER_MAX + 2 };

enum verdict { VERDICT_WAIT, VERDICT_GOOD, VERDICT_LOST };

struct judged {
    void *frame; /* owned by the frame filter */
    size_t rank;
};

struct frame_filter {
    const struct frame_index *index; /* borrowed */
    void (*drop)(void *frame);
    struct judged queue[FRAME_FILTER_QUEUE]; /* frames that look intact so far, in display order */
    int n;
    struct judged before; /* the last intact frame before `want`; frame NULL: none */
    size_t want;          /* the frame that is looked for; earlier ones are released */
    int64_t last;         /* rank of the latest frame */
    size_t bad;           /* frames of this packet and of later ones are not trusted */
    bool ended;           /* no frame will follow */
    bool lenient;         /* a packet that gives no frame does not count as damage */
};

/* The decoder restarts at packet `start`; releases all frames. */
void frame_filter_start(struct frame_filter *j, size_t start, size_t want);

/* The decoder returned a frame, which the frame filter now owns. */
void frame_filter_add(struct frame_filter *j, void *frame, size_t rank, bool key, bool damaged);
/* The decoder returned the frame of packet `packet`, which is never displayed. */
void frame_filter_add_hidden(struct frame_filter *j, size_t packet, bool key, bool damaged);
/* The decoder failed: following frames are not trusted until the next key frame. */
void frame_filter_add_error(struct frame_filter *j);
/* No frame will follow; the packets before `fed` were fed. */
void frame_filter_end(struct frame_filter *j, size_t fed);

/* Look for frame `rank` from now on; it must not be less than the last one. */
void frame_filter_want(struct frame_filter *j, size_t rank);
/* The verdict on the wanted frame; if GOOD, *out is set to the frame, owned by the frame filter. */
enum verdict frame_filter_decide(const struct frame_filter *j, const struct judged **out);
/* The substitute for a lost frame: the last intact one before it, else the first after it, else
 * NULL. If there is none before it, call again when more frames have been added. */
const struct judged *frame_filter_stand_in(const struct frame_filter *j);

/* Release all frames. */
void frame_filter_clear(struct frame_filter *j);

#endif
