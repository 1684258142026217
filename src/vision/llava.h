/* How LLaVA-OneVision arranges the tokens of its tower: frames are pooled to half the side, the
 * tokens of a still picture's tiles are put together again, and a learned newline vector is
 * inserted. All tokens are in host memory. */
#ifndef PV_VISION_LLAVA_H
#define PV_VISION_LLAVA_H

#include "video/tiles.h"
#include "vision/vision.h"

/* Rows of one frame after pooling: vision_pooled_side squared, and the newlines inside a frame if
 * the model has such. */
int llava_frame_tokens(const struct vision_config *c);

/* Tokens of a still picture of this size that was divided according to t, newlines included. */
int llava_image_tokens(const struct vision_config *c, const struct tiling *t, int height,
                       int width);
/* views [1 + rows * cols, side * side, out] -> out [image_tokens, out]: the tokens of the whole
 * picture, then those of the tiles as one grid, without the border, reduced to the size that the
 * model permits, with a newline after each row. */
void llava_stitch(const struct vision *v, struct vision_state *st, const float *views,
                  const struct tiling *t, int height, int width, float *out);

/* The newline [out]; it ends a video and each row of a stitched picture. */
const float *llava_newline(const struct vision *v);

#endif
