/* Headers of PNG (the IHDR chunk, ISO/IEC 15948, 11.2.2) and JPEG (a frame header SOF0 to SOF15,
 * ITU-T T.81, B.2.2). FFmpeg refuses pictures beyond its own bounds before it tells their size, and
 * whoever gave one should be told that it is too large, not that it is damaged. */
#include "video/picture_size.h"

#include <string.h>

static int64_t be16(const uint8_t *p)
{
    return p[0] << 8 | p[1];
}

static int64_t be32(const uint8_t *p)
{
    return be16(p) << 16 | be16(p + 2);
}

static int64_t png_pixels(const uint8_t *data, size_t size)
{
    static const uint8_t head[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n',
                                    0,    0,   0,   13,  'I',  'H',  'D',  'R' };
    int64_t width, height;

    if (size < sizeof head + 8 || memcmp(data, head, sizeof head) != 0)
        return 0;
    width = be32(data + sizeof head);
    height = be32(data + sizeof head + 4);
    return width <= INT32_MAX && height <= INT32_MAX ? width * height : 0;
}

static int64_t jpeg_pixels(const uint8_t *data, size_t size)
{
    size_t at = 2;

    if (size < 2 || data[0] != 0xff || data[1] != 0xd8)
        return 0;
    while (at + 9 <= size && data[at] == 0xff) {
        uint8_t marker = data[at + 1];
        /* C4, C8 and CC are tables and an extension, not frames. */
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc)
            return be16(data + at + 5) * be16(data + at + 7);
        at += marker == 0xff ? 1 : 2 + (size_t)be16(data + at + 2);
    }
    return 0;
}

int64_t picture_pixels(const uint8_t *data, size_t size)
{
    int64_t pixels = png_pixels(data, size);
    return pixels ? pixels : jpeg_pixels(data, size);
}
