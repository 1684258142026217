/* Converts pixels to the input rows of a vision tower's first matrix: normalised, cut into patches,
 * the merge * merge patches of a merged token one after the other. */
#ifndef PV_VIDEO_PATCHES_H
#define PV_VIDEO_PATCHES_H

#include "video/image.h"

struct patch_plan {
    int patch;    /* side in pixels */
    int temporal; /* frames per patch: 1, or 2 (Qwen) */
    int merge;    /* patches along a side of a merged token: 1, or 2 (Qwen) */
    float mean[3], std[3];
};

/* Floats per row, ordered (channel, frame, y, x). A frame has height / patch times width / patch
 * patches, rounded down (SigLIP ignores the last pixels); both must be multiples of merge. */
static inline int patch_row_size(const struct patch_plan *p)
{
    return 3 * p->temporal * p->patch * p->patch;
}

/* The normalised value of each byte, per channel. */
void patches_table(float table[3][256], const struct patch_plan *p);

/* frames[temporal] of equal size -> out [(height / patch) * (width / patch), row_size], rows in
 * the order (y / merge, x / merge, y % merge, x % merge). */
void patches_make(float *out, const struct patch_plan *p, const uint8_t *const *frames, int height,
                  int width);

#endif
