/* Decides which decoded frames are intact. After an error a decoder may continue to return frames
 * that are built from damaged or missing ones; the judge rejects them.
 *
 * A frame is intact if a key frame came out of the decoder, every packet decoded since then up to
 * the frame's own gave a frame, and none of these was marked as damaged. So the verdict on a frame
 * may depend on frames that are displayed later but decoded before it. It does not depend on other
 * frames that are disposable (frame_index.h), which may be left out of decoding. */
#ifndef PV_VIDEO_JUDGE_H
#define PV_VIDEO_JUDGE_H

#include "video/frame_index.h"

enum { JUDGE_QUEUE = 2 * INDEX_REORDER_MAX + 2 };

enum verdict { VERDICT_WAIT, VERDICT_GOOD, VERDICT_LOST };

struct judged {
    void *frame; /* owned by the judge */
    size_t rank;
};

struct judge {
    const struct frame_index *index; /* borrowed */
    void (*drop)(void *frame);
    struct judged queue[JUDGE_QUEUE]; /* frames that look intact so far, in display order */
    int n;
    struct judged before; /* the last intact frame before `want`; frame NULL: none */
    size_t want;          /* the frame that is looked for; earlier ones are released */
    int64_t last;         /* rank of the latest frame */
    size_t bad;           /* frames of this packet and of later ones are not trusted */
    bool ended;           /* no frame will follow */
    bool lenient;         /* a packet that gives no frame does not count as damage */
};

/* The decoder restarts at packet `start`; releases all frames. */
void judge_start(struct judge *j, size_t start, size_t want);

/* The decoder returned a frame, which the judge now owns. */
void judge_add(struct judge *j, void *frame, size_t rank, bool key, bool damaged);
/* The decoder returned the frame of packet `packet`, which is never displayed. */
void judge_add_hidden(struct judge *j, size_t packet, bool key, bool damaged);
/* The decoder failed: following frames are not trusted until the next key frame. */
void judge_add_error(struct judge *j);
/* No frame will follow; the packets before `fed` were fed. */
void judge_end(struct judge *j, size_t fed);

/* Look for frame `rank` from now on; it must not be less than the last one. */
void judge_want(struct judge *j, size_t rank);
/* The verdict on the wanted frame; if GOOD, *out is set to the frame, owned by the judge. */
enum verdict judge_decide(const struct judge *j, const struct judged **out);
/* The substitute for a lost frame: the last intact one before it, else the first after it, else
 * NULL. If there is none before it, call again when more frames have been added. */
const struct judged *judge_stand_in(const struct judge *j);

/* Release all frames. */
void judge_clear(struct judge *j);

#endif
