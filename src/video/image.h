/* A picture in memory: 8-bit RGB, rows from the top, no padding between them. */
#ifndef PV_VIDEO_IMAGE_H
#define PV_VIDEO_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct image {
    int width, height;
    const uint8_t *rgb; /* [height, width, 3]; borrowed */
};

#endif
