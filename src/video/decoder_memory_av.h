/* Memory of decoders: how much one is going to hold, and what it really takes. */
#ifndef PV_VIDEO_DECODER_MEMORY_AV_H
#define PV_VIDEO_DECODER_MEMORY_AV_H

#include "video/meter.h"

#include <libavcodec/avcodec.h>

/* From now on the decoder's frames count in the meter, and one that is over its limit is refused.
 * Not with decoders that have their own memory: for those there is the estimate alone. */
void decoder_memory_count(AVCodecContext *d, struct meter *m);
/* Whether the frames of this decoder are counted. */
bool decoder_memory_is_counted(const AVCodecContext *d);
/* Bytes that a decoder holds at most, of frames like this one: references, frames that wait to be
 * shown, and those on their way. */
uint64_t decoder_memory_estimate(const AVCodecContext *d, const AVFrame *like);

#endif
