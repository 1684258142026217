/* Views: the budget, what each view chooses on inputs whose answer is known, and, for all of them
 * over ratios and odd sizes, what every choice promises. */
#include "spec/view.h"

#include "base/mem.h"
#include "base/rng.h"
#include "lab_rows.h"
#include "test.h"

#include <limits.h>
#include <math.h>

enum { MOST = 64 * 196, WIDTH = 4 };

/* Views of the laboratory. */
#define WINDOW_FRONT view_named("window-front")
#define WINDOW_MIDDLE view_named("window-middle")
#define WINDOW_BACK view_named("window-back")
#define FRAME view_named("frame")
#define FASTVID view_named("fastvid")
#define FASTVID_EXACT view_named("fastvid-exact")
#define DYCOKE view_named("dycoke")
#define DYCOKE_EXACT view_named("dycoke-exact")

static int kept[MOST + 1], other[MOST + 1];
static float scores[MOST], features[MOST * WIDTH];

static const double ratios[] = { 0, 0.5, 0.75, 0.9, 0.95, 0.99, 1 };
static const int sizes[][2] = { { 1, 1 },   { 1, 7 },  { 2, 3 },  { 3, 50 }, { 4, 4 },
                                { 5, 9 },   { 7, 1 },  { 9, 13 }, { 11, 6 }, { 16, 5 },
                                { 63, 11 }, { 64, 3 }, { 20, 20 } };
enum { N_RATIOS = sizeof ratios / sizeof *ratios, N_SIZES = sizeof sizes / sizeof *sizes };

static struct view_input make_input(int n_frames, int frame_tokens, double ratio)
{
    return (struct view_input){ .n_frames = n_frames,
                                .frame_tokens = frame_tokens,
                                .ratio = ratio,
                                .lambda = 0.4,
                                .seed = test_seed,
                                .scores = scores,
                                .features = features,
                                .width = WIDTH,
                                .grid_width = frame_tokens % 7 ? frame_tokens % 5 ? 1 : 5 : 7 };
}

static void fill_random(void)
{
    struct rng r = { test_seed };
    for (int i = 0; i < MOST; i++)
        scores[i] = rng_float(&r) * 0.5f + 0.5f;
    for (int i = 0; i < MOST * WIDTH; i++)
        features[i] = rng_float(&r);
}

/* How many are kept; -1 when the view failed. */
static int choose(enum view_kind kind, const struct view_input *in, int *out, int *stage1)
{
    struct pv_error err = { 0 };
    int n = -1;
    enum pv_status s = view_choose(kind, in, out, &n, stage1, &err);
    CHECK_MSG(s == PV_OK, "%s: %s", view_name(kind), err.text);
    return n;
}

/* A token's feature is a direction in the plane. */
static void turn(int token, double angle)
{
    float *f = features + (size_t)token * WIDTH;
    memset(f, 0, WIDTH * sizeof *f);
    f[0] = (float)cos(angle);
    f[1] = (float)sin(angle);
}

static bool holds(const int *list, int n, int token)
{
    for (int i = 0; i < n; i++)
        if (list[i] == token)
            return true;
    return false;
}

/* Those of the laboratory too. */
static int count_views(void)
{
    int n = 0;
    while (view_name((enum view_kind)n))
        n++;
    return n;
}

TEST(names_go_both_ways)
{
    int n = count_views();
    for (int k = 0; k < n; k++)
        CHECK_EQ(view_named(view_name((enum view_kind)k)), k);
    CHECK(n == VIEW_COUNT + 10);
    CHECK(view_name(VIEW_UNKNOWN) == NULL);
    CHECK_EQ(view_named("specvlm"), VIEW_SPECVLM);
    CHECK(view_named("window-middle") >= (enum view_kind)VIEW_COUNT);
    CHECK_EQ(view_named("spec"), VIEW_UNKNOWN);
    CHECK_EQ(view_named(""), VIEW_UNKNOWN);
}

