/* Which containers and codecs are read. FFmpeg knows hundreds, most of which nobody has tried to
 * break; those that people's videos and pictures come in are listed here, and the caller may name
 * more. Formats whose files name other files are never read. */
#ifndef PV_VIDEO_FORMATS_AV_H
#define PV_VIDEO_FORMATS_AV_H

#include "base/status.h"

#include <libavformat/avformat.h>

/* Whether there is a container or codec for each name of a list (separated by commas; NULL: none).
 */
enum pv_status formats_check(const char *more, struct pv_error *err);
/* `more`: names that are read besides those of the list; that of a kind of picture file may be
 * without FFmpeg's "_pipe". */
bool formats_has_container(const AVInputFormat *input, const char *more);
bool formats_has_codec(enum AVCodecID codec, const char *more);
/* FFmpeg's name of a container, as one would say it: the first of several, without "_pipe". */
void formats_say(char *out, size_t size, const AVInputFormat *input);
bool formats_is_playlist(const AVInputFormat *input);
/* Names of the decoders of all that is read, separated by commas, for FFmpeg, which frees them with
 * av_free; NULL: out of memory. */
char *formats_decoders(const char *more);

#endif
