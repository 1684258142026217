/* The timestamps of Qwen3-VL: a text before the rows of each pair of frames. */
#ifndef PV_VIDEO_TIMESTAMPS_H
#define PV_VIDEO_TIMESTAMPS_H

#include <stddef.h>
#include <stdint.h>

enum { PAIR_TEXT_SIZE = 64 };

/* The mean time in seconds of pair `pair` of the n frames index[] of a video with `fps` frames per
 * second (0: unknown, 24 is assumed). If n is odd, the last frame is used twice. */
double pair_seconds(const int64_t *index, int n, int pair, double fps);
/* Writes for example "<0.3 seconds>": one decimal, rounded half to even, independent of the locale.
 * Returns the length. */
size_t pair_text(char out[PAIR_TEXT_SIZE], double seconds);

#endif
