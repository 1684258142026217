/* Rotates and mirrors a picture according to the file's display matrix. */
#ifndef PV_VIDEO_ORIENT_H
#define PV_VIDEO_ORIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct orientation {
    bool transpose;      /* first: rows become columns */
    bool flip_x, flip_y; /* then mirror */
};

/* The rotation by a multiple of 90 degrees, with or without mirroring, that is nearest to the upper
 * left 2 x 2 of a display matrix; the identity if that part is all zeros. */
struct orientation orientation_of(const int32_t matrix[9]);

/* in: height rows of width RGB pixels, `stride` bytes apart. out: without padding; if transposed,
 * it has width rows of height pixels. */
void orient_copy(uint8_t *out, const uint8_t *in, size_t stride, int width, int height,
                 struct orientation o);

#endif
