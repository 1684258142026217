/* Pools the tokens of frames in host memory, as LLaVA-OneVision does it in vision_encode_video. */
#ifndef PV_TESTS_POOL_FRAMES_H
#define PV_TESTS_POOL_FRAMES_H

#include "vision/llava.h"
#include "vision/tower.h"

/* frames [n, side * side, out] of vision_encode -> out [n * llava_frame_tokens, out]: bilinear,
 * without antialiasing, with newlines. */
static inline void pool_frames(const struct vision *v, struct vision_state *st, const float *frames,
                               int n, float *out)
{
    int side = vision_side(&v->c);
    size_t frame = (size_t)side * (size_t)side * (size_t)v->c.out;
    size_t pooled = (size_t)llava_frame_tokens(&v->c) * (size_t)v->c.out;
    for (int f = 0; f < n; f++) {
        v->dev->ops->put(st->work, st->tokens, frames + (size_t)f * frame, sizeof(float) * frame);
        llava_pool_tokens(v, st, 1);
        v->dev->ops->get(st->work, out + (size_t)f * pooled, st->lined ? st->lined : st->pooled,
                         sizeof(float) * pooled);
    }
}

#endif
