/* Frame choice against lists that numpy's linspace and arange and torch's linspace gave, and the
 * number of frames that qwen-vl-utils computes. */
#include "video/choose.h"

#include "../test.h"
#include "base/mem.h"

#include <math.h>

enum { LIMIT = 1024 };

static enum pv_status choose(struct choice *out, struct choose_params p, int64_t total, double fps)
{
    struct pv_error err = { 0 };
    enum pv_status s = choose_frames(out, &p, total, fps, LIMIT, &err);

    CHECK(s ? err.text[0] != 0 && err.code == s : err.text[0] == 0);
    return s;
}

static void check_list(struct choose_params p, int64_t total, double fps, int n,
                       const int64_t *expected)
{
    struct choice c = { 0 };

    if (!CHECK(!choose(&c, p, total, fps)))
        return;
    CHECK_EQ(c.n, n);
    for (int i = 0; i < n && i < c.n; i++)
        CHECK_MSG(c.index[i] == expected[i], "of %lld: place %d has %lld, not %lld",
                  (long long)total, i, (long long)c.index[i], (long long)expected[i]);
    CHECK(fabs(c.sample_fps - (double)n / (double)total * fps) < 1e-12 || p.start > 0 || p.end > 0);
    choice_clear(&c);
    CHECK(c.index == NULL && c.n == 0);
}

/* numpy.unique(numpy.linspace(0, total - 1, n, dtype=int)), n = round(seconds / 0.1) within bounds:
 * Python rounds halves to the even number. */
