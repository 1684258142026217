/* The sound of a file, decoded in this process: 16 kHz, one channel (audio/sound.h). */
#ifndef PV_VIDEO_SOUND_AV_H
#define PV_VIDEO_SOUND_AV_H

#include "video/demuxer_av.h"
#include "video/sound_wish.h"

/* Decode sound. `in` has source, limits, hand and packet set but is not open; it is closed again on
 * return. *lost: number of packets that could not be decoded. A file without sound is no error: it
 * gives no samples. */
enum pv_status sound_decode(struct demuxer *in, const struct sound_wish *wish, int *lost,
                            struct pv_error *err);

#endif