TEST(budget_is_the_floor_that_was_meant)
{
    CHECK_EQ(view_budget(12545, 0.9), 1254);
    CHECK_EQ(view_budget(25089, 0.9), 2508);
    CHECK_EQ(view_budget(1000, 0.9), 100); /* 99 without care */
    CHECK_EQ(view_budget(4340, 0.9), 434);
    CHECK_EQ(view_budget(10, 0.9), 1);
    CHECK_EQ(view_budget(1, 0.9), 1);
    CHECK_EQ(view_budget(50, 0.99), 1);
    CHECK_EQ(view_budget(7, 0), 7);
    CHECK_EQ(view_budget(12545, 1), 0);
    CHECK_EQ(view_budget(0, 0.5), 0);
    CHECK_EQ(view_budget(INT_MAX, 0), INT_MAX);
}

/* "As run" views and whole frames have counts of their own; they are worked out here again. */
static int count_promised(enum view_kind kind, int f, int t, double r)
{
    int n;
    if (kind == VIEW_FULL)
        return f * t;
    if (kind == VIEW_NONE || kind == VIEW_TEXT)
        return 0;
    if (kind == FRAME) {
        n = (int)(f * (1 - r) + 1e-9);
        return (n < 1 ? 1 : n) * t;
    }
    if (kind == FASTVID) {
        n = f - (int)(f * r + 1e-9);
        return (n < 1 ? 1 : n) * t;
    }
    if (kind == DYCOKE)
        return r == 0 ? f * t : f / 4 * (t + 3 * (int)(t * (1 - r) * 0.75 + 1e-9));
    return view_budget(f * t, r);
}

static void check_promises(enum view_kind kind, int f, int t, double r)
{
    struct view_input in = make_input(f, t, r);
    int m = f * t, n, again, rising = 1;
    kept[m] = -7;
    n = choose(kind, &in, kept, NULL);
    CHECK_MSG(n == count_promised(kind, f, t, r), "%s %dx%d at %g: %d kept, not %d",
              view_name(kind), f, t, r, n, count_promised(kind, f, t, r));
    for (int i = 0; i < n; i++)
        rising = rising && kept[i] >= 0 && kept[i] < m && (i == 0 || kept[i] > kept[i - 1]);
    CHECK_MSG(rising, "%s %dx%d at %g: not rising within the video", view_name(kind), f, t, r);
    CHECK_MSG(kept[m] == -7, "%s %dx%d at %g: wrote past the end", view_name(kind), f, t, r);
    again = choose(kind, &in, other, NULL);
    CHECK_MSG(again == n && !memcmp(kept, other, (size_t)n * sizeof *kept),
              "%s %dx%d at %g: another choice the second time", view_name(kind), f, t, r);
}

TEST(every_view_keeps_what_it_promises)
{
    fill_random();
    for (int k = 0; view_name((enum view_kind)k); k++)
        for (int i = 0; i < N_SIZES; i++)
            for (int j = 0; j < N_RATIOS; j++)
                check_promises((enum view_kind)k, sizes[i][0], sizes[i][1], ratios[j]);
}

/* The same with nothing to choose by: all scores and features equal, zero, or not numbers. */
TEST(degenerate_inputs_keep_the_promises)
{
    static const float values[] = { 0, 1, NAN, INFINITY, -INFINITY };
    for (int v = 0; v < 5; v++) {
        for (int i = 0; i < MOST; i++)
            scores[i] = values[v];
        for (int i = 0; i < MOST * WIDTH; i++)
            features[i] = values[v];
        for (int k = 0; view_name((enum view_kind)k); k++)
            for (int j = 0; j < N_RATIOS; j++)
                check_promises((enum view_kind)k, 9, 13, ratios[j]);
    }
}

TEST(no_video_has_no_tokens)
{
    struct view_input in = { .n_frames = 0, .frame_tokens = 196, .ratio = 0.9, .lambda = 0.4 };
    for (int k = 0; view_name((enum view_kind)k); k++)
        CHECK_EQ(choose((enum view_kind)k, &in, kept, NULL), 0);
}

static bool is_even(int m, double ratio, const int *want, int n)
{
    struct view_input in = make_input(1, m, ratio);
    return choose(VIEW_UNIFORM, &in, kept, NULL) == n &&
           !memcmp(kept, want, (size_t)n * sizeof *want);
}

