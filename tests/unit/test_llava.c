/* How LLaVA-OneVision's tokens are laid out: counts against the reference's, pooling and stitching
 * against plain double-precision code that makes the whole picture first. */
#include "family/families.h"
#include "larger.h"
#include "pool_frames.h"
#include "tiny_tower.h"

enum { OUT = 5 };

/* A tower of which only the layout of its tokens is used. */
static struct vision_config small_config(int side, int max_tiles)
{
    struct vision_config c = { .family = &family_llava_onevision,
                               .hidden = 8,
                               .n_layers = 1,
                               .n_heads = 2,
                               .head_dim = 4,
                               .ffn = 8,
                               .patch = 2,
                               .image = 2 * side + 1, /* the last pixel is never read */
                               .temporal = 1,
                               .merge = 1,
                               .eps = 1e-6f,
                               .out = OUT,
                               .max_tiles = max_tiles,
                               .n_grid = 2 };
    c.grid[0][0] = c.grid[0][1] = c.image;
    c.grid[1][0] = c.grid[1][1] = 6 * c.image;
    return c;
}

/* ---- counts ---- */

/* Sizes, tiles and tokens as transformers 5.22.2 counts them; the last are those where rounding to
 * seven digits, or floor division, differs from the plain thing. */
TEST(picture_tokens_are_the_references)
{
    static const int cases[][5] = {
        { 384, 384, 1, 1, 1485 },   { 1, 1, 1, 1, 1485 },       { 480, 640, 2, 2, 2929 },
        { 640, 480, 2, 2, 2943 },   { 1080, 1920, 3, 5, 7269 }, { 3000, 4000, 5, 6, 7309 },
        { 100, 3000, 1, 6, 1544 },  { 3000, 100, 6, 1, 1701 },  { 2304, 2304, 6, 6, 7371 },
        { 10, 10000, 1, 6, 892 },   { 10000, 10, 6, 1, 1053 },  { 385, 384, 2, 1, 1513 },
        { 767, 769, 2, 3, 3753 },   { 1152, 1152, 3, 3, 7371 }, { 1153, 1152, 4, 3, 7453 },
        { 1200, 1300, 4, 4, 7274 }, { 720, 1280, 2, 4, 5967 },  { 2160, 3840, 4, 6, 7317 },
        { 333, 777, 1, 3, 2457 },   { 1, 600, 1, 2, 784 },      { 27, 2000, 1, 6, 1218 },
        { 1999, 1333, 6, 4, 7362 }, { 975, 2428, 3, 6, 7257 },  { 2230, 535, 6, 2, 7047 },
        { 1516, 3752, 3, 6, 7257 }, { 2474, 1942, 6, 5, 7281 }, { 2563, 2380, 6, 6, 7281 },
        { 269, 2481, 1, 6, 3500 },  { 54, 3723, 1, 6, 1218 },   { 3431, 1922, 6, 4, 7317 },
        { 1063, 2257, 3, 6, 7219 }, { 960, 786, 3, 3, 6237 },   { 2938, 1927, 6, 4, 7329 },
        { 2216, 3427, 4, 6, 7257 }, { 2252, 1952, 6, 6, 7341 }, { 1627, 2618, 4, 6, 7281 },
        { 3527, 617, 6, 2, 5427 },  { 950, 2601, 3, 6, 7209 },  { 622, 3556, 2, 6, 5293 },
        { 3793, 2143, 6, 4, 7363 }, { 1598, 3037, 4, 6, 7337 }, { 63, 2751, 1, 6, 1218 },
        { 3184, 263, 6, 1, 2997 },  { 653, 3106, 2, 6, 6271 },  { 3922, 2422, 6, 4, 7321 },
        { 176, 1234, 1, 4, 2364 },  { 3196, 128, 6, 1, 2025 },  { 3374, 3546, 6, 6, 7281 },
        { 1357, 1357, 3, 1, 1485 }, { 2926, 1463, 2, 5, 2241 }, { 686, 2646, 5, 1, 925 },
        { 220, 396, 6, 2, 2379 },   { 2880, 2351, 6, 3, 7226 }, { 2899, 1304, 5, 6, 7263 },
        { 1334, 2221, 6, 6, 7239 }, { 98, 321, 4, 6, 7153 },    { 1, 4000, 2, 6, 729 },
        { 4000, 1, 5, 2, 864 },     { 1680, 840, 2, 6, 2295 },  { 840, 210, 5, 1, 3781 },
        { 792, 1584, 3, 4, 6724 },  { 2520, 840, 3, 6, 3078 },
    };
    struct vision_config c = {
        .family = &family_llava_onevision, .image = 384, .patch = 14, .max_tiles = 9
    };
    CHECK_EQ(llava_frame_tokens(&c), 196);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int *k = cases[i];
        struct tiling t = { .rows = k[2], .cols = k[3] };
        int got = llava_image_tokens(&c, &t, k[0], k[1]);
        CHECK_MSG(got == k[4], "%d x %d in %d x %d tiles: %d tokens, not %d", k[0], k[1], k[2],
                  k[3], got, k[4]);
    }
}

