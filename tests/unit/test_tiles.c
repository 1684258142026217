/* Tiles and squares against transformers' LLaVA-OneVision processor on Pillow
 * (tests/golden/pixels), and by themselves: borders, order, thin pictures, failures. */
#include "golden/pixels.h"
#include "test.h"

#include "base/mem.h"
#include "video/resize.h"
#include "video/tiles.h"

enum { MAX_GRID = 36 };

static const float half[3] = { 0.5f, 0.5f, 0.5f };

struct grid {
    int size[MAX_GRID][2];
    int n;
};

/* side * 1..rows by side * 1..cols. */
static struct grid grid_make(int side, int rows, int cols)
{
    struct grid g = { .n = rows * cols };
    for (int i = 0; i < g.n; i++) {
        g.size[i][0] = side * (i / cols + 1);
        g.size[i][1] = side * (i % cols + 1);
    }
    return g;
}

static struct tiling choose(const struct grid *g, int height, int width, int side)
{
    return tiling_choose(height, width, (const int(*)[2])g->size, g->n, side);
}

TEST(tiling_golden)
{
    struct golden *g = pixels_golden();
    struct grid grid = grid_make(384, 6, 6);
    if (!CHECK(g))
        return;
    const struct golden_entry *cases = golden_find(g, "tiling");
    for (int k = 0; CHECK(cases) && k < cases->rows; k++) {
        const int32_t *c = golden_row_i(cases, k);
        struct tiling t = choose(&grid, c[0], c[1], 384);
        CHECK_MSG(t.rows == c[2] && t.cols == c[3] && t.inner_height == c[4] &&
                      t.inner_width == c[5],
                  "%dx%d: %dx%d tiles, inner %dx%d, not %dx%d, %dx%d", c[0], c[1], t.rows, t.cols,
                  t.inner_height, t.inner_width, c[2], c[3], c[4], c[5]);
    }
    golden_close(&g);
}

TEST(views_golden)
{
    struct golden *g = pixels_golden();
    if (!CHECK(g))
        return;
    const struct golden_entry *cases = golden_find(g, "views");
    for (int k = 0; CHECK(cases) && k < cases->rows; k++) {
        const int32_t *c = golden_row_i(cases, k);
        int side = c[4];
        struct grid grid = grid_make(side, 4, 3);
        uint8_t *rgb = pixels_make(c[0], (uint32_t)c[1], c[2], c[3]);
        struct image picture = { c[3], c[2], rgb };
        struct tiling t = choose(&grid, c[2], c[3], side);
        size_t view = (size_t)side * (size_t)side * 3, n = view * (size_t)(1 + t.rows * t.cols);
        uint8_t *out = malloc(n);
        CHECK_EQ(t.rows, c[5]);
        CHECK_EQ(t.cols, c[6]);
        CHECK(!tiles_make(out, &t, &picture, side, NULL));
        CHECK_MSG(pixels_hash(out, n) == c[7], "views of case %d, %dx%d", k, c[3], c[2]);
        CHECK(!square_make(out, &picture, side, half, NULL));
        CHECK_MSG(pixels_hash(out, view) == c[8], "square of case %d, %dx%d", k, c[3], c[2]);
        free(out);
        free(rgb);
    }
    golden_close(&g);
}

/* A picture that fits its grid exactly is only cut: 2 x 2 tiles of a 16 x 16 picture. */
TEST(cutting)
{
    enum { SIDE = 8, VIEW = SIDE * SIDE * 3 };
    uint8_t *rgb = pixels_make(PIXELS_NOISE, 1, 16, 16), out[5 * VIEW], whole[VIEW];
    struct image picture = { 16, 16, rgb };
    struct grid grid = grid_make(SIDE, 3, 3);
    struct tiling t = choose(&grid, 16, 16, SIDE);
    struct resizer *r = NULL;
    int bad = 0;

    CHECK(t.rows == 2 && t.cols == 2 && t.inner_height == 16 && t.inner_width == 16);
    CHECK(!tiles_make(out, &t, &picture, SIDE, NULL));
    for (int i = 0; i < 4 * SIDE * SIDE; i++) {
        int tile = i / (SIDE * SIDE), y = tile / 2 * SIDE + i / SIDE % SIDE;
        int x = tile % 2 * SIDE + i % SIDE;
        bad += memcmp(out + VIEW + i * 3, rgb + (y * 16 + x) * 3, 3) != 0;
    }
    CHECK_EQ(bad, 0);
    if (CHECK(!resizer_open(&r, RESIZE_PILLOW, 16, 16, SIDE, SIDE, NULL)))
        resizer_run(r, whole, rgb);
    CHECK(!memcmp(out, whole, VIEW));
    resizer_close(&r);
    free(rgb);
}

