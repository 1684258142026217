/* Rotary tables: which position number turns which frequency, and by how much. */
#include "lm/positions.h"

#include "test.h"

#include <math.h>

static struct config make_config(int head_dim, float theta, enum mrope_kind kind, int a, int b,
                                 int c)
{
    return (struct config){
        .head_dim = head_dim, .rope_theta = theta, .mrope = kind, .mrope_section = { a, b, c }
    };
}

static void check_axes(const struct config *c, const char *want)
{
    struct rope_plan p;
    rope_plan_init(&p, c);
    CHECK_EQ(p.half, (int)strlen(want));
    for (int j = 0; j < p.half; j++)
        CHECK_MSG(p.axis[j] == want[j] - '0', "frequency %d turns with %d, not %c", j, p.axis[j],
                  want[j]);
}

TEST(frequencies_turn_with_their_axis)
{
    struct config one = make_config(16, 1e4f, MROPE_NONE, 0, 0, 0);
    struct config sections = make_config(16, 1e4f, MROPE_SECTIONS, 2, 3, 3);
    struct config woven = make_config(32, 1e4f, MROPE_INTERLEAVED, 6, 5, 5);
    struct config uneven = make_config(16, 1e4f, MROPE_INTERLEAVED, 5, 2, 1);
    check_axes(&one, "00000000");
    check_axes(&sections, "00111222");
    check_axes(&woven, "0120120120120120");
    check_axes(&uneven, "01201000");
}

/* The sections of the real models: Qwen2.5-VL and Qwen3-VL, heads of 128. */
TEST(axes_of_real_models)
{
    struct config a = make_config(128, 1e6f, MROPE_SECTIONS, 16, 24, 24);
    struct config b = make_config(128, 5e6f, MROPE_INTERLEAVED, 24, 20, 20);
    struct rope_plan p;
    int count[3] = { 0 };
    rope_plan_init(&p, &a);
    CHECK(p.axis[15] == 0 && p.axis[16] == 1 && p.axis[39] == 1 && p.axis[40] == 2);
    rope_plan_init(&p, &b);
    for (int j = 0; j < 64; j++)
        count[p.axis[j]]++;
    CHECK(count[0] == 24 && count[1] == 20 && count[2] == 20);
    CHECK(p.axis[58] == 1 && p.axis[59] == 2 && p.axis[60] == 0 && p.axis[61] == 0);
}

TEST(tables_hold_cosine_and_sine_of_the_angle)
{
    static const int32_t pos[][3] = {
        { 0, 0, 0 }, { 1, 2, 3 }, { 7, 500, 31 }, { 32767, 11, 90 }, { 1000000, 4, 16383 }
    };
    struct config c = make_config(64, 1e6f, MROPE_SECTIONS, 8, 12, 12);
    struct rope_plan p;
    float cosines[5][32], sines[5][32];
    rope_plan_init(&p, &c);
    rope_tables(&p, cosines[0], sines[0], pos, 5);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 32; j++) {
            /* The frequency and the angle are rounded to f32, as the reference does. */
            float freq = (float)pow(1e6, -2.0 * j / 64);
            float angle = (float)pos[i][j < 8 ? 0 : j < 20 ? 1 : 2] * freq;
            CHECK_MSG(fabs(p.inv_freq[j] / pow(1e6, -2.0 * j / 64) - 1) < 1e-7, "frequency %d", j);
            CHECK_MSG(fabs(cosines[i][j] - cos((double)angle)) < 1e-6 &&
                          fabs(sines[i][j] - sin((double)angle)) < 1e-6,
                      "row %d frequency %d", i, j);
        }
}

/* With one number per token the other two are not looked at. */
TEST(one_dimension_uses_the_first_number)
{
    static const int32_t a[][3] = { { 9, 9, 9 } }, b[][3] = { { 9, -1, 123456 } };
    struct config c = make_config(128, 1e4f, MROPE_NONE, 0, 0, 0);
    struct rope_plan p;
    float cos_a[64], cos_b[64], sin_a[64], sin_b[64];
    rope_plan_init(&p, &c);
    rope_tables(&p, cos_a, sin_a, a, 1);
    rope_tables(&p, cos_b, sin_b, b, 1);
    CHECK(!memcmp(cos_a, cos_b, sizeof cos_a) && !memcmp(sin_a, sin_b, sizeof sin_a));
    CHECK_EQ(cos_a[0], cosf(9.0f));
}

/* What get_rope_index of transformers' Qwen3-VL gave for a video of two pairs of frames (2 x 4
 * tokens each) and a picture (3 x 2), text before, between and after them. */
TEST(blocks_and_text)
{
    static const int32_t want[3][36] = {
        { 0,  1,  2,  3,  4,  5,  5,  5,  5,  5,  5,  5,  5,  9,  10, 11, 12, 13,
          13, 13, 13, 13, 13, 13, 13, 17, 18, 19, 20, 20, 20, 20, 20, 20, 23, 24 },
        { 0,  1,  2,  3,  4,  5,  5,  5,  5,  6,  6,  6,  6,  9,  10, 11, 12, 13,
          13, 13, 13, 14, 14, 14, 14, 17, 18, 19, 20, 20, 21, 21, 22, 22, 23, 24 },
        { 0,  1,  2,  3,  4,  5,  6,  7,  8,  5,  6,  7,  8,  9,  10, 11, 12, 13,
          14, 15, 16, 13, 14, 15, 16, 17, 18, 19, 20, 21, 20, 21, 20, 21, 23, 24 },
    };
    int32_t pos[36][3], at = positions_text(pos, 0, 5);
    at = positions_block(pos + 5, at, 2, 4);
    at = positions_text(pos + 13, at, 4);
    at = positions_block(pos + 17, at, 2, 4);
    at = positions_text(pos + 25, at, 3);
    at = positions_block(pos + 28, at, 3, 2);
    at = positions_text(pos + 34, at, 2);
    CHECK_EQ(at - 36, -11); /* rope_delta */
    for (int i = 0; i < 36; i++)
        for (int axis = 0; axis < 3; axis++)
            CHECK_MSG(pos[i][axis] == want[axis][i], "row %d, axis %d: %d", i, axis, pos[i][axis]);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
