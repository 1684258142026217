/* Resizing against Pillow's bits and torchvision's floats (tests/golden/pixels), and by itself:
 * constants, copies, mirrors, extreme sizes, failures. Sizes against transformers' smart_resize. */
#include "golden/pixels.h"
#include "test.h"

#include "base/mem.h"
#include "video/resize.h"

/* NULL after a failed check; free it. */
static uint8_t *resized(enum resize_kind kind, const uint8_t *in, int h, int w, int out_h,
                        int out_w)
{
    struct pv_error err = { 0 };
    struct resizer *r = NULL;
    uint8_t *out;

    if (!CHECK_MSG(!resizer_open(&r, kind, h, w, out_h, out_w, &err), "%s", err.text))
        return NULL;
    out = malloc((size_t)out_h * (size_t)out_w * 3);
    mem_guard_begin();
    if (out)
        resizer_run(r, out, in);
    mem_guard_end();
    resizer_close(&r);
    CHECK(!r);
    return out;
}

static const struct golden_entry *numbered(const struct golden *g, const char *name, int k)
{
    char full[32];
    snprintf(full, sizeof full, "%s.%d", name, k);
    return golden_find(g, full);
}

/* The largest difference between pixels and a stored result; *n_differ counts. */
static int largest_difference(const uint8_t *got, const struct golden_entry *want, int *n_differ)
{
    int largest = 0;
    for (int i = 0; i < want->rows * want->cols; i++) {
        int d = abs((int)got[i] - (int)want->i[i]);
        largest = d > largest ? d : largest;
        *n_differ += d > 0;
    }
    return largest;
}

TEST(pillow)
{
    struct golden *g = pixels_golden();
    if (!CHECK(g))
        return;
    const struct golden_entry *cases = golden_find(g, "resize.pillow");
    for (int k = 0; CHECK(cases) && k < cases->rows; k++) {
        const int32_t *c = golden_row_i(cases, k);
        uint8_t *in = pixels_make(c[0], (uint32_t)c[1], c[2], c[3]);
        uint8_t *out = resized(RESIZE_PILLOW, in, c[2], c[3], c[4], c[5]);
        const struct golden_entry *whole = numbered(g, "pillow", k);
        int n = 0;
        if (CHECK(out) && whole)
            CHECK_MSG(largest_difference(out, whole, &n) == 0, "case %d: %d values differ", k, n);
        CHECK_MSG(out && pixels_hash(out, (size_t)c[4] * (size_t)c[5] * 3) == c[6],
                  "case %d: %dx%d to %dx%d is not Pillow's", k, c[3], c[2], c[5], c[4]);
        free(in);
        free(out);
    }
    golden_close(&g);
}

TEST(torch_float)
{
    struct golden *g = pixels_golden();
    int differ = 0, total = 0;
    if (!CHECK(g))
        return;
    const struct golden_entry *cases = golden_find(g, "resize.float");
    for (int k = 0; CHECK(cases) && k < cases->rows; k++) {
        const int32_t *c = golden_row_i(cases, k);
        const struct golden_entry *want = numbered(g, "float", k);
        uint8_t *in = pixels_make(c[0], (uint32_t)c[1], c[2], c[3]);
        uint8_t *out = resized(RESIZE_FLOAT, in, c[2], c[3], c[4], c[5]);
        if (CHECK(want && out) && CHECK_EQ(want->cols, c[5] * 3)) {
            CHECK_MSG(largest_difference(out, want, &differ) <= 1, "case %d", k);
            total += want->rows * want->cols;
        }
        free(in);
        free(out);
    }
    /* Only sums that fall on a half may be rounded otherwise. */
    CHECK_MSG(differ * 1000 <= total, "%d of %d values differ", differ, total);
    golden_close(&g);
}

static const enum resize_kind kinds[] = { RESIZE_PILLOW, RESIZE_FLOAT };
static const int sizes[][4] = {
    { 1, 1, 1, 1 },   { 1, 1, 9, 7 },     { 40, 30, 9, 7 },     { 9, 7, 40, 30 },
    { 9, 40, 30, 7 }, { 40, 9, 7, 30 },   { 90, 8, 9, 8 },      { 8, 90, 8, 9 },
    { 200, 3, 1, 1 }, { 3, 300, 64, 1 },  { 65535, 1, 1, 1 },   { 1, 65535, 1, 1 },
    { 1, 1, 3, 999 }, { 1, 2, 1, 65535 }, { 65535, 2, 384, 2 }, { 2, 1, 65535, 1 },
};
enum { N_KINDS = 2, N_SIZES = sizeof sizes / sizeof *sizes };

