/* The frame policy: which frames of a video a model takes and at what size, by the rules of its
 * family and the wishes of the caller. */
#ifndef PV_ENGINE_FRAME_POLICY_H
#define PV_ENGINE_FRAME_POLICY_H

#include "format/vision_config.h"
#include "video/choose.h"
#include "video/resize.h"

/* The rule of frame choice. `c` may be NULL: no model, LLaVA-OneVision's rule. */
enum pv_status frame_policy_choose(struct choose_params *out, const struct vision_config *c,
                                   const struct pv_video_params *p, struct pv_error *err);

/* The size every frame is resized to, and how. `c` NULL or a LLaVA still picture: unchanged. */
struct frame_size {
    int height, width;
    enum resize_kind kind;
};

/* n_frames: 0 for a still picture. */
enum pv_status frame_policy_size(struct frame_size *out, const struct vision_config *c,
                                 const struct pv_video_params *p, int height, int width,
                                 int n_frames, struct pv_error *err);

/* What is asked for makes sense at all. */
enum pv_status frame_policy_check(const struct pv_video_params *p, struct pv_error *err);

#endif
