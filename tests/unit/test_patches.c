/* Patch rows against transformers' processors (tests/golden/pixels), and their order against the
 * definition. */
#include "golden/pixels.h"
#include "test.h"

#include "video/patches.h"

#include <math.h>

static const struct patch_plan clip_plan = {
    .patch = 4,
    .temporal = 2,
    .merge = 2,
    .mean = { 0.48145466f, 0.4578275f, 0.40821073f },
    .std = { 0.26862954f, 0.26130258f, 0.27577711f },
};

static void check_golden(const char *name, const struct patch_plan *p, const uint8_t *const *frames,
                         int height, int width)
{
    struct golden *g = pixels_golden();
    if (!CHECK(g))
        return;
    const struct golden_entry *want = golden_find(g, name);
    int n = height / p->patch * (width / p->patch), bad = 0;
    if (CHECK(want) && CHECK_EQ(want->rows, n) && CHECK_EQ(want->cols, patch_row_size(p))) {
        float *got = malloc((size_t)n * (size_t)want->cols * sizeof *got);
        patches_make(got, p, frames, height, width);
        for (int i = 0; i < n * want->cols; i++)
            bad += !(fabsf(got[i] - want->f[i]) <= 1e-6f * fmaxf(fabsf(want->f[i]), 1e-3f));
        CHECK_MSG(bad == 0, "%s: %d of %d values differ", name, bad, n * want->cols);
        free(got);
    }
    golden_close(&g);
}

TEST(qwen_video)
{
    uint8_t *a = pixels_make(PIXELS_NOISE, 1, 8, 16), *b = pixels_make(PIXELS_NOISE, 2, 8, 16);
    check_golden("patches.video", &clip_plan, (const uint8_t *const[]){ a, b }, 8, 16);
    free(a);
    free(b);
}

TEST(qwen_image)
{
    uint8_t *a = pixels_make(PIXELS_NOISE, 3, 8, 16);
    check_golden("patches.image", &clip_plan, (const uint8_t *const[]){ a, a }, 8, 16);
    free(a);
}

/* 9 x 15 pixels: the last row and the last three columns are in no patch. */
TEST(llava)
{
    struct patch_plan p = clip_plan;
    uint8_t *a = pixels_make(PIXELS_NOISE, 4, 9, 15);
    p.temporal = p.merge = 1;
    check_golden("patches.llava", &p, (const uint8_t *const[]){ a }, 9, 15);
    free(a);
}

/* Each value is where the header says, with a plan that leaves bytes as they are. */
TEST(order)
{
    static const int shapes[][5] = { /* patch, temporal, merge, height, width */
                                     { 14, 2, 2, 56, 84 },
                                     { 14, 1, 1, 30, 47 },
                                     { 3, 2, 1, 10, 7 },
                                     { 1, 1, 3, 3, 6 }
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int *d = shapes[s];
        struct patch_plan p = {
            d[0], d[1], d[2], { 0, 0, 0 }, { 1 / 255.0f, 1 / 255.0f, 1 / 255.0f }
        };
        int rows = d[3] / p.patch, cols = d[4] / p.patch, row_size = patch_row_size(&p), bad = 0;
        size_t n = (size_t)rows * (size_t)cols * (size_t)row_size;
        uint8_t *a = pixels_make(PIXELS_NOISE, 5, d[3], d[4]);
        uint8_t *b = pixels_make(PIXELS_NOISE, 6, d[3], d[4]);
        const uint8_t *frames[2] = { a, b };
        float *out = malloc((n + 1) * sizeof *out);
        out[n] = -7;
        patches_make(out, &p, frames, d[3], d[4]);
        CHECK_EQ(out[n], -7);
        for (int r = 0; r < rows * cols; r++) {
            int m = p.merge, block = r / (m * m), in = r % (m * m);
            int y = block / (cols / m) * m + in / m, x = block % (cols / m) * m + in % m;
            for (int i = 0; i < row_size; i++) {
                int px = i % p.patch, py = i / p.patch % p.patch, t = i / (p.patch * p.patch);
                int at = ((y * p.patch + py) * d[4] + x * p.patch + px) * 3 + t / p.temporal;
                bad += fabsf(out[(size_t)r * (size_t)row_size + (size_t)i] -
                             frames[t % p.temporal][at]) > 1e-3f;
            }
        }
        CHECK_MSG(bad == 0, "shape %zu: %d values are elsewhere", s, bad);
        free(a);
        free(b);
        free(out);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
