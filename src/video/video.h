/* A video (or still picture), in a file or in memory: how many frames it shows and when, the pixels
 * of chosen ones, and its sound. A helper process, prevue-media, opens and decodes it, with FFmpeg,
 * whose types stay in the files *_av. If the helper crashes, is killed or sends invalid messages,
 * or if a read is cancelled, this video fails with one error and no other video is affected.
 *
 * Frames are numbered in the order they are shown, from 0. A file is read through our own callbacks
 * only: whatever it says, no other file and no address is ever opened.
 *
 * Pixels are converted to RGB with the file's colour matrix and range (BT.601 if it names none),
 * rotated as the file says, and alpha is dropped, as `ffmpeg -pix_fmt rgb24` and the reference
 * implementations do. If frames change their size, all are scaled to the size of the first.
 *
 * A frame that the container or the decoder reports as damaged, or that depends on such a frame, is
 * never returned. Damage that neither detects remains visible; VP8 and VP9 decoders, for example,
 * cannot detect all of it. */
#ifndef PV_VIDEO_VIDEO_H
#define PV_VIDEO_VIDEO_H

#include "audio/sound.h"
#include "base/status.h"
#include "video/image.h"
#include "video/sound_wish.h"

struct video;
struct video_sandbox;

/* Where a video comes from: a file, or (path NULL) the bytes of one in memory. */
struct video_source {
    const char *path;
    const void *data; /* [size], borrowed until the video is closed */
    size_t size;
    int fd;           /* above 0: the open file `path` of `size` bytes; owned by the caller */
    bool sound_alone; /* accept a file that has sound but no video: it has 0 frames */
};

/* The helper and its sandbox (sandbox.h), in which it can access no other file and no network, and
 * its memory and time are limited. The result is the same, bit for bit, with and without. */
struct video_sandbox {
    const char *helper;   /* the program; NULL: find the installed prevue-media */
    enum pv_sandbox mode; /* IF_POSSIBLE: without a sandbox if the system has none, */
    void (*unsandboxed)(void *user, const char *why); /* but call this before; may be NULL */
    void *user;
    double wall_seconds; /* the helper is killed after this time; 0: derived from cpu_seconds */
    int test;            /* enum media_test of media_wire.h; 0: none */
};

/* Its name in error messages: the path, or "the video in memory". */
static inline const char *video_source_name(const struct video_source *from)
{
    return from->path ? from->path : "the video in memory";
}

/* Limits of one video. Size, frames and duration are checked before anything is decoded. */
struct video_limits {
    uint64_t file_bytes;
    int64_t pixels;           /* of one frame, as stored */
    int frames;               /* frames per call of video_read */
    double seconds;           /* duration */
    uint64_t memory;          /* bytes for reading and decoding; 0: no limit */
    uint64_t decoded_pixels;  /* of all decoded frames, wanted or not; 0: no limit */
    double cpu_seconds;       /* of opening and reading, on all threads; 0: no limit */
    const char *more_formats; /* comma-separated containers and codecs that are accepted in addition
                                 to the list in formats_av.c; borrowed; NULL: none */
    /* Called about every 20 ms (never while a frame is being decoded) by the thread that opens or
     * reads. If it returns false, the call ends with PV_E_CANCELLED. May be NULL. */
    bool (*go_on)(void *user);
    void *user;
    const struct video_sandbox *sandbox; /* borrowed; NULL: a sandbox if possible */
};

struct video_info {
    int width, height; /* as displayed: rotated, but not corrected for non-square pixels, as in
                          the reference implementations */
    int64_t n_frames;  /* at least 1; 0 for a file with sound only */
    double fps;        /* average; 0 for a still picture */
    double duration;   /* seconds; for sound only, as stated in or estimated from its header */
    bool still;        /* a picture, not a video */
    bool has_sound;    /* there is a sound stream; its codec may be one that is not accepted */
    int64_t cut;       /* frames that are listed in the file but missing: it is truncated */
};

/* Versions of the decoder's libraries as the helper (NULL: the installed one) says them, or "" if
 * it cannot be started. Pixels may differ between versions. */
void video_decoder_version(const char *helper, char *out, size_t size);

/* Up to `threads` threads decode in parallel (0: one per core), each from another key frame. The
 * result does not depend on their number. */
enum pv_status video_open(struct video **out, const struct video_source *from,
                          const struct video_limits *limits, int threads, struct pv_error *err);
void video_close(struct video **v);
const struct video_info *video_info(const struct video *v);

/* Receives the at-th of the requested frames, in order. `index` and `time` are those of the picture
 * really given: a frame that cannot be decoded is replaced by the last intact one before it, or by
 * the first intact one if there is none before. `picture` is valid during the call, which happens
 * on the thread that called video_read. Return false to stop. */
typedef bool (*video_frame_fn)(void *user, int at, int64_t index, double time,
                               const struct image *picture);

/* Decode the n frames index[0] <= index[1] <= ... and call fn for each. *lost: how many could not
 * be decoded. PV_E_FORMAT if none could, PV_E_CANCELLED if fn returned false. */
enum pv_status video_read(struct video *v, const int64_t *index, int n, video_frame_fn fn,
                          void *user, int *lost, struct pv_error *err);

/* Decode the sound from second `start` to second `end` of the clip (0 <= start < end; INFINITY: to
 * its end). Second 0 is the time of the first frame, or of the first sample in a file without
 * video. Gaps, damaged packets and the time before the sound begins become silence; nothing is
 * added after its end. A file without sound is no error: out->n is 0. Overwrites *out, which the
 * caller frees with sound_clear. */
enum pv_status video_read_sound(struct video *v, double start, double end, struct sound *out,
                                struct pv_error *err);

/* The same, with the samples as they arrive; wish->origin is ignored. *lost: number of packets that
 * could not be decoded. */
enum pv_status video_hear(struct video *v, const struct sound_wish *wish, int *lost,
                          struct pv_error *err);

#endif
