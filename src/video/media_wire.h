/* What the library and its helper process prevue-media say to each other, over a socket that keeps
 * messages apart. One side made the other, from the same build; but the helper may have been taken
 * over by the file it decodes, so every number from it is checked, and nothing of it is trusted but
 * pixels to be pixels. */
#ifndef PV_VIDEO_MEDIA_WIRE_H
#define PV_VIDEO_MEDIA_WIRE_H

#include "video/video.h"

enum {
    WIRE_FILE = 3, /* descriptors of the helper */
    WIRE_SOCKET = 4,
    WIRE_NAME = 1024, /* bytes of the file's name, cut */
    WIRE_FORMATS = 1024,
    WIRE_BUILD = 65,
    WIRE_SOUND_SAMPLES = 1 << 16 /* of a slot with sound */
};

/* For tests of the walls: what the helper tries in place of opening the file. */
enum media_test {
    MEDIA_TEST_NONE,
    MEDIA_TEST_OPEN, /* a file */
    MEDIA_TEST_SOCKET,
    MEDIA_TEST_EXEC, /* memory that can be run */
    MEDIA_TEST_PROCESS,
    MEDIA_TEST_ALLOCATE, /* four times the limit of memory */
    MEDIA_TEST_SPIN,
    MEDIA_TEST_SLEEP,
    MEDIA_TEST_CRASH,
    MEDIA_TEST_QUIT,    /* without a word */
    MEDIA_TEST_HUGE,    /* to claim frames that are too large, */
    MEDIA_TEST_MANY,    /* more frames than a file can have, */
    MEDIA_TEST_NOISE,   /* what is no message, */
    MEDIA_TEST_ORDER,   /* and, when read, frames that nobody asked for */
    MEDIA_TEST_SHRINK,  /* to take the shared memory away, */
    MEDIA_TEST_NOISY,   /* and, when asked for sound, to send more than fits, */
    MEDIA_TEST_ENDLESS, /* more than was asked for, */
    MEDIA_TEST_STALL    /* or nothing */
};

/* To the helper: what to open. */
struct wire_job {
    char build[WIRE_BUILD]; /* of the library */
    char name[WIRE_NAME];
    char formats[WIRE_FORMATS]; /* "": none */
    uint64_t size;              /* of the file */
    uint64_t file_bytes;
    int64_t pixels;
    int frames;
    double seconds;
    uint64_t memory, decoded_pixels;
    double cpu_seconds;
    int threads;
    bool sound_alone;
    int test;
};

/* To the helper: what to read. With it comes the descriptor of the shared memory, which has the
 * numbers of the frames (int64_t [n]), and from `slots` on n_slots pictures; or, for sound, slots
 * of samples alone. */
struct wire_read {
    int n, n_slots;
    uint64_t slots, slot_size, size; /* bytes; size: of the whole */
    bool sound;                      /* between these seconds of the clip, in place of frames */
    double start, end;
};

/* To the helper: the pictures (or samples) before message `at` have been taken out of their slots.
 */
struct wire_taken {
    int at;
};

enum wire_kind { WIRE_OPENED = 1, WIRE_FRAME, WIRE_SOUND, WIRE_READ, WIRE_FAILED };

/* From the helper. */
struct wire_answer {
    uint32_t kind;
    uint32_t status;        /* FAILED: enum pv_status, */
    char text[512];         /* and the sentence */
    bool no_walls;          /* FAILED: because there is no sandbox to be had here */
    struct video_info info; /* OPENED */
    int at;                 /* FRAME: which of those asked for; in slot at % n_slots. SOUND: the
                               number of the message, likewise */
    int64_t index;          /* FRAME */
    double time;
    uint64_t n_samples; /* SOUND */
    int lost;           /* READ: all frames or samples have been sent */
};

#endif
