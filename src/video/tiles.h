/* LLaVA-OneVision's still pictures: one whole view, and a grid of tiles cut from the picture at the
 * best of the model's resolutions ("anyres"); of several pictures of a prompt, one view each.
 *
 * As transformers 5 does it (LlavaOnevisionImageProcessor):
 * - The one picture of a prompt is cut into tiles. Its border is black (0 before normalisation);
 *   the odd pixel of the border is on the right and at the bottom. The whole view is squeezed, its
 *   aspect not kept.
 * - Where a prompt has several pictures, each is centred on a square as wide as its longer side and
 *   then resized. That square is not black but of the colour int(255 * mean), so nearly 0 after
 *   normalisation; here too the odd pixel is on the right or at the bottom.
 * - Its two implementations resize differently. The one on Pillow 13 gives our bits. The one on
 *   torch differs from it by 1 of 255 on ordinary pictures, rarely 2; on tall pictures, where the
 *   two differ in the order of the passes, by more along hard edges. */
#ifndef PV_VIDEO_TILES_H
#define PV_VIDEO_TILES_H

#include "base/status.h"
#include "video/image.h"

struct tiling {
    int rows, cols;                /* tiles */
    int inner_height, inner_width; /* the resized picture, centred on rows * side x cols * side */
};

/* `grid`: n >= 1 resolutions (height, width), multiples of `side`. The one on which most pixels of
 * the picture survive, of those the one with the least border; on equal terms the first. */
struct tiling tiling_choose(int height, int width, const int (*grid)[2], int n, int side);

/* The views, 1 + rows * cols of side x side pixels: the whole picture first, squeezed, then the
 * tiles row by row; the border is black. */
enum pv_status tiles_make(uint8_t *out, const struct tiling *t, const struct image *picture,
                          int side, struct pv_error *err);

/* The picture on a square of colour int(255 * mean), then side x side: one of several pictures of a
 * prompt. */
enum pv_status square_make(uint8_t *out, const struct image *picture, int side, const float mean[3],
                           struct pv_error *err);

#endif
