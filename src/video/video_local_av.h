/* A video that is decoded in this process, which is the helper's; the functions behave as their
 * namesakes in video.h. Only the helper and tests of decoding are linked with FFmpeg.
 *
 * FFmpeg's log level is global: opening sets it to quiet, unless the program has changed it. */
#ifndef PV_VIDEO_VIDEO_LOCAL_AV_H
#define PV_VIDEO_VIDEO_LOCAL_AV_H

#include "video/sound_wish.h"
#include "video/video.h"

struct local_video;

enum pv_status local_video_open(struct local_video **out, const struct video_source *from,
                                const struct video_limits *limits, int threads,
                                struct pv_error *err);
void local_video_close(struct local_video **v);
const struct video_info *local_video_info(const struct local_video *v);
/* The display time of frame `index`, in seconds after the first. */
double local_video_time(const struct local_video *v, int64_t index);
enum pv_status local_video_read(struct local_video *v, const int64_t *index, int n,
                                video_frame_fn fn, void *user, int *lost, struct pv_error *err);
/* Sets wish.origin itself. */
enum pv_status local_video_sound(struct local_video *v, struct sound_wish wish, int *lost,
                                 struct pv_error *err);

/* How many packets its decoders have been given since it was opened. */
uint64_t local_video_decoded(const struct local_video *v);

/* Versions of FFmpeg's libraries, as text. Pixels may differ between versions. */
void local_video_decoder_version(char *out, size_t size);

#endif
