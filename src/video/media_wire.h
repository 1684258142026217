/* The messages between the library and its helper process prevue-media, over a socket that
 * preserves message boundaries. Both are from the same build, so there is no versioning. The helper
 * may have been taken over by a malicious file, so the library checks the order of its messages and
 * every number in them (media_talk.h). */
#ifndef PV_VIDEO_MEDIA_WIRE_H
#define PV_VIDEO_MEDIA_WIRE_H

#include "video/video.h"

enum {
    WIRE_FILE = 3, /* descriptors of the helper */
    WIRE_SOCKET = 4,
    WIRE_NAME = 1024, /* bytes of the file's name; longer ones are truncated */
    WIRE_FORMATS = 1024,
    WIRE_BUILD = 65,
    WIRE_SOUND_SAMPLES = 1 << 16 /* per slot */
};

/* For tests of the sandbox: what the helper does in it instead of opening the file. Helpers that
 * lie are in tests/unit/test_media_lies.c. */
enum media_test {
    MEDIA_TEST_NONE,
    MEDIA_TEST_OPEN,     /* open another file */
    MEDIA_TEST_SOCKET,   /* create a socket */
    MEDIA_TEST_EXEC,     /* map executable memory */
    MEDIA_TEST_PROCESS,  /* start a process */
    MEDIA_TEST_ALLOCATE, /* allocate four times the memory limit */
    MEDIA_TEST_SPIN,     /* loop for ever */
    MEDIA_TEST_SLEEP,    /* sleep for ever */
    MEDIA_TEST_CRASH,
    MEDIA_TEST_QUIT,   /* exit without a further message */
    MEDIA_TEST_SHRINK, /* when frames are requested, shrink the shared memory */
    MEDIA_TEST_STALL   /* when sound is requested, send nothing */
};

/* struct video_limits without pointers. */
struct wire_limits {
    uint64_t file_bytes;
    int64_t pixels;
    int frames;
    double seconds;
    uint64_t memory, decoded_pixels;
    double cpu_seconds;
    char formats[WIRE_FORMATS]; /* "": none */
};

/* To the helper: what to open. */
struct wire_job {
    char build[WIRE_BUILD]; /* of the library */
    char name[WIRE_NAME];
    uint64_t size; /* of the file */
    struct wire_limits limits;
    int threads;
    bool sound_alone;
    bool sandbox; /* enter it before anything else */
    int test;
};

/* To the helper: what to read. The descriptor of the shared memory is attached to the message. The
 * memory holds the frame numbers (int64_t [n]; not for sound), and from offset `slots` on n_slots
 * slots, each for one picture or for WIRE_SOUND_SAMPLES samples. */
struct wire_read {
    int n, n_slots;
    uint64_t slots, slot_size, size; /* bytes; size: of the whole shared memory */
    bool sound;                      /* read sound instead of frames, */
    double start, end;               /* between these seconds of the clip */
};

/* To the helper: the slots of all messages before number `at` may be reused. */
struct wire_taken {
    int at;
};

/* From the helper. The first message is READY or NO_SANDBOX, sent before it reads the file. */
enum wire_kind {
    WIRE_READY = 1,  /* it is in the sandbox, if the job wants one */
    WIRE_NO_SANDBOX, /* the system offers no sandbox; nothing follows */
    WIRE_OPENED,
    WIRE_FRAME,
    WIRE_SOUND,
    WIRE_READ,   /* all that was requested was sent */
    WIRE_FAILED, /* nothing follows */
    WIRE_KINDS
};

/* struct video_info without types that not every bit pattern is a value of. */
struct wire_info {
    int32_t width, height;
    int64_t n_frames;
    double fps, duration;
    uint32_t still, has_sound;
    int64_t cut;
};

struct wire_answer {
    uint32_t kind;   /* enum wire_kind */
    uint32_t status; /* FAILED: enum pv_status */
    char text[512];  /* FAILED, NO_SANDBOX: the error message. READY: versions of the decoder */
    struct wire_info info; /* OPENED */
    int at;                /* FRAME: which of the requested frames. SOUND: number of the message.
                              The data is in slot at % n_slots. */
    int64_t index;         /* FRAME: number of the frame really sent */
    double time;           /* FRAME: of that frame */
    uint64_t n_samples;    /* SOUND */
    int lost;              /* READ: frames or packets that could not be decoded */
};

/* What the helper says of a video. Reading it is false if it is no struct video_info; whether it
 * can be true is for media_talk.h to check. */
struct wire_info wire_write_info(const struct video_info *info);
bool wire_read_info(struct video_info *out, const struct wire_info *info);
/* The limits, without go_on and the sandbox. Writing is false if the names of formats are too long;
 * what is read refers to *l, which it terminates. */
bool wire_write_limits(struct wire_limits *out, const struct video_limits *l);
struct video_limits wire_read_limits(struct wire_limits *l);

#endif