/* The second half is counted from the end, so that the last token is always there: of 31 tokens
 * the middle one of 23 is 15, though 11 times the rounded step is less. And of 400 the 14th of 92
 * is 57, not so from the end. */
TEST(uniform_counts_from_both_ends)
{
    struct view_input in;
    CHECK(is_even(10, 0.6, (const int[]){ 0, 3, 6, 9 }, 4));
    CHECK(is_even(8, 0.5, (const int[]){ 0, 2, 4, 7 }, 4));
    CHECK(is_even(10, 0.5, (const int[]){ 0, 2, 4, 6, 9 }, 5));
    CHECK(is_even(10, 0.9, (const int[]){ 0 }, 1));
    CHECK(is_even(10, 0.8, (const int[]){ 0, 9 }, 2));
    CHECK(is_even(3, 0, (const int[]){ 0, 1, 2 }, 3));
    in = make_input(1, 31, 1 - 23.0 / 31);
    CHECK_EQ(choose(VIEW_UNIFORM, &in, kept, NULL), 23);
    CHECK(kept[11] == 15 && kept[22] == 30);
    in = make_input(1, 400, 1 - 92.0 / 400);
    CHECK_EQ(choose(VIEW_UNIFORM, &in, kept, NULL), 92);
    CHECK(kept[13] == 57 && kept[91] == 399);
}

/* Every number of points among every number of tokens: distinct, rising, from end to end. */
TEST(uniform_points_are_distinct)
{
    for (int m = 1; m <= 150; m++)
        for (int u = 1; u <= m; u++) {
            struct view_input in = make_input(1, m, 1 - (double)u / m);
            int n = choose(VIEW_UNIFORM, &in, kept, NULL), rising = 1;
            for (int i = 1; i < n; i++)
                rising = rising && kept[i] > kept[i - 1];
            CHECK_MSG(n == u && rising && kept[0] == 0 && (u == 1 || kept[u - 1] == m - 1),
                      "%d of %d", u, m);
        }
}

TEST(windows_lie_where_they_say)
{
    struct view_input in = make_input(5, 3, 0.75); /* 3 of 15 */
    CHECK_EQ(choose(WINDOW_FRONT, &in, kept, NULL), 3);
    CHECK(kept[0] == 0 && kept[2] == 2);
    CHECK_EQ(choose(WINDOW_MIDDLE, &in, kept, NULL), 3);
    CHECK(kept[0] == 6 && kept[2] == 8);
    CHECK_EQ(choose(WINDOW_BACK, &in, kept, NULL), 3);
    CHECK(kept[0] == 12 && kept[2] == 14);
}

/* Another seed, another set; over many seeds every token and every pair is equally likely. */
TEST(random_is_uniform)
{
    enum { M = 8, DRAWS = 28000 };
    static int single[M], pair[M][M];
    struct view_input in = make_input(M, 1, 0.75);
    for (int s = 0; s < DRAWS; s++) {
        in.seed = (uint64_t)s;
        CHECK_EQ(choose(VIEW_RANDOM, &in, kept, NULL), 2);
        single[kept[0]]++;
        single[kept[1]]++;
        pair[kept[0]][kept[1]]++;
    }
    for (int i = 0; i < M; i++) {
        CHECK_MSG(abs(single[i] - DRAWS / 4) < 5 * 73, "token %d: %d times", i, single[i]);
        for (int j = i + 1; j < M; j++)
            CHECK_MSG(abs(pair[i][j] - DRAWS / 28) < 5 * 32, "tokens %d and %d: %d times", i, j,
                      pair[i][j]);
    }
}

/* The counts of the published baselines at 64 frames of 196 tokens. */
TEST(counts_of_the_published_baselines)
{
    struct view_input in = make_input(64, 196, 0.9);
    int n;
    fill_random();
    CHECK_EQ(choose(FRAME, &in, kept, NULL), 6 * 196);
    CHECK_EQ(choose(FASTVID, &in, kept, NULL), 7 * 196);
    n = choose(DYCOKE, &in, kept, NULL);
    CHECK_EQ(n, 16 * (196 + 3 * 14));
    CHECK_EQ((int)(1000.0 * n / (64 * 196) + 0.5), 304);
    CHECK_EQ(choose(FASTVID_EXACT, &in, kept, NULL), 1254);
    CHECK_EQ(choose(DYCOKE_EXACT, &in, kept, NULL), 1254);
    in.ratio = 0.5;
    n = choose(DYCOKE, &in, kept, NULL);
    CHECK_EQ((int)(1000.0 * n / (64 * 196) + 0.5), 529);
}

