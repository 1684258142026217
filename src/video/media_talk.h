/* The conversation with the helper process as the library sees it: which messages the helper may
 * send now, and within which bounds their numbers must be. Nothing here touches a socket.
 *
 * The order of messages is a security property. Only the first message may say that there is no
 * sandbox, and the helper sends it before it reads a byte of the file. Whatever a file makes of the
 * helper later, it cannot bring the library to decode that file without a sandbox. */
#ifndef PV_VIDEO_MEDIA_TALK_H
#define PV_VIDEO_MEDIA_TALK_H

#include "video/media_wire.h"

enum talk_state {
    TALK_OVER,       /* the helper has failed or lied, or was never started */
    TALK_NO_SANDBOX, /* it has ended, because it found no sandbox */
    TALK_STARTED,    /* it has the job; whether its sandbox works is not known yet */
    TALK_OPENING,    /* it is in the sandbox, if it has to, and opens the file */
    TALK_IDLE,       /* the file is open, and nothing is asked for */
    TALK_FRAMES,     /* frames are asked for */
    TALK_SOUND,      /* sound is asked for */
    TALK_STATES
};

struct media_talk {
    enum talk_state state;
    const struct video_limits *limits; /* borrowed */
    bool sound_alone;                  /* a file without video is accepted */
    struct video_info info;            /* from TALK_IDLE on */
    const int64_t *wanted;             /* TALK_FRAMES: [n], borrowed */
    int n;
    int64_t at;           /* TALK_FRAMES, TALK_SOUND: number of the next frame or message */
    int64_t samples_left; /* TALK_SOUND: at most so many more may come */
    int lost;             /* of the last read, when it has ended */
};

/* The helper has been started and has the job. */
void talk_begin(struct media_talk *t, const struct video_limits *limits, bool sound_alone);
/* In state TALK_IDLE: frames, or sound of at most `most` samples, are asked for. */
void talk_ask_frames(struct media_talk *t, const int64_t *wanted, int n);
void talk_ask_sound(struct media_talk *t, int64_t most);
/* Check a message of `size` bytes. NULL: it is allowed, and the state is the next one. Otherwise
 * the conversation is over; returns what the helper answered with, for an error message. */
const char *talk_hear(struct media_talk *t, const struct wire_answer *a, size_t size);

#endif
