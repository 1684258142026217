/* inv_freq[j] = theta^(-2j/d). The angle is formed in f32, as the reference implementations do.
 *
 * Sections [a, b, c]: frequencies 0..a-1 turn with time, the next b with height, the rest with
 * width. Interleaved: frequency j turns with height when j mod 3 = 1 and j < 3 b, with width when
 * j mod 3 = 2 and j < 3 c, with time otherwise. */
#include "lm/positions.h"

#include <math.h>

static int axis_of(const struct config *c, int j)
{
    const int *s = c->mrope_section;
    switch (c->mrope) {
    case MROPE_SECTIONS:
        return j < s[0] ? 0 : j < s[0] + s[1] ? 1 : 2;
    case MROPE_INTERLEAVED:
        if (j % 3 == 1 && j < 3 * s[1])
            return 1;
        return j % 3 == 2 && j < 3 * s[2] ? 2 : 0;
    default:
        return 0;
    }
}

void rope_plan_init(struct rope_plan *p, const struct config *c)
{
    p->half = c->head_dim / 2;
    for (int j = 0; j < p->half; j++) {
        p->inv_freq[j] = (float)pow((double)c->rope_theta, -2.0 * j / c->head_dim);
        p->axis[j] = (uint8_t)axis_of(c, j);
    }
}

void rope_tables(const struct rope_plan *p, float *cos, float *sin, const int32_t (*pos)[3], int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < p->half; j++) {
            float angle = (float)pos[i][p->axis[j]] * p->inv_freq[j];
            cos[(size_t)i * p->half + j] = cosf(angle);
            sin[(size_t)i * p->half + j] = sinf(angle);
        }
}

int32_t positions_text(int32_t (*pos)[3], int32_t start, int n)
{
    for (int i = 0; i < n; i++)
        pos[i][0] = pos[i][1] = pos[i][2] = start + i;
    return start + n;
}

int32_t positions_block(int32_t (*pos)[3], int32_t start, int h, int w)
{
    for (int i = 0; i < h * w; i++) {
        pos[i][0] = start;
        pos[i][1] = start + i / w;
        pos[i][2] = start + i % w;
    }
    return start + (h > w ? h : w);
}