TEST(no_frame_twice)
{
    static const int64_t of10[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    static const int64_t of50[] = { 0,  2,  5,  7,  10, 12, 15, 18, 20, 23,
                                    25, 28, 30, 33, 36, 38, 41, 43, 46, 49 };
    struct choose_params p = {
        .rule = CHOOSE_ONCE, .fps = 10, .min_frames = 16, .max_frames = 768
    };
    struct choice c = { 0 };

    check_list(p, 10, 20, 10, of10);
    check_list(p, 50, 25, 20, of50);
    if (CHECK(!choose(&c, p, 47, 20))) /* 2.35 s: 24 */
        CHECK(c.n == 24 && c.index[1] == 2 && c.index[23] == 46);
    choice_clear(&c);
    p.min_frames = 1;
    if (CHECK(!choose(&c, p, 125, 100))) /* 1.25 s: 12 */
        CHECK_EQ(c.n, 12);
    choice_clear(&c);
    if (CHECK(!choose(&c, p, 3000, 30)))
        CHECK_EQ(c.n, 768);
    choice_clear(&c);
}

TEST(linspace)
{
    static const int64_t of100[] = { 0, 14, 28, 42, 56, 70, 84, 99 };
    static const int64_t of720[] = { 0,   23,  46,  69,  92,  115, 139, 162, 185, 208, 231,
                                     255, 278, 301, 324, 347, 371, 394, 417, 440, 463, 487,
                                     510, 533, 556, 579, 603, 626, 649, 672, 695, 719 };
    static const int64_t of5[] = { 0, 0, 1, 1, 2, 2, 3, 4 };
    static const int64_t of1829[] = { 0, 304, 609, 914, 1218, 1523, 1828 };
    static const int64_t of1[] = { 0, 0, 0 };
    struct choose_params p = { .rule = CHOOSE_LINSPACE };

    p.frames = 8;
    check_list(p, 100, 25, 8, of100);
    check_list(p, 5, 25, 8, of5);
    p.frames = 32;
    check_list(p, 720, 24, 32, of720);
    p.frames = 7;
    check_list(p, 1829, 30, 7, of1829);
    p.frames = 3;
    check_list(p, 1, 30, 3, of1);
    p.frames = 1;
    check_list(p, 100, 25, 1, of1);
}

TEST(arange)
{
    static const int64_t of100[] = { 0, 12, 25, 37, 50, 62, 75, 87 };
    static const int64_t of5[] = { 0, 0, 1, 1, 2, 3, 3, 4 };
    static const int64_t of166[] = { 0, 15, 30, 45, 60, 75, 90, 105, 120, 135, 150 };
    struct choose_params p = { .rule = CHOOSE_ARANGE, .frames = 8 };

    check_list(p, 100, 25, 8, of100);
    check_list(p, 5, 25, 8, of5);
    p.frames = 11;
    check_list(p, 166, 30, 11, of166);
}

TEST(qwen_by_fps)
{
    static const int64_t of166[] = { 0, 18, 37, 55, 73, 92, 110, 128, 147, 165 };
    static const int64_t of31[] = { 0, 10, 20, 30 };
    static const int64_t of5[] = { 0, 1, 3, 4 };
    static const int64_t of249[] = { 0,   17,  33,  50,  66,  83,  99,  116,
                                     132, 149, 165, 182, 198, 215, 231, 248 };
    struct choose_params p = { .rule = CHOOSE_QWEN, .fps = 2, .min_frames = 4, .max_frames = 768 };
    struct choice c = { 0 };
    int64_t sum = 0;

    check_list(p, 166, 30, 10, of166);
    check_list(p, 31, 30, 4, of31);
    check_list(p, 5, 25, 4, of5);
    check_list(p, 249, 30000.0 / 1001, 16, of249);
    if (CHECK(!choose(&c, p, 720, 24))) {
        CHECK_EQ(c.n, 60);
        for (int i = 0; i < c.n; i++)
            sum += c.index[i];
        CHECK_EQ(sum, 21570);
        CHECK_EQ(c.sample_fps, 2.0);
        choice_clear(&c);
    }
    if (CHECK(!choose(&c, p, 100000, 25))) { /* the bound */
        CHECK_EQ(c.n, 768);
        CHECK_EQ(c.index[1], 130);
        CHECK_EQ(c.index[766], 99869);
        choice_clear(&c);
    }
    p.min_frames = 5; /* odd bounds go inwards */
    p.max_frames = 7;
    for (int total = 30; total <= 3000; total += 2970)
        if (CHECK(!choose(&c, p, total, 30))) {
            CHECK_EQ(c.n, 6);
            choice_clear(&c);
        }
}

TEST(qwen_by_number)
{
    static const int64_t four[] = { 0, 33, 66, 99 };
    static const int64_t six[] = { 0, 20, 40, 59, 79, 99 };
    static const int64_t eight[] = { 0, 14, 28, 42, 57, 71, 85, 99 };
    struct choose_params p = { .rule = CHOOSE_QWEN };
    struct choice c = { 0 };

    p.frames = 3; /* 1.5 pairs are 2, 2.5 pairs as well: half to even */
    check_list(p, 100, 25, 4, four);
    p.frames = 5;
    check_list(p, 100, 25, 4, four);
    p.frames = 6;
    check_list(p, 100, 25, 6, six);
    p.frames = 7;
    check_list(p, 100, 25, 8, eight);
    p.frames = 1;
    CHECK_EQ(choose(&c, p, 100, 25), PV_E_ARG);
    p.frames = 102; /* more than there are */
    CHECK_EQ(choose(&c, p, 100, 25), PV_E_ARG);
    p.frames = 100;
    if (CHECK(!choose(&c, p, 100, 25))) {
        for (int i = 0; i < 100; i++)
            CHECK_EQ(c.index[i], i);
        choice_clear(&c);
    }
    CHECK(c.index == NULL);
}

/* What Qwen3VLVideoProcessor.sample_frames of transformers 5.22 gave. */
TEST(qwen3)
{
    static const int64_t of300[] = { 0,   16,  31,  47,  63,  79,  94,  110, 126, 142,
                                     157, 173, 189, 205, 220, 236, 252, 268, 283, 299 };
    static const int64_t of77[] = { 0, 15, 30, 46, 61, 76 }, of40[] = { 0, 13, 26, 39 };
    static const int64_t of3[] = { 0, 1, 2 }, of90[] = { 0, 15, 30, 44, 59, 74, 89 };
    static const int64_t of18[] = { 0, 6, 11, 17 };
    static const int64_t of11[] = { 0, 1, 2, 3, 4, 6, 7, 8, 9, 10 };
    static const int64_t of100[] = { 0, 14, 28, 42, 57, 71, 85, 99 };
    static const int64_t of5[] = { 0, 1, 1, 2, 2, 3, 3, 4 }, of97[] = { 0, 24, 48, 72, 96 };
    struct choose_params p = { .rule = CHOOSE_QWEN3, .fps = 2, .min_frames = 4, .max_frames = 768 };
    struct choice c = { 0 };
    int64_t sum = 0, weighted = 0;

    check_list(p, 300, 30, 20, of300);
    check_list(p, 77, 25, 6, of77);
    check_list(p, 40, 29.97, 4, of40);
    check_list(p, 3, 30, 3, of3); /* fewer than 4: all */
    check_list(p, 90, 24000.0 / 1001, 7, of90);
    check_list(p, 18, 9, 4, of18);
    check_list(p, 11, 2.2, 10, of11); /* 4.5 becomes 4, 5.5 becomes 6 */
    if (CHECK(!choose(&c, p, 100000, 30))) {
        for (int i = 0; i < c.n; i++) {
            sum += c.index[i];
            weighted += (i + 1) * c.index[i];
        }
        CHECK(c.n == 768 && sum == 38399616 && weighted % 1000003 == 143316);
        choice_clear(&c);
    }
    p.fps = 1.5;
    check_list(p, 97, 25, 5, of97);
    p.frames = 8;
    check_list(p, 100, 25, 8, of100);
    check_list(p, 5, 25, 8, of5);
}

TEST(clip)
{
    static const int64_t qwen[] = { 121, 135, 149, 162, 176, 190, 204,
                                    217, 231, 245, 259, 272, 286, 300 };
    static const int64_t even[] = { 37, 40, 43, 46 };
    static const int64_t arange[] = { 37, 39, 42, 44 };
    struct choose_params p = {
        .rule = CHOOSE_QWEN, .fps = 2, .min_frames = 4, .start = 5.03, .end = 12.5
    };
    struct choice c = { 0 };

    check_list(p, 720, 24, 14, qwen);
    p = (struct choose_params){ .rule = CHOOSE_LINSPACE, .frames = 4, .start = 3.7, .end = 4.6 };
    check_list(p, 100, 10, 4, even);
    p.rule = CHOOSE_ARANGE;
    check_list(p, 100, 10, 4, arange);
    /* To the end, by word and by excess; sample_fps is that of the part. */
    for (int i = 0; i < 2; i++) {
        p = (struct choose_params){ .frames = 2, .start = 9, .end = i * 1e9 };
        if (!CHECK(!choose(&c, p, 100, 10)))
            continue;
        CHECK_EQ(c.index[0], 90);
        CHECK_EQ(c.index[1], 99);
        CHECK_EQ(c.sample_fps, 2.0);
        choice_clear(&c);
    }
}

TEST(by_fps_elsewhere)
{
    struct choose_params p = { .rule = CHOOSE_LINSPACE, .fps = 1.5, .max_frames = 1000 };
    struct choice c = { 0 };

    if (CHECK(!choose(&c, p, 99, 10))) { /* 9.9 s */
        CHECK_EQ(c.n, 14);
        choice_clear(&c);
    }
    p.fps = 1e-9; /* never none */
    if (CHECK(!choose(&c, p, 99, 10))) {
        CHECK_EQ(c.n, 1);
        choice_clear(&c);
    }
    p.fps = 1e300; /* never more than there are */
    if (CHECK(!choose(&c, p, 99, 10))) {
        CHECK_EQ(c.n, 99);
        choice_clear(&c);
    }
}

TEST(still_picture)
{
    struct choose_params p = { .rule = CHOOSE_QWEN, .frames = 64, .start = 5, .end = 1 };
    struct choice c = { 0 };

    if (!CHECK(!choose(&c, p, 1, 0)))
        return;
    CHECK_EQ(c.n, 1);
    CHECK_EQ(c.index[0], 0);
    CHECK_EQ(c.sample_fps, 0.0);
    choice_clear(&c);
}

TEST(refusals)
{
    static const struct {
        struct choose_params p;
        enum pv_status status;
    } cases[] = {
        { { .frames = -1 }, PV_E_ARG },
        { { .frames = 0, .fps = 0 }, PV_E_ARG },
        { { .fps = -2 }, PV_E_ARG },
        { { .fps = NAN }, PV_E_ARG },
        { { .fps = INFINITY }, PV_E_ARG },
        { { .fps = 2, .min_frames = 8, .max_frames = 4 }, PV_E_ARG },
        { { .fps = 2, .min_frames = -8 }, PV_E_ARG },
        { { .frames = 4, .start = NAN }, PV_E_ARG },
        { { .frames = 4, .start = -1 }, PV_E_ARG },
        { { .frames = 4, .end = NAN }, PV_E_ARG },
        { { .frames = 4, .end = -1 }, PV_E_ARG },
        { { .frames = 4, .start = 10 }, PV_E_ARG }, /* the video has 10 s */
        { { .frames = 4, .start = INFINITY }, PV_E_ARG },
        { { .frames = 4, .start = 3, .end = 3 }, PV_E_ARG },
        { { .frames = 4, .start = 3, .end = 2 }, PV_E_ARG },
        { { .frames = 4, .start = 3.01, .end = 3.09 }, PV_E_ARG }, /* between two frames */
        { { .frames = LIMIT + 1 }, PV_E_LIMIT },
        { { .rule = CHOOSE_ARANGE, .frames = INT32_MAX }, PV_E_LIMIT },
    };
    struct choose_params p = { .frames = 4 };
    struct choice c = { .n = 77 };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_MSG(choose(&c, cases[i].p, 100, 10) == cases[i].status, "case %d", (int)i);
    p.fps = 200;
    p.frames = 0;
    CHECK_EQ(choose(&c, p, 100000, 10), PV_E_LIMIT);
    CHECK_EQ(choose(&c, p, 0, 10), PV_E_ARG);
    CHECK_EQ(choose(&c, p, 100, NAN), PV_E_ARG);
    CHECK_EQ(choose(&c, p, 100, -1), PV_E_ARG);
    mem_fail_at(1);
    p.frames = 4;
    CHECK_EQ(choose(&c, p, 100, 10), PV_E_NOMEM);
    mem_fail_at(0);
    CHECK_EQ(c.n, 77); /* outputs are untouched */
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
