/* LLaVA-OneVision's still pictures ("anyres"): the whole picture, and a grid of tiles cut from it
 * at the most suitable of the model's resolutions. In a prompt with several pictures, each is used
 * as a whole only.
 *
 * As transformers 5 does it (LlavaOnevisionImageProcessor):
 * - The one picture of a prompt is cut into tiles. Its border is black (0 before normalisation);
 *   the odd pixel of the border is on the right and at the bottom. The whole picture is resized
 *   without keeping its aspect ratio.
 * - Where a prompt has several pictures, each is centred on a square as wide as its longer side and
 *   then resized. That square is not black but of the colour int(255 * mean), so nearly 0 after
 *   normalisation; here too the odd pixel is on the right or at the bottom.
 * - Its two implementations resize differently. We match the one that uses Pillow 13, bit for bit.
 *   The one that uses torch differs by 1 of 255 on ordinary pictures, rarely 2; on tall pictures,
 *   where the two differ in the order of the passes, by more along hard edges. */
#ifndef PV_VIDEO_TILES_H
#define PV_VIDEO_TILES_H

#include "base/status.h"
#include "video/image.h"

struct tiling {
    int rows, cols;                /* tiles */
    int inner_height, inner_width; /* the resized picture, centred on rows * side x cols * side */
};

/* Choose one of n >= 1 resolutions `grid` (height, width), multiples of `side`: the one that keeps
 * most pixels of the picture, then the one with the smallest border, then the first. */
struct tiling tiling_choose(int height, int width, const int (*grid)[2], int n, int side);

/* Write 1 + rows * cols pictures of side x side pixels: first the whole picture, resized without
 * keeping its aspect ratio, then the tiles row by row. The border is black. */
enum pv_status tiles_make(uint8_t *out, const struct tiling *t, const struct image *picture,
                          int side, struct pv_error *err);

/* Centre the picture on a square of colour int(255 * mean) and resize it to side x side, as for one
 * of several pictures of a prompt. */
enum pv_status square_make(uint8_t *out, const struct image *picture, int side, const float mean[3],
                           struct pv_error *err);

#endif
