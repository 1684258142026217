/* Positions of rows, and rotary tables for them: one position per token, or three (time, height,
 * width) with frequencies divided in sections or interleaved (M-RoPE). */
#ifndef PV_LM_POSITIONS_H
#define PV_LM_POSITIONS_H

#include "format/config.h"

struct rope_plan {
    int half; /* head_dim / 2 */
    float inv_freq[CONFIG_MAX_HEAD_DIM / 2];
    uint8_t axis[CONFIG_MAX_HEAD_DIM / 2]; /* which of the three positions frequency j uses */
};

void rope_plan_init(struct rope_plan *p, const struct config *c);
/* cos, sin [n, half]; pos [n][3] (pos[i][0] only if there is one position per token). */
void rope_tables(const struct rope_plan *p, float *cos, float *sin, const int32_t (*pos)[3], int n);

/* Positions of n rows of text from `start` on; and of h x w rows of one picture or pair of frames,
 * line by line: time is `start`, height and width count from `start` (Qwen3-VL). Both return the
 * position of what follows. */
int32_t positions_text(int32_t (*pos)[3], int32_t start, int n);
int32_t positions_block(int32_t (*pos)[3], int32_t start, int h, int w);

#endif
