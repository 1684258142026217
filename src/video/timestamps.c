/* Seconds of pairs of frames, and how they are written: as Python's f"{t:.1f}", which rounds the
 * binary number exactly, as printf does. */
#include "video/timestamps.h"

#include <stdio.h>
#include <string.h>

static const double unknown_fps = 24;

double pair_seconds(const int64_t *index, int n, int pair, double fps)
{
    int first = 2 * pair, last = first + 1 < n ? first + 1 : n - 1;

    if (!(fps > 0))
        fps = unknown_fps;
    return ((double)index[first] / fps + (double)index[last] / fps) / 2;
}

size_t pair_text(char out[PAIR_TEXT_SIZE], double seconds)
{
    char number[PAIR_TEXT_SIZE - 16] = "";
    size_t whole, len;

    /* What is between the digits is the locale's, and may be more than one byte. */
    snprintf(number, sizeof number, "%.1f", seconds);
    whole = strspn(number, "0123456789");
    len = strlen(number);
    return (size_t)snprintf(out, PAIR_TEXT_SIZE, "<%.*s.%c seconds>", (int)whole, number,
                            len > 0 ? number[len - 1] : '0');
}