TEST(frame_keeps_whole_frames_from_end_to_end)
{
    struct view_input in = make_input(20, 2, 0.85); /* frames 0 9 19 */
    static const int want[] = { 0, 1, 18, 19, 38, 39 };
    CHECK_EQ(choose(FRAME, &in, kept, NULL), 6);
    CHECK(!memcmp(kept, want, sizeof want));
    in.ratio = 1;
    CHECK_EQ(choose(FRAME, &in, kept, NULL), 2);
    CHECK(kept[0] == 0 && kept[1] == 1);
}

/* Five frames of 4 tokens; frame f turns by step[f] from the one before. */
static void make_turning_frames(const double *step)
{
    double angle = 0;
    for (int f = 0; f < 5; f++) {
        angle += step[f];
        for (int t = 0; t < 4; t++)
            turn(f * 4 + t, angle);
    }
}

TEST(fastvid_drops_the_second_of_similar_frames)
{
    static const double step[] = { 0, 0.1, 0.9, 0.2, 0.5 };
    struct view_input in = make_input(5, 4, 0.6);
    make_turning_frames(step);
    CHECK_EQ(choose(FASTVID, &in, kept, NULL), 8); /* frames 1, 3, 4 go */
    CHECK(kept[0] == 0 && kept[3] == 3 && kept[4] == 8 && kept[7] == 11);
    in.ratio = 1;
    CHECK_EQ(choose(FASTVID, &in, kept, NULL), 4);
    CHECK_EQ(kept[3], 3);
}

/* A token without a direction is like none, but does not decide for its frame: the first has one
 * and frame 1 repeats the others (0.75 alike), while frame 2 turns far. */
TEST(fastvid_bears_empty_features)
{
    static const double step[] = { 0, 0, 1.3, 0, 0 };
    struct view_input in = make_input(5, 4, 0.6);
    make_turning_frames(step);
    memset(features + 2 * WIDTH, 0, WIDTH * sizeof *features);
    in.n_frames = 3;
    CHECK_EQ(choose(FASTVID, &in, kept, NULL), 8);
    CHECK(kept[4] == 8 && kept[7] == 11);
    features[2 * WIDTH] = NAN;
    CHECK_EQ(choose(FASTVID, &in, kept, NULL), 8);
    CHECK(kept[4] == 8 && kept[7] == 11);
}

/* 11 of 20 tokens: frames 0 and 2, then 3 tokens of frame 4, spread over it. */
TEST(fastvid_exact_thins_the_last_frame)
{
    static const double step[] = { 0, 0.1, 0.9, 0.2, 0.5 };
    static const int want[] = { 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 19 };
    struct view_input in = make_input(5, 4, 0.45);
    make_turning_frames(step);
    CHECK_EQ(choose(FASTVID_EXACT, &in, kept, NULL), 11);
    CHECK(!memcmp(kept, want, sizeof want));
    in.ratio = 0.9; /* 2: the ends of the first frame */
    CHECK_EQ(choose(FASTVID_EXACT, &in, kept, NULL), 2);
    CHECK(kept[0] == 0 && kept[1] == 3);
}

/* Where the budget is a whole number of frames both versions are one, ties included. */
TEST(fastvid_versions_agree_on_whole_frames)
{
    fill_random();
    memcpy(features + (size_t)30 * WIDTH, features, (size_t)30 * WIDTH * sizeof *features);
    memcpy(features + (size_t)60 * WIDTH, features, (size_t)60 * WIDTH * sizeof *features);
    for (int gone = 0; gone < 20; gone++) {
        struct view_input in = make_input(20, 6, gone / 20.0);
        int n = choose(FASTVID, &in, kept, NULL);
        CHECK_EQ(choose(FASTVID_EXACT, &in, other, NULL), n);
        CHECK_MSG(!memcmp(kept, other, (size_t)n * sizeof *kept), "%d frames gone", gone);
    }
}

