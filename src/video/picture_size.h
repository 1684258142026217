/* The size in the header of a PNG or JPEG file, to report pictures that are too large to decode. */
#ifndef PV_VIDEO_PICTURE_SIZE_H
#define PV_VIDEO_PICTURE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* Width times height from the header in data[0..size); 0: neither format, or no size found. */
int64_t picture_pixels(const uint8_t *data, size_t size);

#endif