TEST(constant_stays_constant)
{
    static const uint8_t colours[][3] = { { 0, 0, 0 }, { 255, 255, 255 }, { 3, 128, 254 } };
    for (int k = 0; k < N_KINDS * N_SIZES * 3; k++) {
        const int *s = sizes[k / 6];
        const uint8_t *colour = colours[k / 2 % 3];
        size_t n_in = (size_t)s[0] * (size_t)s[1] * 3, n_out = (size_t)s[2] * (size_t)s[3] * 3;
        uint8_t *in = malloc(n_in), *out;
        for (size_t i = 0; i < n_in; i++)
            in[i] = colour[i % 3];
        out = resized(kinds[k % 2], in, s[0], s[1], s[2], s[3]);
        size_t bad = 0;
        for (size_t i = 0; out && i < n_out; i++)
            bad += out[i] != colour[i % 3];
        CHECK_MSG(out && bad == 0, "kind %d, %dx%d to %dx%d: %zu of %zu", k % 2, s[1], s[0], s[3],
                  s[2], bad, n_out);
        free(in);
        free(out);
    }
}

/* Two pixels become one, their mean: a half goes to the even side, once, at the end. */
TEST(float_rounds_half_to_even)
{
    static const uint8_t in[4][6] = { { 0, 1, 254, 1, 2, 255 },
                                      { 2, 3, 4, 3, 4, 5 },
                                      { 0, 255, 9, 0, 255, 9 },
                                      { 0, 0, 7, 1, 3, 0 } };
    static const uint8_t want[4][3] = { { 0, 2, 254 }, { 2, 4, 4 }, { 0, 255, 9 }, { 0, 2, 4 } };
    for (int k = 0; k < 4; k++) {
        uint8_t *wide = resized(RESIZE_FLOAT, in[k], 1, 2, 1, 1);
        uint8_t *tall = resized(RESIZE_FLOAT, in[k], 2, 1, 1, 1);
        CHECK_MSG(wide && !memcmp(wide, want[k], 3), "case %d, wide", k);
        CHECK_MSG(tall && !memcmp(tall, want[k], 3), "case %d, tall", k);
        free(wide);
        free(tall);
    }
}

TEST(same_size_copies)
{
    for (int k = 0; k < N_KINDS; k++) {
        uint8_t *in = pixels_make(PIXELS_NOISE, 1, 31, 45);
        uint8_t *out = resized(kinds[k], in, 31, 45, 31, 45);
        CHECK(out && !memcmp(in, out, 31 * 45 * 3));
        free(in);
        free(out);
    }
}

/* An unchanged side is left alone: each row depends on itself only. */
TEST(unchanged_side)
{
    for (int k = 0; k < N_KINDS; k++) {
        uint8_t *in = pixels_make(PIXELS_NOISE, 2, 20, 30);
        uint8_t *all = resized(kinds[k], in, 20, 30, 20, 11);
        uint8_t *one = resized(kinds[k], in + 7 * 30 * 3, 1, 30, 1, 11);
        CHECK(all && one && !memcmp(all + 7 * 11 * 3, one, 11 * 3));
        free(in);
        free(all);
        free(one);
    }
}

/* Weights of mirrored outputs are mirrored up to their last bit. */
TEST(mirror)
{
    enum { H = 37, W = 53, OH = 16, OW = 24 };
    for (int k = 0; k < N_KINDS; k++) {
        uint8_t *in = pixels_make(PIXELS_HARD, 3, H, W), *turned = malloc(H * W * 3);
        for (int i = 0; i < H * W; i++)
            memcpy(turned + (size_t)i * 3, in + (size_t)(H * W - 1 - i) * 3, 3);
        uint8_t *a = resized(kinds[k], in, H, W, OH, OW);
        uint8_t *b = resized(kinds[k], turned, H, W, OH, OW);
        int largest = 0;
        for (int i = 0; a && b && i < OH * OW; i++) {
            for (int c = 0; c < 3; c++) {
                int d = abs(a[i * 3 + c] - b[(OH * OW - 1 - i) * 3 + c]);
                largest = d > largest ? d : largest;
            }
        }
        CHECK_MSG(largest <= 1, "kind %d: %d", k, largest);
        free(in);
        free(turned);
        free(a);
        free(b);
    }
}

/* Both kinds are the same kernel: where nothing overshoots they differ by rounding only. */
TEST(kinds_agree)
{
    uint8_t *in = pixels_make(PIXELS_SOFT, 4, 120, 200);
    uint8_t *a = resized(RESIZE_PILLOW, in, 120, 200, 56, 84);
    uint8_t *b = resized(RESIZE_FLOAT, in, 120, 200, 56, 84);
    int largest = 0;
    for (int i = 0; a && b && i < 56 * 84 * 3; i++)
        largest = abs(a[i] - b[i]) > largest ? abs(a[i] - b[i]) : largest;
    CHECK_MSG(largest <= 1, "%d", largest);
    free(in);
    free(a);
    free(b);
}

