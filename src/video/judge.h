/* Which decoded frames can be trusted. A decoder that lost its way goes on giving frames that look
 * decoded; the judge lets none of them through.
 *
 * A frame is good when a key frame came out of the decoder, every packet decoded from there to the
 * frame's own gave a frame, and none of these carried a sign of damage. So a verdict may have to
 * wait for frames shown later but decoded before. */
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
    struct judged queue[JUDGE_QUEUE]; /* good so far, in the order shown */
    int n;
    struct judged before; /* the last good frame before `want`; frame NULL: none */
    size_t want;          /* the frame looked for: earlier ones are let go */
    int64_t last;         /* rank of the latest frame */
    size_t bad;           /* packets from this one on are not to be trusted */
    bool ended;           /* no frame will follow */
    bool lenient;         /* packets that give no frame are no damage */
};

/* The decoder starts afresh at packet `start`; lets all frames go. */
void judge_start(struct judge *j, size_t start, size_t want);

/* The decoder gave a frame. The judge owns it from here. */
void judge_add(struct judge *j, void *frame, size_t rank, bool key, bool damaged);
/* ... one that is not shown, of packet `packet`. Nothing to own. */
void judge_add_hidden(struct judge *j, size_t packet, bool key, bool damaged);
/* ... or failed: frames to come are not to be trusted until a key comes. */
void judge_add_error(struct judge *j);
/* No frame will follow; the packets before `fed` were fed. */
void judge_end(struct judge *j, size_t fed);

/* From now on frame `rank` is wanted, not before the last one. */
void judge_want(struct judge *j, size_t rank);
/* On the frame wanted; *out is set when GOOD, and stays the judge's. */
enum verdict judge_decide(const struct judge *j, const struct judged **out);
/* What stands in for a lost frame: the last good one before it, else the first after it, else
 * NULL. Without one before, ask again as more frames come. */
const struct judged *judge_stand_in(const struct judge *j);

/* Lets all frames go. */
void judge_clear(struct judge *j);

#endif
