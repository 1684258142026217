/* A video (or still picture), in a file or in memory: how many frames it shows and when, the
 * pixels of chosen ones, and its sound. FFmpeg's types stay in the files *_av.
 *
 * Frames are numbered in the order they are shown, from 0. A file is read through our own callbacks
 * only: whatever it says, no other file and no address is ever opened.
 *
 * Pixels are RGB by the file's own matrix and range (unsaid: BT.601, as the references have it),
 * turned as the file asks, with alpha left off, as `ffmpeg -pix_fmt rgb24` and the references give
 * them. Where frames change their size, all are scaled to the first one's.
 *
 * A frame that the container or the decoder reports as damaged, or that was made from one, is never
 * given; damage that neither notices (VP8 and VP9, for one, cannot) shows.
 *
 * FFmpeg's log is global: opening sets its level to quiet, unless the program has changed it. */
#ifndef PV_VIDEO_VIDEO_H
#define PV_VIDEO_VIDEO_H

#include "audio/sound.h"
#include "base/status.h"
#include "video/image.h"

struct video;
struct video_sandbox;

/* Where a video comes from: a file, or (path NULL) the bytes of one in memory. */
struct video_source {
    const char *path;
    const void *data; /* [size], borrowed until the video is closed */
    size_t size;
    int fd; /* above 0: the file, of `size` bytes, open already, whose name is `path`; the caller's
             */
    bool sound_alone; /* a file that has sound and no video is opened, too: it has no frames */
};

/* A helper process for opening and decoding, in a sandbox (walls.h): no file but this one, no
 * network, memory and time within the limits. What comes out is the same to the bit. */
struct video_sandbox {
    const char *helper;  /* the program; NULL: prevue-media, where it is installed */
    bool optional;       /* without one, or without walls, the video is read in this process */
    double wall_seconds; /* it is killed when it takes longer; 0: by the limit of CPU time */
    int test;            /* enum media_test of media_wire.h; 0: none */
};

/* What error messages call it: the path, or "the video in memory". */
static inline const char *video_source_name(const struct video_source *from)
{
    return from->path ? from->path : "the video in memory";
}

/* Checked before anything is decoded. */
struct video_limits {
    uint64_t file_bytes;
    int64_t pixels;           /* of one frame, as stored */
    int frames;               /* that may be read */
    double seconds;           /* duration */
    uint64_t memory;          /* bytes for reading and decoding; 0: any number */
    uint64_t decoded_pixels;  /* of all frames that are decoded, wanted or not; 0: any number */
    double cpu_seconds;       /* of opening and reading, on all threads; 0: any number */
    const char *more_formats; /* names of containers and codecs that are read besides the usual ones
                                 (formats_av.h), separated by commas; borrowed; NULL: none */
    /* Asked every 20 ms or so (never while one frame is decoded) by the thread that opens or reads;
     * false: the call ends with PV_E_CANCELLED. May be NULL. */
    bool (*go_on)(void *user);
    void *user;
    const struct video_sandbox *sandbox; /* borrowed; NULL: in this process */
};

struct video_info {
    int width, height; /* as shown: rotated; pixels that are not square are left so, as the
                          references do */
    int64_t n_frames;  /* at least 1, unless there is sound alone */
    double fps;        /* average; 0 for a still picture */
    double duration;   /* seconds; of sound alone, what its header says or lets one guess */
    bool still;        /* one picture, not a film */
    bool has_sound;    /* there is a stream of sound, if perhaps in no codec that is read */
    int64_t cut;       /* frames that the file lists but does not hold whole: it ends early */
};

/* Versions of the decoder's libraries, as text: others may decode other pixels. */
void video_decoder_version(char *out, size_t size);

/* `threads` decode at once (0: as many as there are cores), each from another key frame. What comes
 * out does not depend on their number. */
enum pv_status video_open(struct video **out, const struct video_source *from,
                          const struct video_limits *limits, int threads, struct pv_error *err);
void video_close(struct video **v);
const struct video_info *video_info(const struct video *v);
/* When frame `index` is shown, in seconds from the first; NAN: in a helper process, whose frames
 * carry it. */
double video_time(const struct video *v, int64_t index);

/* One frame, in the order asked for. `index` and `time` are of the picture really given: where a
 * frame does not decode, the last good one before it stands in, at the start of a film the first
 * good one. `picture` is valid during the call, which is made on the thread that reads. Return
 * false to stop. */
typedef bool (*video_frame_fn)(void *user, int at, int64_t index, double time,
                               const struct image *picture);

/* Decodes the n frames index[0] <= index[1] <= ... and hands each to fn. *lost: how many of them
 * could not be decoded. PV_E_FORMAT when not one could, PV_E_CANCELLED when fn said so. */
enum pv_status video_read(struct video *v, const int64_t *index, int n, video_frame_fn fn,
                          void *user, int *lost, struct pv_error *err);

/* Decodes the sound from second `start` to second `end` of the clip (0 <= start < end; INFINITY: to
 * its end). Second 0 is the time of the first frame; in a file without video, of the first sample.
 * Gaps, damaged packets and the time before the sound begins become silence; nothing is added after
 * its end. A file without sound is no error: out->n is 0. Overwrites *out, which the caller frees
 * with sound_clear. */
enum pv_status video_read_sound(struct video *v, double start, double end, struct sound *out,
                                struct pv_error *err);

#endif
