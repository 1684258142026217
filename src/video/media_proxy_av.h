/* A video that is decoded in a helper process; the functions behave as their namesakes in video.h.
 * If the helper crashes, is killed or sends invalid messages, or if a read is cancelled, this video
 * fails with one error and no other video is affected. */
#ifndef PV_VIDEO_MEDIA_PROXY_AV_H
#define PV_VIDEO_MEDIA_PROXY_AV_H

#include "video/sound_av.h"
#include "video/video.h"

struct media_proxy;

/* *unavailable is set if it failed because the helper program or a sandbox for it is missing. */
enum pv_status media_proxy_open(struct media_proxy **out, const struct video_source *from,
                                const struct video_limits *limits, int threads, bool *unavailable,
                                struct pv_error *err);
void media_proxy_close(struct media_proxy **p);
const struct video_info *media_proxy_info(const struct media_proxy *p);
enum pv_status media_proxy_read(struct media_proxy *p, const int64_t *index, int n,
                                video_frame_fn fn, void *user, int *lost, struct pv_error *err);
enum pv_status media_proxy_sound(struct media_proxy *p, const struct sound_wish *wish, int *lost,
                                 struct pv_error *err);

#endif
