/* Pixels to the rows a vision tower's first matrix multiplies: normalised, cut into patches, the
 * four (merge * merge) patches of a merged token one after the other. */
#ifndef PV_VIDEO_PATCHES_H
#define PV_VIDEO_PATCHES_H

#include "video/image.h"

struct patch_plan {
    int patch;    /* side in pixels */
    int temporal; /* frames of one patch: 1, or 2 (Qwen) */
    int merge;    /* patches of a merged token along a side: 1, or 2 (Qwen) */
    float mean[3], std[3];
};

/* Patches along the sides: height / patch and width / patch, rounded down (SigLIP never reads the
 * last pixels); with merge they must be multiples of it. Row: (channel, frame, y, x). */
static inline int patch_row_size(const struct patch_plan *p)
{
    return 3 * p->temporal * p->patch * p->patch;
}

/* What a byte of each channel becomes. */
void patches_table(float table[3][256], const struct patch_plan *p);

/* frames[temporal] of equal size -> out [(height / patch) * (width / patch), row_size], rows in
 * the order (y / merge, x / merge, y % merge, x % merge). */
void patches_make(float *out, const struct patch_plan *p, const uint8_t *const *frames, int height,
                  int width);

#endif
