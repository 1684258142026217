/* The position-bias statistic on grids that can be counted by hand. */
#include "spec/position_bias.h"

#include "test.h"

enum { MOST = 64 * 196 };

static int kept[MOST];

/* 14 rows: two at either end; 64 frames: seven. */
TEST(all_tokens_have_the_share_of_the_edges)
{
    for (int i = 0; i < MOST; i++)
        kept[i] = i;
    struct position_bias b = position_bias_of(kept, MOST, 64, 196, 14);
    CHECK_EQ(b.kept_rows, 4.0 / 14);
    CHECK_EQ(b.all_rows, 4.0 / 14);
    CHECK_EQ(b.kept_frames, 14.0 / 64);
    CHECK_EQ(b.all_frames, 14.0 / 64);
}

/* Two frames of three rows of four: one row at either end, and no other frame than the ends. */
TEST(rows_are_those_of_the_grid)
{
    static const int some[] = { 0, 3, 4, 7, 8, 12, 17 };
    struct position_bias b = position_bias_of(some, 7, 2, 12, 4);
    CHECK_EQ(b.kept_rows, 4.0 / 7);
    CHECK_EQ(b.all_rows, 2.0 / 3);
    CHECK_EQ(b.kept_frames, 1.0);
    CHECK_EQ(b.all_frames, 1.0);
}

TEST(frames_at_either_end)
{
    static const int some[] = { 0, 1, 2, 9, 10, 19 }; /* 20 frames of one token: 0 1 and 18 19 */
    struct position_bias b = position_bias_of(some, 6, 20, 1, 1);
    CHECK_EQ(b.kept_frames, 3.0 / 6);
    CHECK_EQ(b.all_frames, 4.0 / 20);
    CHECK_EQ(b.kept_rows, 1.0); /* an only row is both ends, once */
    CHECK_EQ(b.all_rows, 1.0);
}

TEST(nothing_kept_has_no_bias)
{
    struct position_bias b = position_bias_of(NULL, 0, 10, 100, 10);
    CHECK_EQ(b.kept_rows, 0.0);
    CHECK_EQ(b.kept_frames, 0.0);
    CHECK_EQ(b.all_rows, 0.2);
    CHECK_EQ(b.all_frames, 0.2);
    b = position_bias_of(NULL, 0, 0, 0, 0);
    CHECK(b.all_rows == 0 && b.all_frames == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
