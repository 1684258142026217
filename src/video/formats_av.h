/* Which containers and codecs are accepted. FFmpeg has hundreds, and many are hardly tested against
 * malicious files. The list here has the common ones for video, pictures and sound; the caller may
 * permit more. Formats whose files refer to other files (playlists) are never read. */
#ifndef PV_VIDEO_FORMATS_AV_H
#define PV_VIDEO_FORMATS_AV_H

#include "base/status.h"

#include <libavformat/avformat.h>

/* What a file must contain. */
enum format_use {
    FORMAT_FILM,         /* video or a picture */
    FORMAT_FILM_OR_SOUND /* video, a picture, or only sound */
};

/* Check that FFmpeg has a container or codec for each name of a comma-separated list (NULL:
 * empty). */
enum pv_status formats_check(const char *more, struct pv_error *err);
/* `more`: comma-separated names that are accepted in addition to the list; FFmpeg's suffix "_pipe"
 * of picture formats may be omitted. */
bool formats_has_container(const AVInputFormat *input, enum format_use use, const char *more);
/* Codecs of video and pictures; codecs of sound. */
bool formats_has_codec(enum AVCodecID codec, const char *more);
bool formats_has_sound_codec(enum AVCodecID codec, const char *more);
/* A readable name of a container: the first of FFmpeg's names, without "_pipe". */
void formats_say(char *out, size_t size, const AVInputFormat *input);
bool formats_is_playlist(const AVInputFormat *input);
/* Comma-separated names of the accepted decoders, for FFmpeg, which frees them with av_free; NULL:
 * out of memory. */
char *formats_decoders(const char *more);
char *formats_sound_decoders(const char *more);

#endif
