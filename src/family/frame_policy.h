/* The frame policy: which frames of a video a model takes and at what size, by the rules of its
 * family and the wishes of the caller. */
#ifndef PV_FAMILY_FRAME_POLICY_H
#define PV_FAMILY_FRAME_POLICY_H

#include "format/vision_config.h"
#include "prevue/prevue.h"
#include "video/choose.h"
#include "video/resize.h"

/* The rule of frame choice. `c` may be NULL: no model, 32 frames evenly spaced. */
enum pv_status frame_policy_choose(struct choose_params *out, const struct vision_config *c,
                                   const struct pv_video_params *p, struct pv_error *err);

/* The size every frame is resized to, and how. */
struct frame_size {
    int height, width;
    enum resize_kind kind;
};

/* How a family chooses and sizes frames. */
struct family_frames {
    enum choose_rule rule;
    int frames;                 /* so many; or (0) */
    double fps;                 /* so many a second, */
    int min_frames, max_frames; /* between these */
    /* As frame_policy_size. */
    enum pv_status (*size)(struct frame_size *out, const struct vision_config *c,
                           const struct pv_video_params *p, int height, int width, int n_frames,
                           struct pv_error *err);
};

/* n_frames: 0 for a still picture. `c` NULL: unchanged. */
enum pv_status frame_policy_size(struct frame_size *out, const struct vision_config *c,
                                 const struct pv_video_params *p, int height, int width,
                                 int n_frames, struct pv_error *err);

/* What is asked for makes sense at all. */
enum pv_status frame_policy_check(const struct pv_video_params *p, struct pv_error *err);

#endif
