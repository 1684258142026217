/* Position numbers, and rotary tables from them: one per token, or three (time, height, width) in
 * the plain or interleaved division of frequencies (M-RoPE). */
#ifndef PV_LM_POSITIONS_H
#define PV_LM_POSITIONS_H

#include "format/config.h"

struct rope_plan {
    int half; /* head_dim / 2 */
    float inv_freq[CONFIG_MAX_HEAD_DIM / 2];
    uint8_t axis[CONFIG_MAX_HEAD_DIM / 2]; /* which position number turns frequency j */
};

void rope_plan_init(struct rope_plan *p, const struct config *c);
/* cos, sin [n, half]; pos [n][3] (with one number per token only pos[i][0] counts). */
void rope_tables(const struct rope_plan *p, float *cos, float *sin, const int32_t (*pos)[3], int n);

/* Position numbers of n rows of text that begin at `start`, and of a block of h x w rows of one
 * picture or one pair of frames, row by row: time stands still, height and width count from
 * `start` (Qwen3-VL). Return where what follows begins. */
int32_t positions_text(int32_t (*pos)[3], int32_t start, int n);
int32_t positions_block(int32_t (*pos)[3], int32_t start, int h, int w);

#endif
