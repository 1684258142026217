/* A video's file (or its bytes in memory) and its container, through FFmpeg: the packets of the
 * film, or of its sound, one after the other. */
#ifndef PV_VIDEO_DEMUXER_AV_H
#define PV_VIDEO_DEMUXER_AV_H

#include "base/status.h"
#include "video/formats_av.h"
#include "video/meter.h"

#include <libavformat/avformat.h>

struct demuxer {
    const char *path;                  /* of the file, or what memory is called; borrowed, */
    const struct video_limits *limits; /* as these are */
    struct meter_hand *hand;           /* of its reader */
    const uint8_t *data;               /* [file_size] borrowed; NULL: in a file */
    int fd;                            /* the caller's; -1: not open */
    int64_t file_size, file_at;
    AVIOContext *io;
    AVFormatContext *format; /* NULL: the container is not open */
    enum format_use use;     /* which files are opened */
    bool of_sound;           /* packets are those of the sound */
    int stream;              /* the film's, or of sound; -1: there is none, where that may be */
    bool claims_checked;     /* its tables do not claim more than they can hold (boxes.h) */
    bool measured;           /* the size of frames is within the limits, so a probe may decode */
    AVPacket *packet;        /* the caller's */
    bool packet_held;        /* it is the next one, read already */
    int n_empty;             /* packets without data before it */
};

/* Sets file_size, and fd or data, for a source within the limits. */
enum pv_status demuxer_open_source(struct demuxer *d, const struct video_source *from,
                                   struct pv_error *err);
/* Opens the container at its beginning and finds the film, or the sound, in it; after a failure
 * there may be something to close. No sound is no failure, nor is no film in a file with sound
 * where files of sound alone are read: `stream` is -1 then. */
enum pv_status demuxer_open(struct demuxer *d, struct pv_error *err);
void demuxer_close(struct demuxer *d);
/* Whether there is a stream of sound in the open container. */
bool demuxer_has_sound(const struct demuxer *d);
/* The stream that is read. */
AVStream *demuxer_stream(const struct demuxer *d);
/* The next packet of the stream into d->packet; false at the end, or where reading fails. */
bool demuxer_read(struct demuxer *d);
/* What FFmpeg says to a failure, as a sentence about the file. */
enum pv_status demuxer_fail(const struct demuxer *d, const char *what, int code,
                            struct pv_error *err);

#endif