/* 4 + 3 frames of 8 tokens. Frame 1 differs from frame 0 in token 5, frame 2 in tokens 1 and 5,
 * frame 3 is frame 2 but for token 7. So frame 3 has tokens 1 and 5 new against frame 0 but not
 * against frame 2, which it is compared with. The last three frames repeat the first. */
static void make_groups(void)
{
    for (int i = 0; i < 7 * 8; i++)
        turn(i, 0);
    turn(8 + 5, 1);
    turn(16 + 5, 1);
    turn(16 + 1, 0.5);
    turn(24 + 5, 1);
    turn(24 + 1, 0.5);
    turn(24 + 7, 0.1);
}

TEST(dycoke_compares_with_frames_one_one_three)
{
    struct view_input in = make_input(7, 8, 0.75); /* int(8 * 0.25 * 0.75) = 1 */
    int n;
    make_groups();
    n = choose(DYCOKE, &in, kept, NULL);
    CHECK_EQ(n, 8 + 3); /* and nothing of the last three frames */
    CHECK(kept[7] == 7 && kept[8] == 8 + 5 && kept[9] == 16 + 5 && kept[10] == 24 + 7);
    in.n_frames = 3; /* no group at all */
    CHECK_EQ(choose(DYCOKE, &in, kept, NULL), 0);
    in.ratio = 0;
    CHECK_EQ(choose(DYCOKE, &in, kept, NULL), 24);
}

/* 14 of 56: 8 for the group of four, of which the first frame gets int(8 / 1.5625) = 5; 6 for the
 * group of three, of which the first gets int(6 / 1.375) = 4. */
TEST(dycoke_exact_keeps_the_proportions)
{
    struct view_input in = make_input(7, 8, 0.75);
    static const int first[] = { 0, 1, 3, 5, 7 }, fifth[] = { 32, 34, 36, 39 };
    int n;
    make_groups();
    n = choose(DYCOKE_EXACT, &in, kept, NULL);
    CHECK_EQ(n, 14);
    CHECK(!memcmp(kept, first, sizeof first));
    CHECK(holds(kept, n, 8 + 5) && holds(kept, n, 16 + 5) && holds(kept, n, 24 + 7));
    CHECK(!memcmp(kept + 8, fifth, sizeof fifth));
    CHECK(kept[12] == 40 && kept[13] == 48); /* nothing is new there: the first token of each */
}

TEST(attention_takes_the_highest)
{
    static const float s[] = { 0.1f, 0.9f, NAN, 0.3f, 0.9f, 0.3f, 0.3f, 0 };
    struct view_input in = make_input(2, 4, 0.5);
    int stage1 = -1;
    in.scores = s;
    CHECK_EQ(choose(VIEW_ATTENTION, &in, kept, &stage1), 4);
    CHECK(kept[0] == 1 && kept[1] == 3 && kept[2] == 4 && kept[3] == 5); /* of equals, the first */
    CHECK_EQ(stage1, 0);
    in.ratio = 0.125; /* 7: all but the NaN */
    CHECK_EQ(choose(VIEW_ATTENTION, &in, kept, NULL), 7);
    CHECK(!holds(kept, 7, 2));
}

/* Sum 20: 0.4 of it is 8, reached by 5 + 3 and not by 5 alone. Three points over the other twelve,
 * which are 0 1 3 4 5 7 ..., are the first, the sixth and the last. */
TEST(specvlm_stage_one_is_minimal)
{
    static const float s[] = { 1, 1, 5, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1 };
    static const int want[] = { 0, 2, 6, 7, 13 };
    struct view_input in = make_input(2, 7, 0.64);
    int c = -1;
    in.scores = s;
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 5);
    CHECK_EQ(c, 2);
    CHECK(!memcmp(kept, want, sizeof want));
    in.lambda = 0.26; /* 5.2 */
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 5);
    CHECK_EQ(c, 2);
    in.lambda = 0.25; /* 5 exactly */
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 5);
    CHECK_EQ(c, 1);
}

