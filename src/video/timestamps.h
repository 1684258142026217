/* When frames are shown, as Qwen3-VL is told: a text before the rows of each pair of frames. */
#ifndef PV_VIDEO_TIMESTAMPS_H
#define PV_VIDEO_TIMESTAMPS_H

#include <stddef.h>
#include <stdint.h>

enum { PAIR_TEXT_SIZE = 64 };

/* The middle, in seconds, of pair number `pair` of the n frames index[] of a video that has fps of
 * them a second; 0: not known, then 24. An odd number of frames ends with the last one twice. */
double pair_seconds(const int64_t *index, int n, int pair, double fps);
/* "<0.3 seconds>": one digit, of a number that lies in the middle the even one. Whatever the
 * locale. Returns its length. */
size_t pair_text(char out[PAIR_TEXT_SIZE], double seconds);

#endif
