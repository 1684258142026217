/* Turning pictures: the eight display matrices on a picture of 3 x 2 pixels. */
#include "video/orient.h"

#include "../test.h"

#define ONE 65536

static const struct {
    const char *what;
    int32_t a, b, c, d; /* x' = a x + c y, y' = b x + d y */
    int width;
    const char *shown; /* of "abc" above "def" */
} cases[] = {
    { "as it is", ONE, 0, 0, ONE, 3, "abcdef" },
    { "mirrored", -ONE, 0, 0, ONE, 3, "cbafed" },
    { "upside down", ONE, 0, 0, -ONE, 3, "defabc" },
    { "half a turn", -ONE, 0, 0, -ONE, 3, "fedcba" },
    { "a quarter clockwise", 0, ONE, -ONE, 0, 2, "daebfc" },
    { "a quarter back", 0, -ONE, ONE, 0, 2, "cfbead" },
    { "transposed", 0, ONE, ONE, 0, 2, "adbecf" },
    { "transposed the other way", 0, -ONE, -ONE, 0, 2, "fcebda" },
    { "a few degrees", ONE, ONE / 20, -ONE / 20, ONE, 3, "abcdef" },
    { "nothing", 0, 0, 0, 0, 3, "abcdef" },
    { "extreme", INT32_MIN, INT32_MAX, INT32_MAX, INT32_MIN, 3, "fedcba" },
};

TEST(matrices)
{
    uint8_t in[2 * 16], out[18];

    memset(in, 0, sizeof in);
    for (int i = 0; i < 6; i++)
        memset(in + i / 3 * 16 + i % 3 * 3, 'a' + i, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t m[9] = { cases[i].a, cases[i].b, 0, cases[i].c, cases[i].d, 0, 0, 0, 1 << 30 };
        struct orientation o = orientation_of(m);
        CHECK_EQ(o.transpose ? 2 : 3, cases[i].width);
        orient_copy(out, in, 16, 3, 2, o);
        for (int k = 0; k < 18; k++)
            CHECK_MSG(out[k] == cases[i].shown[k / 3], "%s: pixel %d is %c, not %c", cases[i].what,
                      k / 3, out[k], cases[i].shown[k / 3]);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
