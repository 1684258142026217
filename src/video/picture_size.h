/* The size that a PNG or JPEG file claims, for pictures that no decoder opens because of it. */
#ifndef PV_VIDEO_PICTURE_SIZE_H
#define PV_VIDEO_PICTURE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* Width times height by the header in data[0..size); 0: it is neither, or says nothing. */
int64_t picture_pixels(const uint8_t *data, size_t size);

#endif