struct asked {
    const uint8_t *rgb;
    uint8_t row[50 * 3]; /* overwritten each time: nobody may hold on to it */
    int next;
    bool in_order;
};

static const uint8_t *give_row(void *user, int y)
{
    struct asked *a = user;
    a->in_order = a->in_order && y == a->next;
    a->next = y + 1;
    memcpy(a->row, a->rgb + (size_t)y * sizeof a->row, sizeof a->row);
    return a->row;
}

TEST(rows_one_by_one)
{
    static const int out_sizes[][2] = { { 20, 30 }, { 9, 50 }, { 70, 12 }, { 61, 50 } };
    uint8_t *in = pixels_make(PIXELS_NOISE, 5, 61, 50);
    for (int k = 0; k < N_KINDS * 4; k++) {
        const int *s = out_sizes[k / 2];
        uint8_t *want = resized(kinds[k % 2], in, 61, 50, s[0], s[1]);
        uint8_t *got = calloc((size_t)s[0] * (size_t)s[1], 3);
        struct asked a = { .rgb = in, .in_order = true };
        struct resizer *r = NULL;
        if (CHECK(got && want && !resizer_open(&r, kinds[k % 2], 61, 50, s[0], s[1], NULL))) {
            resizer_run_rows(r, got, give_row, &a);
            CHECK(a.in_order);
            CHECK_EQ(a.next, 61);
            CHECK(!memcmp(got, want, (size_t)s[0] * (size_t)s[1] * 3));
        }
        resizer_close(&r);
        free(want);
        free(got);
    }
    free(in);
}

TEST(bad_sides)
{
    static const int bad[][4] = { { 0, 1, 1, 1 },     { 1, -3, 1, 1 },     { 1, 1, 0, 1 },
                                  { 1, 1, 1, -1 },    { 65536, 1, 1, 1 },  { 1, 65536, 1, 1 },
                                  { 1, 1, 65536, 1 }, { 1, 1, 1, 1 << 30 } };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct pv_error err = { 0 };
        struct resizer *r = NULL;
        const int *s = bad[k];
        CHECK_EQ(resizer_open(&r, RESIZE_PILLOW, s[0], s[1], s[2], s[3], &err), PV_E_ARG);
        CHECK(!r && err.text[0]);
    }
}

TEST(out_of_memory)
{
    for (int k = 0; k < N_KINDS; k++) {
        enum pv_status s = PV_E_NOMEM;
        for (uint64_t at = 1; s && at < 50; at++) {
            struct pv_error err = { 0 };
            struct resizer *r = NULL;
            mem_fail_at(at);
            s = resizer_open(&r, kinds[k], 30, 40, 9, 7, &err);
            mem_fail_at(0);
            CHECK(s ? s == PV_E_NOMEM && !r : r != NULL);
            CHECK(s || at > 5);
            resizer_close(&r);
        }
        CHECK_EQ(s, PV_OK);
    }
}

TEST(smart_resize_golden)
{
    struct golden *g = pixels_golden();
    if (!CHECK(g))
        return;
    const struct golden_entry *cases = golden_find(g, "smart");
    for (int k = 0; CHECK(cases) && k < cases->rows; k++) {
        const int32_t *c = golden_row_i(cases, k);
        struct pv_error err = { 0 };
        int h = -1, w = -1;
        enum pv_status s = smart_resize(&h, &w, c[0], c[1], c[2], c[3], c[4], &err);
        CHECK_MSG(h == c[5] && w == c[6] && (s != PV_OK) == (h < 0),
                  "%dx%d, factor %d, %d to %d pixels: %dx%d, not %dx%d", c[0], c[1], c[2], c[3],
                  c[4], h, w, c[5], c[6]);
    }
    golden_close(&g);
}

TEST(smart_resize_examples)
{
    int h = 0, w = 0;
    CHECK(!smart_resize(&h, &w, 720, 1280, 28, 128 * 784, 768 * 784, NULL));
    CHECK(h == 560 && w == 1008);
    CHECK(!smart_resize(&h, &w, 720, 1280, 28, 3136, 448 * 448, NULL));
    CHECK(h == 336 && w == 588);
    /* 1.5 and 2.5 factors both become 2. */
    CHECK(!smart_resize(&h, &w, 42, 70, 28, 1, 1 << 20, NULL));
    CHECK(h == 56 && w == 56);
    /* Never nothing, even without a lower limit. */
    CHECK(!smart_resize(&h, &w, 5, 300, 28, 0, 1 << 20, NULL));
    CHECK(h == 28 && w == 308);
}