/* ---- reference ---- */

/* in [h, w, OUT] -> out [to_h, to_w, OUT] */
static void resize(double *out, int to_h, int to_w, const double *in, int h, int w)
{
    for (int i = 0; i < to_h; i++)
        for (int j = 0; j < to_w; j++) {
            double y = fmax((i + 0.5) * h / to_h - 0.5, 0);
            double x = fmax((j + 0.5) * w / to_w - 0.5, 0);
            int y0 = (int)y, x0 = (int)x, y1 = y0 + 1 < h ? y0 + 1 : y0;
            int x1 = x0 + 1 < w ? x0 + 1 : x0;
            for (int k = 0; k < OUT; k++) {
                double top = in[(y0 * w + x0) * OUT + k] * (1 - (x - x0)) +
                             in[(y0 * w + x1) * OUT + k] * (x - x0);
                double low = in[(y1 * w + x0) * OUT + k] * (1 - (x - x0)) +
                             in[(y1 * w + x1) * OUT + k] * (x - x0);
                out[(i * to_w + j) * OUT + k] = top * (1 - (y - y0)) + low * (y - y0);
            }
        }
}

static void check_near(const float *got, const double *want, int n, const char *what)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = larger(worst, fabs(got[i] - want[i]));
    CHECK_MSG(worst < 2e-6, "%s: off by %g", what, worst);
}

static bool start(struct tiny_tower *t, struct vision_state **st, int side, int max_tiles)
{
    struct vision_config c = small_config(side, max_tiles);
    tower_make(t, &c, DTYPE_F32, false);
    return tower_start(t, cpu_level_best(), 3) &&
           CHECK_EQ(vision_state_open(st, t->v, side * side, NULL), PV_OK);
}

/* ---- pooling ---- */

/* The coordinates of 27 -> 14, worked out by hand. */
TEST(pooling_by_the_table)
{
    static const double at[14] = { 0.464286,  2.392857,  4.321429,  6.25,      8.178571,
                                   10.107143, 12.035714, 13.964286, 15.892857, 17.821429,
                                   19.75,     21.678571, 23.607143, 25.535714 };
    struct tiny_tower t;
    struct vision_state *st = NULL;
    static float frame[729 * OUT], pooled[196 * OUT];
    if (start(&t, &st, 27, 9)) {
        for (int i = 0; i < 729; i++) {
            frame[i * OUT] = (float)(i / 27);
            frame[i * OUT + 1] = (float)(i % 27);
        }
        pool_frames(t.v, st, frame, 1, pooled);
        for (int i = 0; i < 196; i++) {
            CHECK(fabs(pooled[i * OUT] - at[i / 14]) < 1e-5);
            CHECK(fabs(pooled[i * OUT + 1] - at[i % 14]) < 1e-5);
        }
    }
    vision_state_close(&st);
    tower_free(&t);
}

enum { SIDE = 5, POOLED = 3, FRAMES = 3, MOST_ROWS = FRAMES * POOLED * (POOLED + 1) };

