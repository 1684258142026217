/* Turning and mirroring a picture, as the file's display matrix asks. */
#ifndef PV_VIDEO_ORIENT_H
#define PV_VIDEO_ORIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct orientation {
    bool transpose;      /* first: rows become columns */
    bool flip_x, flip_y; /* then mirror */
};

/* The quarter turn or mirroring nearest to a display matrix (of which only the upper left 2 x 2
 * counts); none for one that is no turn at all. */
struct orientation orientation_of(const int32_t matrix[9]);

/* in: height rows of width RGB pixels, `stride` bytes apart. out: as shown, without padding, and
 * height wide where transposed. */
void orient_copy(uint8_t *out, const uint8_t *in, size_t stride, int width, int height,
                 struct orientation o);

#endif