TEST(smart_resize_bad)
{
    struct pv_error err = { 0 };
    int h = 1, w = 2;
    CHECK_EQ(smart_resize(&h, &w, 1, 201, 28, 1, 100, &err), PV_E_ARG);
    CHECK(strstr(err.text, "200"));
    CHECK_EQ(smart_resize(&h, &w, 0, 5, 28, 1, 100, NULL), PV_E_ARG);
    CHECK_EQ(smart_resize(&h, &w, 5, -1, 28, 1, 100, NULL), PV_E_ARG);
    CHECK_EQ(smart_resize(&h, &w, 70000, 70000, 28, 1, 100, NULL), PV_E_ARG);
    CHECK_EQ(smart_resize(&h, &w, 100, 100, 0, 1, 100, NULL), PV_E_ARG);
    CHECK_EQ(smart_resize(&h, &w, 100, 100, 28, 1, 0, NULL), PV_E_ARG);
    CHECK_EQ(smart_resize(&h, &w, 100, 100, 28, INT64_MAX, INT64_MAX, NULL), PV_E_LIMIT);
    CHECK(h == 1 && w == 2);
}

/* What smart_resize of Qwen3-VL's video processor in transformers 5.22 gave; 0: it refused. */
TEST(smart_resize_of_videos)
{
    static const int32_t cases[][8] = {
        { 128, 10, 24, 32, 4096, 300000, 32, 64 },
        { 64, 1435, 29, 32, 131072, 786432, 768, 32 },
        { 5, 614, 2, 28, 131072, 786432, 0, 0 },
        { 5, 1, 1469, 32, 131072, 786432, 0, 0 },
        { 5, 1481, 14, 32, 131072, 786432, 3392, 32 },
        { 2, 25, 5, 32, 65536, 16777216, 416, 96 },
        { 3, 19, 955, 32, 65536, 16777216, 32, 1600 },
        { 3, 16, 964, 28, 65536, 16777216, 28, 1680 },
        { 2, 2732, 24, 28, 4096, 25165824, 3192, 28 },
        { 127, 754, 26, 32, 4096, 300000, 256, 32 },
        { 768, 109, 17, 32, 65536, 16777216, 192, 32 },
        { 7, 517, 21, 32, 4096, 300000, 800, 32 },
        { 7, 249, 1859, 32, 65536, 16777216, 256, 1856 },
        { 2, 480, 36, 32, 4096, 300000, 480, 32 },
        { 5, 2558, 347, 28, 65536, 16777216, 2548, 336 },
        { 7, 2337, 2580, 32, 65536, 16777216, 1472, 1600 },
        { 2, 44, 3446, 32, 65536, 16777216, 32, 3456 },
        { 127, 184, 2132, 32, 65536, 16777216, 96, 1216 },
        { 500, 2481, 1427, 32, 4096, 25165824, 288, 160 },
        { 768, 425, 2904, 32, 131072, 786432, 32, 64 },
        { 9, 239, 506, 28, 65536, 16777216, 252, 504 },
        { 33, 1412, 342, 32, 4096, 25165824, 1408, 352 },
        { 7, 72, 64, 28, 4096, 300000, 84, 56 },
        { 768, 96, 57, 32, 131072, 786432, 32, 32 },
        /* The limits of the checkpoints: 7040, 11648, 11520 and 10752 tokens. */
        { 16, 720, 1280, 32, 4096, 25165824, 704, 1280 },
        { 64, 720, 1280, 32, 4096, 25165824, 448, 832 },
        { 128, 720, 1280, 32, 4096, 25165824, 320, 576 },
        { 768, 720, 1280, 32, 4096, 25165824, 128, 224 },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int32_t *c = cases[k];
        int h = 0, w = 0;
        enum pv_status s = smart_resize_video(&h, &w, c[0], c[1], c[2], c[3], c[4], c[5], NULL);
        CHECK_MSG(h == c[6] && w == c[7] && s == (h ? PV_OK : PV_E_ARG),
                  "%d frames of %dx%d: %dx%d, not %dx%d", c[0], c[1], c[2], h, w, c[6], c[7]);
    }
}

TEST(smart_resize_of_bad_videos)
{
    struct pv_error err = { 0 };
    int h = 1, w = 2;
    CHECK_EQ(smart_resize_video(&h, &w, 1, 64, 64, 32, 1, 1 << 20, &err), PV_E_ARG);
    CHECK(strstr(err.text, "1 frames"));
    CHECK_EQ(smart_resize_video(&h, &w, INT32_MAX, 64, 64, 32, 1, 1 << 20, NULL), PV_E_ARG);
    CHECK_EQ(smart_resize_video(&h, &w, 2, 0, 64, 32, 1, 1 << 20, NULL), PV_E_ARG);
    CHECK_EQ(smart_resize_video(&h, &w, 2, 64, 64, 0, 1, 1 << 20, NULL), PV_E_ARG);
    CHECK_EQ(smart_resize_video(&h, &w, 2, 64, 64, 32, INT64_MAX, INT64_MAX, NULL), PV_E_LIMIT);
    CHECK(h == 1 && w == 2);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