/* White on black: 5 columns of border are 2 on the left and 3 on the right. */
TEST(border)
{
    enum { SIDE = 8, VIEW = SIDE * SIDE * 3 };
    uint8_t rgb[8 * 3 * 3], out[2 * VIEW];
    struct image picture = { 3, 8, rgb };
    struct grid grid = grid_make(SIDE, 1, 1);
    struct tiling t = choose(&grid, 8, 3, SIDE);
    int bad = 0;

    memset(rgb, 255, sizeof rgb);
    CHECK(t.inner_height == 8 && t.inner_width == 3);
    CHECK(!tiles_make(out, &t, &picture, SIDE, NULL));
    for (int i = 0; i < VIEW; i++) {
        int x = i / 3 % SIDE;
        bad += out[i] != 255 || out[VIEW + i] != (x >= 2 && x < 5 ? 255 : 0);
    }
    CHECK_EQ(bad, 0);
}

/* The square has the colour of the mean; the odd row is below. */
TEST(square_colour)
{
    enum { SIDE = 8 };
    static const float means[2][3] = { { 0.48145466f, 0.4578275f, 0.40821073f },
                                       { 0.2f, 0.6f, 0.8f } };
    uint8_t rgb[3 * SIDE * 3] = { 0 }, out[SIDE * SIDE * 3];
    struct image picture = { SIDE, 3, rgb };
    struct golden *g = pixels_golden();
    if (!CHECK(g))
        return;
    const struct golden_entry *fill = golden_find(g, "fill");
    for (int k = 0; CHECK(fill) && k < 2; k++) {
        int bad = 0;
        CHECK(!square_make(out, &picture, SIDE, means[k], NULL));
        for (int i = 0; i < SIDE * SIDE * 3; i++) {
            int y = i / 3 / SIDE;
            bad += out[i] != (y >= 2 && y < 5 ? 0 : golden_row_i(fill, k)[i % 3]);
        }
        CHECK_EQ(bad, 0);
    }
    golden_close(&g);
}

/* As a square it would take 3 * 2500^2 bytes; it is read row by row instead. */
TEST(thin)
{
    enum { LONG = 2500, SIDE = 14, VIEW = SIDE * SIDE * 3 };
    uint8_t *rgb = calloc(LONG, 3), out[VIEW], turned[VIEW];
    struct image wide = { LONG, 1, rgb }, tall = { 1, LONG, rgb };
    int bad = 0;

    CHECK(!square_make(out, &wide, SIDE, half, NULL));
    CHECK(!square_make(turned, &tall, SIDE, half, NULL));
    for (int i = 0; i < VIEW; i++) {
        int y = i / 3 / SIDE, x = i / 3 % SIDE;
        bad += out[i] != turned[(x * SIDE + y) * 3 + i % 3] || abs(out[i] - 127) > 1;
    }
    CHECK_EQ(bad, 0);
    free(rgb);
}

TEST(failures)
{
    enum { SIDE = 8, VIEW = SIDE * SIDE * 3 };
    uint8_t *rgb = pixels_make(PIXELS_NOISE, 1, 20, 9), out[3 * VIEW];
    struct image picture = { 9, 20, rgb }, none = { 0, 20, rgb };
    struct grid grid = grid_make(SIDE, 2, 1);
    struct tiling t = choose(&grid, 20, 9, SIDE);
    struct pv_error err = { 0 };

    memset(out, 77, sizeof out);
    CHECK_EQ(square_make(out, &none, SIDE, half, &err), PV_E_ARG);
    for (int k = 0; k < 2; k++) {
        enum pv_status s = PV_E_NOMEM;
        for (uint64_t at = 1; s && at < 100; at++) {
            mem_fail_at(at);
            s = k ? tiles_make(out, &t, &picture, SIDE, NULL)
                  : square_make(out, &picture, SIDE, half, NULL);
            mem_fail_at(0);
            CHECK(!s || (s == PV_E_NOMEM && out[0] == 77 && out[VIEW] == 77));
        }
        CHECK_EQ(s, PV_OK);
        memset(out, 77, sizeof out);
    }
    free(rgb);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
