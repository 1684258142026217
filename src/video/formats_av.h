/* Which containers and codecs are read. FFmpeg knows hundreds, most of which nobody has tried to
 * break; those that people's videos, pictures and sound come in are listed here, and the caller may
 * name more. Formats whose files name other files are never read. */
#ifndef PV_VIDEO_FORMATS_AV_H
#define PV_VIDEO_FORMATS_AV_H

#include "base/status.h"

#include <libavformat/avformat.h>

/* What is read of a file. */
enum format_use {
    FORMAT_FILM,         /* its video, or picture */
    FORMAT_FILM_OR_SOUND /* or, in a file without, its sound: files of sound alone, too */
};

/* Whether there is a container or codec for each name of a list (separated by commas; NULL: none).
 */
enum pv_status formats_check(const char *more, struct pv_error *err);
/* `more`: names that are read besides those of the list; that of a kind of picture file may be
 * without FFmpeg's "_pipe". */
bool formats_has_container(const AVInputFormat *input, enum format_use use, const char *more);
/* Of video and pictures; of sound. */
bool formats_has_codec(enum AVCodecID codec, const char *more);
bool formats_has_sound_codec(enum AVCodecID codec, const char *more);
/* FFmpeg's name of a container, as one would say it: the first of several, without "_pipe". */
void formats_say(char *out, size_t size, const AVInputFormat *input);
bool formats_is_playlist(const AVInputFormat *input);
/* Names of the decoders of all video and pictures that are read, separated by commas, for FFmpeg,
 * which frees them with av_free; NULL: out of memory. */
char *formats_decoders(const char *more);
char *formats_sound_decoders(const char *more);

#endif
