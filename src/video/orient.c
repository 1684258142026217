/* Orientation of pictures: the eight ways a display matrix can turn and mirror a frame. */
#include "video/orient.h"

#include <string.h>

static double size_of(int32_t x)
{
    return x < 0 ? -(double)x : (double)x;
}

/* A point (x, y) is shown at (m0 x + m3 y, m1 x + m4 y), up to a shift. */
struct orientation orientation_of(const int32_t matrix[9])
{
    int32_t xx = matrix[0], xy = matrix[1], yx = matrix[3], yy = matrix[4];

    if (size_of(xx) + size_of(yy) >= size_of(xy) + size_of(yx))
        return (struct orientation){ false, xx < 0, yy < 0 };
    return (struct orientation){ true, yx < 0, xy < 0 };
}

void orient_copy(uint8_t *out, const uint8_t *in, size_t stride, int width, int height,
                 struct orientation o)
{
    int out_width = o.transpose ? height : width, out_height = o.transpose ? width : height;

    for (int y = 0; y < out_height; y++) {
        int from_y = o.flip_y ? out_height - 1 - y : y;
        uint8_t *row = out + (size_t)y * (size_t)out_width * 3;
        if (!o.transpose && !o.flip_x) {
            memcpy(row, in + (size_t)from_y * stride, (size_t)width * 3);
            continue;
        }
        for (int x = 0; x < out_width; x++) {
            int from_x = o.flip_x ? out_width - 1 - x : x;
            const uint8_t *p = o.transpose ? in + (size_t)from_x * stride + (size_t)from_y * 3
                                           : in + (size_t)from_y * stride + (size_t)from_x * 3;
            memcpy(row + (size_t)x * 3, p, 3);
        }
    }
}