TEST(specvlm_stage_one_stays_within_the_budget)
{
    struct view_input in = make_input(16, 5, 0.9); /* 8 of 80 */
    int c = -1, n;
    fill_random();
    in.lambda = 1;
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 8);
    CHECK_EQ(c, 8);
    n = choose(VIEW_ATTENTION, &in, other, NULL);
    CHECK(n == 8 && !memcmp(kept, other, 8 * sizeof *kept));
    in.lambda = 0; /* stage II alone */
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 8);
    CHECK_EQ(c, 0);
    n = choose(VIEW_UNIFORM, &in, other, NULL);
    CHECK(n == 8 && !memcmp(kept, other, 8 * sizeof *kept));
}

/* One token left for stage II: the first that stage I did not take. None: stage I alone. */
TEST(specvlm_with_little_left)
{
    static const float s[] = { 8, 4, 0.5f, 0.5f, 4, 0.5f, 0.5f, 0, 0, 0, 0, 0 };
    struct view_input in = make_input(3, 4, 0.66); /* 4 of 12 */
    int c = -1;
    in.scores = s;
    in.lambda = 0.88; /* 15.84 of 18: three tokens, 16 */
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 4);
    CHECK_EQ(c, 3);
    CHECK(kept[0] == 0 && kept[1] == 1 && kept[2] == 2 && kept[3] == 4);
    in.ratio = 0.75; /* 3 */
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 3);
    CHECK_EQ(c, 3);
    CHECK(kept[0] == 0 && kept[1] == 1 && kept[2] == 4);
    in.ratio = 0; /* all, by either stage */
    in.lambda = 1;
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 12);
    CHECK_EQ(c, 7); /* what got no attention is not needed for all of it */
}

/* What is no number is no attention: the sum is that of the others. */
TEST(specvlm_bears_scores_that_are_no_numbers)
{
    static const float s[] = { NAN, 2, 4, 2, 1, 1, -INFINITY, 0 };
    struct view_input in = make_input(2, 4, 0.5);
    int c = -1;
    in.scores = s;
    in.lambda = 0.5; /* 5 of 10 */
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 4);
    CHECK_EQ(c, 2);
    CHECK(kept[0] == 0 && kept[1] == 1 && kept[2] == 2 && kept[3] == 7);
}

/* Equal scores: stage I takes the first tokens. */
TEST(specvlm_breaks_ties_by_order)
{
    struct view_input in = make_input(4, 5, 0.5); /* 10 of 20; 0.4 of the sum: 8 tokens */
    int c = -1;
    for (int i = 0; i < 20; i++)
        scores[i] = 0.125f;
    in.lambda = 0.4;
    CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 10);
    CHECK_EQ(c, 8);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(kept[i], i);
    CHECK(kept[8] == 8 && kept[9] == 19);
}

/* Stage I against a plain definition: c tokens hold the share, c - 1 do not. */
TEST(specvlm_on_random_scores)
{
    static const double lambdas[] = { 0.05, 0.2, 0.4, 0.5, 0.8, 0.99 };
    fill_random();
    for (int i = 0; i < 1200; i++)
        scores[i] = powf(scores[i], 8);
    for (int l = 0; l < 6; l++) {
        struct view_input in = make_input(12, 100, 0.5), top = in;
        double total = 0, sum[2] = { 0, 0 };
        int c = -1, n;
        in.lambda = lambdas[l];
        CHECK_EQ(choose(VIEW_SPECVLM, &in, kept, &c), 600);
        if (!CHECK_MSG(c > 1 && c <= 600, "lambda %g: %d", lambdas[l], c))
            continue;
        for (int i = 0; i < 1200; i++)
            total += scores[i];
        for (int less = 0; less < 2; less++) {
            top.ratio = 1 - (double)(c - less) / 1200;
            n = choose(VIEW_ATTENTION, &top, other, NULL);
            CHECK_EQ(n, c - less);
            for (int i = 0; i < n; i++) {
                sum[less] += scores[other[i]];
                CHECK(holds(kept, 600, other[i]));
            }
        }
        CHECK(sum[1] < lambdas[l] * total);
        CHECK(c == 600 || sum[0] >= lambdas[l] * total * (1 - 1e-12));
    }
}

