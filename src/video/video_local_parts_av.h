/* The fields of struct local_video, shared by video_local_av.c (opening and reading) and
 * video_decode_av.c (packets to frames). */
#ifndef PV_VIDEO_VIDEO_LOCAL_PARTS_AV_H
#define PV_VIDEO_VIDEO_LOCAL_PARTS_AV_H

#include "video/demuxer_av.h"
#include "video/frame_seeker.h"
#include "video/read_parts.h"
#include "video/rgb_converter_av.h"
#include "video/video_local_av.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

static const size_t NOWHERE = SIZE_MAX;

struct local_video {
    char *path;
    struct video_limits limits;
    struct usage own_usage; /* in the first reader; all readers use it */
    struct usage_hand hand;
    struct video_info info;
    double origin;         /* time of the first frame in the file, for sound; NAN: unknown */
    uint64_t reader_bytes; /* estimated memory of one reader */
    int threads;
    bool fd_borrowed;                            /* the caller owns the descriptor */
    bool is_twin;                                /* path, fd, data and index are borrowed */
    struct local_video *twin[PARTS_READERS - 1]; /* further readers, opened when needed */
    bool stale;                   /* the decoder must be replaced before it is used */
    const struct part_want *want; /* what is being read, for its `stop` */

    struct demuxer in;
    bool picture; /* read as a still picture, whatever else the file contains */

    AVCodecContext *decoder;
    bool strict; /* the decoder reports every error, and its errors count as damage */
    AVFrame *frame;

    struct frame_index index;
    struct frame_seeker frame_seeker;
    size_t next;    /* number of the packet that is read next; NOWHERE: unknown */
    size_t counted; /* with a counted index: frames returned since the start */

    struct rgb_converter rgb_converter;
};

static inline AVStream *film(const struct local_video *v)
{
    return demuxer_stream(&v->in);
}

/* Opens the container at its beginning. */
enum pv_status local_container_open(struct local_video *v, struct pv_error *err);
/* Replaces the decoder with a new one. strict: it reports every error in the data. */
enum pv_status local_decoder_open(struct local_video *v, bool strict, struct pv_error *err);
/* The first decoder of a video; its error says when frames are larger than the limit allows. */
enum pv_status local_decoder_open_first(struct local_video *v, struct pv_error *err);
/* Decodes the next frame into v->frame, feeding packets as needed; *more false at the end. */
enum pv_status local_frame_decode(struct local_video *v, bool *more, struct pv_error *err);
/* Records the error for a video of which no frame decodes. */
enum pv_status local_fail_undecodable(struct local_video *v, struct pv_error *err);

/* Calls of the frame seeker (frame_seeker.h); `user` is the struct local_video. */
enum pv_status local_decoder_pump(void *user, struct pv_error *err);
enum pv_status local_decoder_start(void *user, size_t packet, bool surely, struct pv_error *err);
void local_frame_drop(void *frame);

#endif
