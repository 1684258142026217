/* Pictures that tools/golden/pixels_golden.py and the tests make alike, so that only results are
 * stored in tests/golden/pixels/pixels.vec: large ones as a checksum. */
#ifndef PV_TESTS_GOLDEN_PIXELS_H
#define PV_TESTS_GOLDEN_PIXELS_H

#include "golden/golden.h"

#include <stdint.h>
#include <stdlib.h>

enum pixels_kind {
    PIXELS_NOISE, /* bytes of any value */
    PIXELS_HARD,  /* 0 and 255: overshoots everywhere */
    PIXELS_SOFT   /* slopes and a little noise */
};

static inline struct golden *pixels_golden(void)
{
    return golden_open("tests/golden/pixels/pixels.vec");
}

static inline uint8_t pixels_byte(uint32_t seed, uint32_t i)
{
    uint32_t x = (i + seed * 0x9e3779b9u) * 2654435761u;
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    return (uint8_t)((x ^ (x >> 12)) >> 24);
}

/* [height, width, 3]; free it. */
static inline uint8_t *pixels_make(int kind, uint32_t seed, int height, int width)
{
    uint8_t *rgb = malloc((size_t)height * (size_t)width * 3), *p = rgb;
    if (!rgb)
        abort();
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < 3; c++, p++) {
                int b = pixels_byte(seed, (uint32_t)(p - rgb));
                int slope = (x * (c + 2) + y * (4 - c)) % 510;
                slope = (slope > 255 ? 510 - slope : slope) + b / 32 - 4;
                slope = slope < 0 ? 0 : slope > 255 ? 255 : slope;
                *p = (uint8_t)(kind == PIXELS_NOISE  ? b
                               : kind == PIXELS_HARD ? b / 128 * 255
                                                     : slope);
            }
        }
    }
    return rgb;
}

/* FNV-1a, as golden.vec has it: signed. */
static inline int32_t pixels_hash(const uint8_t *data, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ data[i]) * 16777619u;
    return (int32_t)h;
}

#endif