static void check_refused(enum view_kind kind, const struct view_input *in, const char *word)
{
    struct pv_error err = { 0 };
    int n = -5, stage1 = -5;
    kept[0] = -5;
    CHECK_EQ(view_choose(kind, in, kept, &n, &stage1, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, word) != NULL, "\"%s\" has no \"%s\"", err.text, word);
    CHECK(n == -5 && stage1 == -5 && kept[0] == -5);
}

TEST(what_is_missing_is_said)
{
    for (int k = 0; view_name((enum view_kind)k); k++) {
        enum view_kind kind = (enum view_kind)k;
        struct view_input in = make_input(4, 4, 0.5);
        bool s = view_wants_scores(kind), f = view_wants_features(kind);
        if (kind < VIEW_COUNT) { /* a view that is added later may need anything */
            CHECK_EQ(s, kind >= VIEW_ATTENTION);
            CHECK_EQ(f, kind == VIEW_HOLISTIC);
        }
        in.scores = NULL;
        if (s)
            check_refused(kind, &in, "needs a score");
        in.features = NULL;
        if (!s && !f)
            choose(kind, &in, kept, NULL);
        in.scores = scores;
        if (f)
            check_refused(kind, &in, "needs the features");
        in.features = features;
        in.width = 0;
        if (f)
            check_refused(kind, &in, "needs the features");
    }
}

TEST(rows_are_added_once)
{
    static const struct view again = { .info = { .name = "specvlm" } };
    static struct view many[VIEWS_MOST_ADDED];
    static char names[VIEWS_MOST_ADDED][8];
    int n = count_views(), room = VIEW_COUNT + VIEWS_MOST_ADDED - n;
    CHECK(!views_add(&again, 1));
    CHECK(!lab_rows_add());
    CHECK_EQ(count_views(), n);
    for (int i = 0; i < VIEWS_MOST_ADDED; i++) {
        snprintf(names[i], sizeof names[i], "more%d", i);
        many[i] = *view_find(VIEW_UNIFORM);
        many[i].info.name = names[i];
    }
    CHECK(!views_add(many, room + 1));
    CHECK_EQ(count_views(), n + room);
    CHECK_EQ(view_named("more0"), n);
}

TEST(nonsense_is_refused)
{
    static const double bad[] = { -0.1, 1.1, NAN };
    struct view_input in = make_input(4, 4, 0.5);
    for (int i = 0; i < 3; i++) {
        struct view_input wrong = in;
        wrong.ratio = bad[i];
        check_refused(VIEW_UNIFORM, &wrong, "ratio");
        wrong = in;
        wrong.lambda = bad[i];
        check_refused(VIEW_SPECVLM, &wrong, "lambda");
        CHECK_EQ(choose(VIEW_UNIFORM, &wrong, kept, NULL), 8); /* which has none */
    }
    check_refused(VIEW_UNKNOWN, &in, "unknown view");
    in.n_frames = -1;
    check_refused(VIEW_FULL, &in, "-1 frames");
    in.n_frames = in.frame_tokens = 100000;
    check_refused(VIEW_FULL, &in, "100000 frames");
}

TEST(without_memory_nothing_is_written)
{
    size_t before = mem_bytes();
    int failures = 0;
    fill_random();
    for (int k = 0; view_name((enum view_kind)k); k++)
        for (uint64_t a = 1; a <= 5; a++) {
            struct view_input in = make_input(9, 7, 0.75);
            struct pv_error err = { 0 };
            int n = -5;
            enum pv_status s;
            kept[0] = -5;
            mem_fail_at(a);
            s = view_choose((enum view_kind)k, &in, kept, &n, NULL, &err);
            mem_fail_at(0);
            CHECK(s == PV_OK || s == PV_E_NOMEM);
            CHECK(!s || (n == -5 && kept[0] == -5 && err.text[0]));
            failures += s == PV_E_NOMEM;
        }
    CHECK_EQ(mem_bytes(), before);
    CHECK(failures >= 6);
}

int main(int argc, char **argv)
{
    if (!lab_rows_add())
        return 1;
    return test_main(argc, argv);
}
