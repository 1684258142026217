/* Memory of FFmpeg's decoders: an estimate before decoding, and a count while decoding. */
#ifndef PV_VIDEO_DECODER_MEMORY_AV_H
#define PV_VIDEO_DECODER_MEMORY_AV_H

#include "video/usage.h"

#include <libavcodec/avcodec.h>

/* Count the frames of this decoder in the meter, and refuse a frame that exceeds its limit. This
 * does not work for decoders that allocate frames themselves; they have the estimate only. */
void decoder_memory_count(AVCodecContext *d, struct usage *m);
/* Whether the frames of this decoder are counted. */
bool decoder_memory_is_counted(const AVCodecContext *d);
/* Upper bound of the bytes of frames that a decoder holds, for frames like this one: reference
 * frames, frames waiting for their turn to be shown, and frames being decoded. */
uint64_t decoder_memory_estimate(const AVCodecContext *d, const AVFrame *like);

#endif