/* Frames of random tokens pooled by a tower with newlines in these places; and the newline. */
static void pool_lined(enum vision_newline where, float *out, float newline[OUT])
{
    static float frames[FRAMES * SIDE * SIDE * OUT];
    struct vision_config c = small_config(SIDE, 9);
    struct rng rng = { 3 };
    struct vision_state *st = NULL;
    struct tiny_tower t;
    for (int i = 0; i < FRAMES * SIDE * SIDE * OUT; i++)
        frames[i] = rng_normal(&rng);
    c.newline = where;
    tower_make(&t, &c, DTYPE_F32, false);
    if (tower_start(&t, cpu_level_best(), 2) &&
        CHECK_EQ(vision_state_open(&st, t.v, FRAMES * SIDE * SIDE, NULL), PV_OK)) {
        pool_frames(t.v, st, frames, FRAMES, out);
        memcpy(newline, llava_newline(t.v), OUT * sizeof(float));
    }
    vision_state_close(&st);
    tower_free(&t);
}

/* LLaVA-Video's: the same tokens, and the newline after each line or after each frame. */
TEST(newlines_among_pooled_tokens)
{
    static const enum vision_newline where[] = { NEWLINE_LINE, NEWLINE_FRAME, NEWLINE_NONE };
    static const int lines[] = { POOLED, POOLED * POOLED, FRAMES * POOLED * POOLED + 1 };
    static const int rows[] = { POOLED * (POOLED + 1), POOLED * POOLED + 1, POOLED * POOLED };
    float plain[FRAMES * POOLED * POOLED * OUT], lined[MOST_ROWS * OUT], newline[OUT];
    pool_lined(NEWLINE_END, plain, newline);
    for (int k = 0; k < 3; k++) {
        struct vision_config c = small_config(SIDE, 9);
        const float *at = lined;
        c.newline = where[k];
        CHECK_EQ(llava_frame_tokens(&c), rows[k]);
        pool_lined(where[k], lined, newline);
        for (int i = 0; i < FRAMES * POOLED * POOLED; i++, at += OUT) {
            CHECK(!memcmp(at, plain + i * OUT, OUT * sizeof *at));
            if ((i + 1) % lines[k] == 0) {
                at += OUT;
                CHECK(!memcmp(at, newline, OUT * sizeof *at));
            }
        }
        CHECK_EQ(at - lined, FRAMES * rows[k] * OUT);
    }
}

TEST(pooling_of_frames)
{
    static const int sides[] = { 1, 2, 3, 4, 7, 27 };
    for (int s = 0; s < 6; s++) {
        int side = sides[s], half = (side + 1) / 2, n = 3, from = side * side * OUT;
        int to = half * half * OUT;
        struct tiny_tower t;
        struct vision_state *st = NULL;
        float *frames = random_floats((size_t)(n * from), 5), *got;
        double *in = malloc(sizeof *in * (size_t)from), *want = malloc(sizeof *want * (size_t)to);
        got = malloc(sizeof *got * (size_t)(n * to));
        if (start(&t, &st, side, 9)) {
            CHECK_EQ(llava_frame_tokens(vision_config(t.v)), half * half);
            pool_frames(t.v, st, frames, n, got);
            for (int f = 0; f < n; f++) {
                for (int i = 0; i < from; i++)
                    in[i] = frames[f * from + i];
                resize(want, half, half, in, side, side);
                check_near(got + f * to, want, to, "pooled");
            }
        }
        vision_state_close(&st);
        tower_free(&t);
        free(frames);
        free(got);
        free(in);
        free(want);
    }
}

/* ---- still pictures ---- */

