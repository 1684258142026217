/* Tests of the view specvlm-grid: stage I is that of specvlm, and stage II is spread over each
 * frame. What all views promise is in test_view.c. */
#include "base/rng.h"
#include "lab_rows.h"
#include "spec/view.h"
#include "test.h"

#include <string.h>

enum { FRAMES = 6, HEIGHT = 12, WIDTH = 20, TOKENS = HEIGHT * WIDTH, M = FRAMES * TOKENS };

static float scores[M];
static int kept[M], other[M];

static struct view_input make_input(double ratio, double lambda)
{
    return (struct view_input){ .n_frames = FRAMES,
                                .frame_tokens = TOKENS,
                                .ratio = ratio,
                                .lambda = lambda,
                                .scores = scores,
                                .grid_width = WIDTH };
}

static void fill_scores(void)
{
    for (int i = 0; i < M; i++)
        scores[i] = (float)rng_uniform(test_seed, 1, (uint64_t)i);
}

TEST(stage_one_is_that_of_specvlm)
{
    struct view_input in = make_input(0.8, 0.1), top;
    int n, n_other, stage1, other_stage1, found = 0;
    fill_scores();
    CHECK_EQ(view_choose(view_named("specvlm-grid"), &in, kept, &n, &stage1, NULL), PV_OK);
    CHECK_EQ(view_choose(VIEW_SPECVLM, &in, other, &n_other, &other_stage1, NULL), PV_OK);
    CHECK(n == n_other && n == view_budget(M, 0.8));
    CHECK(stage1 == other_stage1 && stage1 > 0 && stage1 < n);
    top = make_input(1 - (double)stage1 / M, 0);
    CHECK_EQ(view_choose(VIEW_ATTENTION, &top, other, &n_other, NULL, NULL), PV_OK);
    CHECK_EQ(n_other, stage1);
    for (int i = 0; i < n; i++)
        found += found < n_other && kept[i] == other[found];
    CHECK_EQ(found, stage1);
}

/* Without stage I: every frame has its part, and of 12 x 20 tokens 15 lie in cells of 4 x 4. */
TEST(the_rest_covers_every_frame)
{
    struct view_input in = make_input(1 - 15.0 / TOKENS, 0);
    int n, stage1;
    fill_scores();
    CHECK_EQ(view_choose(view_named("specvlm-grid"), &in, kept, &n, &stage1, NULL), PV_OK);
    CHECK(n == 15 * FRAMES && stage1 == 0);
    for (int f = 0; f < FRAMES; f++) {
        int cell[3][5] = { { 0 } };
        for (int i = 15 * f; i < 15 * f + 15; i++) {
            int j = kept[i] - f * TOKENS;
            if (CHECK(j >= 0 && j < TOKENS))
                cell[j / WIDTH / 4][j % WIDTH / 4]++;
        }
        for (int c = 0; c < 15; c++)
            CHECK_EQ(cell[c / 5][c % 5], 1);
    }
}

/* Stage I takes all of the last two frames: the others give what those lack. */
TEST(full_frames_pass_their_part_on)
{
    struct view_input in = make_input(0.5, 0.99);
    int n, stage1, first = 0;
    memset(scores, 0, sizeof scores);
    for (int i = 4 * TOKENS; i < M; i++)
        scores[i] = 1;
    CHECK_EQ(view_choose(view_named("specvlm-grid"), &in, kept, &n, &stage1, NULL), PV_OK);
    CHECK(n == M / 2 && stage1 > 470);
    while (first < n && kept[first] < 4 * TOKENS)
        first++;
    CHECK(n - first == 2 * TOKENS);
}

int main(int argc, char **argv)
{
    if (!lab_rows_add())
        return 1;
    return test_main(argc, argv);
}
