/* Reads the packets of the video stream, or of the sound stream, from a container, in a file or in
 * memory, with FFmpeg. */
#ifndef PV_VIDEO_DEMUXER_AV_H
#define PV_VIDEO_DEMUXER_AV_H

#include "base/status.h"
#include "video/formats_av.h"
#include "video/usage.h"

#include <libavformat/avformat.h>

struct demuxer {
    const char *path;                  /* of the file, or a name for data in memory; borrowed */
    const struct video_limits *limits; /* borrowed */
    struct usage_hand *hand;           /* the reader's share of the meter */
    const uint8_t *data;               /* [file_size] borrowed; NULL: the video is in a file */
    int fd;                            /* owned by the caller; -1: not open */
    int64_t file_size, file_at;
    AVIOContext *io;
    AVFormatContext *format; /* NULL: the container is not open */
    enum format_use use;     /* which files are accepted */
    bool of_sound;           /* read the sound stream instead of the video stream */
    int stream;              /* index of the stream that is read; -1: the file has none */
    bool claims_checked;     /* the sample tables passed boxes_check */
    bool measured;           /* the frame size is within the limits, so probing may decode */
    AVPacket *packet;        /* owned by the caller */
    bool packet_held;        /* `packet` was read ahead: demuxer_read returns it next */
    int n_empty;             /* packets without data before it */
};

/* Set file_size, and fd or data, from a source. PV_E_LIMIT if the file is too large. */
enum pv_status demuxer_open_source(struct demuxer *d, const struct video_source *from,
                                   struct pv_error *err);
/* Open the container at its beginning and find the stream. Call demuxer_close after a failure too.
 * It is no error if the sound stream is missing, or the video stream of a file with sound when
 * `use` permits files with sound only; `stream` is -1 then. */
enum pv_status demuxer_open(struct demuxer *d, struct pv_error *err);
void demuxer_close(struct demuxer *d);
/* Whether there is a stream of sound in the open container. */
bool demuxer_has_sound(const struct demuxer *d);
/* The stream that is read. */
AVStream *demuxer_stream(const struct demuxer *d);
/* Read the next packet of the stream into d->packet; false at the end, or if reading fails. */
bool demuxer_read(struct demuxer *d);
/* Record FFmpeg's error `code` as a sentence about the file. */
enum pv_status demuxer_fail(const struct demuxer *d, const char *what, int code,
                            struct pv_error *err);

#endif
