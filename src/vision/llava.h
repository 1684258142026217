/* How LLaVA-OneVision lays out the tokens of its tower: frames pooled to half the side, still
 * pictures stitched from their tiles, and the learned newline. All tokens are in host memory. */
#ifndef PV_VISION_LLAVA_H
#define PV_VISION_LLAVA_H

#include "video/tiles.h"
#include "vision/vision.h"

/* Rows of one frame after pooling: vision_pooled_side squared, and newlines where they stand in
 * frames. */
int llava_frame_tokens(const struct vision_config *c);
/* frames [n, side * side, out] of vision_encode -> out [n * frame_tokens, out]: bilinear, no
 * antialiasing, newlines among them. */
void llava_pool(const struct vision *v, struct vision_state *st, const float *frames, int n,
                float *out);

/* Tokens of a still picture of this size that was cut by t, newlines included. */
int llava_image_tokens(const struct vision_config *c, const struct tiling *t, int height,
                       int width);
/* views [1 + rows * cols, side * side, out] -> out [image_tokens, out]: the whole view, then the
 * stitched tiles without the border, shrunk to what the model allows, a newline after each row. */
void llava_stitch(const struct vision *v, struct vision_state *st, const float *views,
                  const struct tiling *t, int height, int width, float *out);

/* The newline [out]; it ends a video and each row of a stitched picture. */
const float *llava_newline(const struct vision *v);

#endif