/* The whole stitched picture [rows * side, cols * side], then cut, resized, with newlines. */
static void stitch_reference(double *out, const float *views, const struct tiling *t, int side,
                             const int cut[4], int to_h, int to_w, const float *newline)
{
    int w = t->cols * side, n = 0;
    double *inner = malloc(sizeof *inner * (size_t)(cut[2] * cut[3] * OUT));
    double *shrunk = malloc(sizeof *shrunk * (size_t)(to_h * to_w * OUT));
    for (int i = 0; i < side * side * OUT; i++)
        out[n++] = views[i];
    for (int y = 0; y < t->rows * side; y++)
        for (int x = 0; x < w; x++) {
            int view = 1 + y / side * t->cols + x / side;
            int from = (view * side + y % side) * side + x % side;
            int to = (y - cut[0]) * cut[3] + x - cut[1];
            if (y < cut[0] || y >= cut[0] + cut[2] || x < cut[1] || x >= cut[1] + cut[3])
                continue;
            for (int k = 0; k < OUT; k++)
                inner[to * OUT + k] = views[from * OUT + k];
        }
    resize(shrunk, to_h, to_w, inner, cut[2], cut[3]);
    for (int y = 0; y < to_h; y++)
        for (int x = 0; x <= to_w; x++)
            for (int k = 0; k < OUT; k++)
                out[n++] = x < to_w ? shrunk[(y * to_w + x) * OUT + k] : (double)newline[k];
    free(inner);
    free(shrunk);
}

/* With side 5: what is cut (y0, x0, h, w) and what remains is computed by hand from spec 3.4. */
TEST(stitching_of_tiles)
{
    static const struct {
        int rows, cols, height, width, max_tiles;
        int cut[4], h, w;
    } cases[] = {
        { 1, 1, 100, 100, 9, { 0, 0, 5, 5 }, 5, 5 },
        { 2, 3, 100, 150, 9, { 0, 0, 10, 15 }, 10, 15 },
        /* twice as wide as high: 15 wide needs 7.5 -> 7 rows of 10, one off each side */
        { 2, 3, 100, 200, 9, { 1, 0, 8, 15 }, 8, 15 },
        /* twice as high as wide: 5 of 15 columns, five off each side */
        { 2, 3, 200, 100, 9, { 0, 5, 10, 5 }, 10, 5 },
        /* sqrt(150 / 50) = 1.73: 10 / 1.73 and 15 / 1.73, rounded down */
        { 2, 3, 100, 150, 2, { 0, 0, 10, 15 }, 5, 8 },
        /* sqrt(120 / 100) = 1.095 is not yet above 1.1 */
        { 2, 3, 100, 200, 4, { 1, 0, 8, 15 }, 8, 15 },
        { 6, 6, 77, 99, 9, { 3, 0, 24, 30 }, 13, 16 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tiling tiling = { .rows = cases[i].rows, .cols = cases[i].cols };
        int n_views = 1 + tiling.rows * tiling.cols, n;
        int want_n = 25 + cases[i].h * (cases[i].w + 1);
        struct tiny_tower t;
        struct vision_state *st = NULL;
        float *views = random_floats((size_t)(n_views * 25 * OUT), 8 + i);
        float *got = malloc(sizeof *got * (size_t)((want_n + 1) * OUT));
        double *want = malloc(sizeof *want * (size_t)(want_n * OUT));
        if (start(&t, &st, 5, cases[i].max_tiles)) {
            n = llava_image_tokens(vision_config(t.v), &tiling, cases[i].height, cases[i].width);
            if (CHECK_MSG(n == want_n, "case %zu: %d tokens, not %d", i, n, want_n)) {
                got[n * OUT] = 77;
                llava_stitch(t.v, st, views, &tiling, cases[i].height, cases[i].width, got);
                stitch_reference(want, views, &tiling, 5, cases[i].cut, cases[i].h, cases[i].w,
                                 llava_newline(t.v));
                check_near(got, want, n * OUT, "stitched");
                CHECK_EQ(got[n * OUT], 77.0f);
            }
        }
        vision_state_close(&st);
        tower_free(&t);
        free(views);
        free(got);
        free(want);
    }
}

TEST(newline_is_the_files)
{
    struct tiny_tower t;
    struct vision_state *st = NULL;
    if (start(&t, &st, 3, 9))
        CHECK(!memcmp(llava_newline(t.v), t.mf.vision_tensors.newline->data, sizeof(float) * OUT));
    vision_state_close(&st);
    tower_free(&t);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
