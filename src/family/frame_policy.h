/* The frame policy: which frames of a video are used and at what size, from the rules of the
 * model's family and the caller's parameters. */
#ifndef PV_FAMILY_FRAME_POLICY_H
#define PV_FAMILY_FRAME_POLICY_H

#include "format/vision_config.h"
#include "prevue/prevue.h"
#include "video/choose.h"
#include "video/resize.h"

/* How frames are chosen. `c` may be NULL (no model): 32 evenly spaced frames by default. */
enum pv_status frame_policy_choose(struct choose_params *out, const struct vision_config *c,
                                   const struct pv_video_params *p, struct pv_error *err);

/* The size to which every frame is resized, and the algorithm. */
struct frame_size {
    int height, width;
    enum resize_kind kind;
};

/* How a family chooses and sizes frames. */
struct family_frames {
    enum choose_rule rule;
    int frames;                 /* default number of frames; 0: derived from fps */
    double fps;                 /* default frames per second */
    int min_frames, max_frames; /* bounds of the number derived from fps */
    /* See frame_policy_size. */
    enum pv_status (*size)(struct frame_size *out, const struct vision_config *c,
                           const struct pv_video_params *p, int height, int width, int n_frames,
                           struct pv_error *err);
};

/* n_frames: 0 for a still picture. If `c` is NULL, the size is not changed. */
enum pv_status frame_policy_size(struct frame_size *out, const struct vision_config *c,
                                 const struct pv_video_params *p, int height, int width,
                                 int n_frames, struct pv_error *err);

/* Check the caller's parameters for values that no model can accept. */
enum pv_status frame_policy_check(const struct pv_video_params *p, struct pv_error *err);

#endif
