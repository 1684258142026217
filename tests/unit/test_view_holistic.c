/* The view `holistic`: its partitions, each term and the normalisation on inputs whose answer is
 * known, against a plain definition on random ones, and its switches. (What every view promises:
 * test_view.c.) */
#include "spec/view_holistic.h"

#include "base/rng.h"
#include "test.h"

#include <math.h>

enum { FRAMES = 6, SIDE = 14, TOKENS = SIDE * SIDE, M = FRAMES * TOKENS, WIDTH = 19 };

static float features[M * WIDTH], scores[M];
static double term[M], plain[M], fused[M];
static int kept[M], other[M];

static struct view_input input(int n_frames)
{
    return (struct view_input){ .n_frames = n_frames,
                                .frame_tokens = TOKENS,
                                .ratio = 0.9,
                                .scores = scores,
                                .features = features,
                                .width = WIDTH,
                                .grid_width = SIDE };
}

static void fill_random(uint64_t seed)
{
    struct rng r = { seed };
    for (int i = 0; i < M; i++)
        scores[i] = expf(rng_normal(&r));
    for (int i = 0; i < M * WIDTH; i++)
        features[i] = rng_normal(&r);
}

static int choose(const struct view_input *in, int *out)
{
    struct pv_error err = { 0 };
    int n = -1;
    enum pv_status s = view_choose(VIEW_HOLISTIC, in, out, &n, NULL, &err);
    CHECK_MSG(s == PV_OK, "%s", err.text);
    return n;
}

static void copy_frame(int to, int from)
{
    memcpy(features + (size_t)to * TOKENS * WIDTH, features + (size_t)from * TOKENS * WIDTH,
           sizeof(float) * TOKENS * WIDTH);
}

/* ---- crops ---- */

static void check_crops(int size, bool literal, const char *want)
{
    char got[64] = "";
    size_t used = 0;
    CHECK_EQ(holistic_crop_start(size, 0, literal), 0);
    for (int i = 0; i < holistic_crops(size, literal); i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%d ",
                                 holistic_crop_start(size, i + 1, literal) -
                                     holistic_crop_start(size, i, literal));
    CHECK_STR(got, want);
    CHECK_EQ(holistic_crop_start(size, holistic_crops(size, literal), literal), size);
}

TEST(crops_of_an_axis)
{
    check_crops(14, false, "5 5 4 ");
    check_crops(16, false, "6 5 5 ");
    check_crops(12, false, "6 6 ");
    check_crops(7, false, "7 ");
    check_crops(8, false, "4 4 ");
    check_crops(25, false, "5 5 5 5 5 ");
    check_crops(1, false, "1 ");
    check_crops(14, true, "5 5 4 ");
    check_crops(16, true, "5 5 5 1 ");
    check_crops(12, true, "5 5 2 ");
    check_crops(7, true, "5 2 ");
    check_crops(5, true, "5 ");
    check_crops(1, true, "1 ");
}

TEST(crops_of_every_axis_cover_it)
{
    for (int size = 1; size < 300; size++) {
        int n = holistic_crops(size, false), least = size, most = 0;
        for (int i = 0; i < n; i++) {
            int crop =
                holistic_crop_start(size, i + 1, false) - holistic_crop_start(size, i, false);
            least = crop < least ? crop : least;
            most = crop > most ? crop : most;
        }
        CHECK_MSG(most - least <= 1 && most <= 7 && (size < 4 || least >= 4), "%d: %d to %d", size,
                  least, most);
        CHECK_EQ(holistic_crop_start(size, n, false), size);
    }
}

/* ---- normalisation ---- */

TEST(normalised_scores_have_mean_0_and_deviation_1)
{
    static const double x[] = { 1, 2, 3, 4, 5 }; /* deviation sqrt(2) */
    double y[5];
    memcpy(y, x, sizeof x);
    holistic_normalise(y, 5);
    for (int i = 0; i < 5; i++)
        CHECK(fabs(y[i] - (x[i] - 3) / sqrt(2)) < 1e-15);
}

TEST(constant_scores_normalise_to_0)
{
    static const double values[] = { 0, 1, 0.1, -3e7, 1e-5 };
    double x[TOKENS];
    for (int v = 0; v < 5; v++) {
        for (int i = 0; i < TOKENS; i++)
            x[i] = values[v];
        holistic_normalise(x, TOKENS);
        for (int i = 0; i < TOKENS; i++)
            CHECK_EQ(x[i], 0.0);
    }
    x[0] = 7; /* one token alone has no spread */
    holistic_normalise(x, 1);
    CHECK_EQ(x[0], 0.0);
}

/* ---- terms ---- */

TEST(equal_neighbours_have_no_novelty)
{
    struct view_input in = input(FRAMES);
    fill_random(test_seed);
    copy_frame(3, 2);
    copy_frame(4, 2);
    holistic_time(&in, term);
    for (int t = 0; t < TOKENS; t++) {
        CHECK_EQ(term[3 * TOKENS + t], 0.0); /* both neighbours: exactly, not but for rounding */
        CHECK(term[2 * TOKENS + t] > 0 || term[4 * TOKENS + t] > 0);
    }
    in.n_frames = 2;
    copy_frame(1, 0);
    holistic_time(&in, term);
    for (int j = 0; j < 2 * TOKENS; j++)
        CHECK_EQ(term[j], 0.0);
}

/* Directions in the plane: 0, 60 and 90 degrees. */
TEST(novelty_is_one_less_the_mean_cosine)
{
    static const double angle[] = { 0, 60, 90 };
    const double degree = acos(-1) / 180;
    static float f[3][2];
    struct view_input in = {
        .n_frames = 3, .frame_tokens = 1, .features = f[0], .width = 2, .grid_width = 1
    };
    double s[3];
    for (int i = 0; i < 3; i++) {
        f[i][0] = (float)(3 * cos(angle[i] * degree)); /* lengths do not count */
        f[i][1] = (float)(3 * sin(angle[i] * degree));
    }
    holistic_time(&in, s);
    CHECK(fabs(s[0] - (1 - 0.5)) < 1e-6);
    CHECK(fabs(s[1] - (1 - (0.5 + sqrt(0.75)) / 2)) < 1e-6);
    CHECK(fabs(s[2] - (1 - sqrt(0.75))) < 1e-6);
}

TEST(an_only_frame_has_no_novelty)
{
    struct view_input in = input(1), without = in;
    fill_random(test_seed);
    holistic_time(&in, term);
    for (int t = 0; t < TOKENS; t++)
        CHECK_EQ(term[t], 0.0);
    without.holistic_terms = HOLISTIC_ATTENTION | HOLISTIC_SPACE;
    CHECK_EQ(choose(&in, kept), 19);
    CHECK_EQ(choose(&without, other), 19);
    CHECK(!memcmp(kept, other, 19 * sizeof *kept));
}

TEST(identical_tokens_of_a_crop_do_not_stand_out)
{
    struct view_input in = input(1);
    fill_random(test_seed);
    for (int y = 5; y < 10; y++) /* the middle crop of three by three */
        for (int x = 5; x < 10; x++)
            memcpy(features + (size_t)(y * SIDE + x) * WIDTH, features + (5 * SIDE + 5) * WIDTH,
                   sizeof(float) * WIDTH);
    CHECK_EQ(holistic_space(&in, term, NULL), PV_OK);
    for (int t = 0; t < TOKENS; t++) {
        int y = t / SIDE, x = t % SIDE;
        bool same = y >= 5 && y < 10 && x >= 5 && x < 10;
        CHECK_MSG(same ? term[t] == 0 : term[t] > 0, "token %d, %d: %g", y, x, term[t]);
    }
}

/* Two of four tokens are alike: rows of cosines 1 1 0 0, 1 1 0 0, 0 0 1 0, 0 0 0 1, itself counted.
 */
TEST(variance_counts_the_token_itself)
{
    static const float f[4][3] = { { 2, 0, 0 }, { 5, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } };
    struct view_input in = {
        .n_frames = 1, .frame_tokens = 4, .features = f[0], .width = 3, .grid_width = 2
    };
    double s[4];
    CHECK_EQ(holistic_space(&in, s, NULL), PV_OK);
    CHECK_EQ(s[0], 0.25);
    CHECK_EQ(s[1], 0.25);
    CHECK_EQ(s[2], 0.1875);
    CHECK_EQ(s[3], 0.1875);
}

static double plain_cosine(int i, int j)
{
    const float *a = features + (size_t)i * WIDTH, *b = features + (size_t)j * WIDTH;
    double ab = 0, aa = 0, bb = 0;
    for (int k = 0; k < WIDTH; k++) {
        ab += (double)a[k] * b[k];
        aa += (double)a[k] * a[k];
        bb += (double)b[k] * b[k];
    }
    return ab / sqrt(aa) / sqrt(bb);
}

static int crop_of(int at, int side, bool literal)
{
    if (literal)
        return at / 5;
    return side == 14 ? at / 5 : at < 6 ? 0 : (at - 1) / 5; /* 5 5 4; 6 5 5 */
}

static double plain_space(int token, int side, bool literal)
{
    int y = token / side, x = token % side, n = 0;
    double sum = 0, squares = 0;
    for (int k = 0; k < side * side; k++)
        if (crop_of(k / side, side, literal) == crop_of(y, side, literal) &&
            crop_of(k % side, side, literal) == crop_of(x, side, literal)) {
            double c = plain_cosine(token, k);
            sum += c;
            squares += c * c;
            n++;
        }
    return squares / n - sum / n * sum / n;
}

TEST(space_against_its_definition)
{
    static const int sides[] = { 14, 16 };
    fill_random(test_seed);
    for (int s = 0; s < 2; s++)
        for (int literal = 0; literal < 2; literal++) {
            int side = sides[s];
            struct view_input in = input(1);
            in.frame_tokens = side * side;
            in.grid_width = side;
            in.crop_literal = literal;
            CHECK_EQ(holistic_space(&in, term, NULL), PV_OK);
            for (int t = 0; t < side * side; t++) {
                double want = plain_space(t, side, literal);
                CHECK_MSG(fabs(term[t] - want) < 1e-12, "%d %d: %g, not %g", side, t, term[t],
                          want);
            }
            if (side == 16 && literal) /* a crop of one token */
                CHECK_EQ(term[side * side - 1], 0.0);
        }
}

/* ---- on a device ---- */

/* The cosines of a device with so many threads, which must be those of the features on the host,
 * bit for bit. Rows on the device are wider than what is looked at of them. */
static void check_measured(struct view_input *in, int threads)
{
    enum { STRIDE = WIDTH + 5 };
    static float wide[M * STRIDE];
    static double next[M], spread[M];
    struct work_shape shape = {
        .rows = 1, .in = WIDTH, .n_heads = 1, .n_kv_heads = 1, .head_dim = 2
    };
    static const struct view_cosines cosines = { next, spread }; /* `in` keeps it */
    struct device *dev = NULL;
    struct device_work *w = NULL;
    int m = in->n_frames * in->frame_tokens;
    for (int i = 0; i < m; i++)
        memcpy(wide + (size_t)i * STRIDE, features + (size_t)i * WIDTH, sizeof(float) * WIDTH);
    if (!CHECK(!device_cpu_open(&dev, threads, 0, NULL)) ||
        !CHECK(!dev->ops->work_open(dev, &w, &shape, NULL)))
        return;
    CHECK_EQ(holistic_measure(in, dev, w, wide, STRIDE, next, spread, NULL), PV_OK);
    holistic_time(in, term);
    CHECK_EQ(holistic_space(in, plain, NULL), PV_OK);
    in->cosines = &cosines;
    in->features = NULL;
    holistic_time(in, fused);
    CHECK(!memcmp(term, fused, sizeof *term * (size_t)m));
    CHECK_EQ(holistic_space(in, fused, NULL), PV_OK);
    CHECK(!memcmp(plain, fused, sizeof *term * (size_t)m));
    dev->ops->work_close(dev, &w);
    device_close(&dev);
}

TEST(a_device_measures_the_same_bits)
{
    static const int sides[] = { 14, 7, 12 };
    for (int k = 0; k < 3; k++)
        for (int threads = 1; threads <= 4; threads += 3)
            for (int literal = 0; literal < 2; literal++) {
                struct view_input in = input(k == 1 ? 1 : FRAMES), host;
                int n, n_host;
                in.frame_tokens = sides[k] * sides[k];
                in.grid_width = sides[k];
                in.crop_literal = literal;
                host = in;
                fill_random(test_seed + (uint64_t)k);
                check_measured(&in, threads);
                n_host = choose(&host, other);
                n = choose(&in, kept);
                CHECK_EQ(n, n_host);
                CHECK(!memcmp(kept, other, (size_t)n * sizeof *kept));
            }
}

/* ---- the choice ---- */

static void add_plain(const double *x)
{
    for (int f = 0; f < FRAMES; f++) {
        double mean = 0, square = 0;
        for (int t = 0; t < TOKENS; t++)
            mean += x[f * TOKENS + t] / TOKENS;
        for (int t = 0; t < TOKENS; t++)
            square += (x[f * TOKENS + t] - mean) * (x[f * TOKENS + t] - mean) / TOKENS;
        for (int t = 0; t < TOKENS; t++)
            fused[f * TOKENS + t] += square > 0 ? (x[f * TOKENS + t] - mean) / sqrt(square) : 0;
    }
}

static void plain_scores(unsigned terms)
{
    memset(fused, 0, sizeof fused);
    for (int j = 0; j < M; j++)
        plain[j] = scores[j];
    if (terms & HOLISTIC_ATTENTION)
        add_plain(plain);
    for (int j = 0; j < M; j++) {
        int f = j / TOKENS;
        double sum = (f > 0 ? plain_cosine(j, j - TOKENS) : 0) +
                     (f + 1 < FRAMES ? plain_cosine(j, j + TOKENS) : 0);
        plain[j] = 1 - sum / (f == 0 || f + 1 == FRAMES ? 1 : 2);
    }
    if (terms & HOLISTIC_TIME)
        add_plain(plain);
    struct view_input in = input(FRAMES);
    CHECK_EQ(holistic_space(&in, plain, NULL), PV_OK); /* proven above */
    if (terms & HOLISTIC_SPACE)
        add_plain(plain);
}

/* All the sums of terms: the lowest score kept is not below the highest one left out. */
TEST(the_highest_sums_of_the_whole_video_stay)
{
    fill_random(test_seed);
    for (unsigned terms = 0; terms <= HOLISTIC_ALL; terms++) {
        struct view_input in = input(FRAMES);
        double least = INFINITY, most = -INFINITY;
        int n, next = 0;
        in.holistic_terms = terms;
        n = choose(&in, kept);
        CHECK_EQ(n, view_budget(M, 0.9));
        plain_scores(terms ? terms : HOLISTIC_ALL);
        for (int j = 0; j < M; j++) {
            bool stays = next < n && kept[next] == j;
            next += stays;
            least = stays && fused[j] < least ? fused[j] : least;
            most = !stays && fused[j] > most ? fused[j] : most;
        }
        CHECK_MSG(least >= most - 1e-5, "terms %u: %g stays, %g does not", terms, least, most);
    }
}

/* Frame 2 is one colour and nothing attends to it more here than there: every term is 0 there, and
 * it keeps tokens only once those above the mean of the others are used up. */
TEST(a_constant_frame_scores_0)
{
    struct view_input in = input(FRAMES);
    int n;
    fill_random(test_seed);
    for (int t = 0; t < TOKENS; t++) {
        scores[2 * TOKENS + t] = 40;
        for (int f = 1; f <= 3; f++) /* its neighbours too, else it is new in time */
            memcpy(features + (size_t)(f * TOKENS + t) * WIDTH, features, sizeof(float) * WIDTH);
    }
    n = choose(&in, kept);
    CHECK_EQ(n, view_budget(M, 0.9));
    for (int i = 0; i < n; i++)
        CHECK(kept[i] / TOKENS != 2);
    in.holistic_terms = HOLISTIC_SPACE; /* of equal ones the first */
    in.n_frames = 1;
    in.features = features + (size_t)2 * TOKENS * WIDTH;
    CHECK_EQ(choose(&in, kept), 19);
    CHECK_EQ(kept[18], 18);
}

static void check_refused(const struct view_input *in, const char *word)
{
    struct pv_error err = { 0 };
    int n = -1;
    CHECK_EQ(view_choose(VIEW_HOLISTIC, in, kept, &n, NULL, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, word) != NULL, "\"%s\" has no \"%s\"", err.text, word);
    CHECK_EQ(n, -1);
}

TEST(terms_that_are_off_need_nothing)
{
    struct view_input in = input(FRAMES);
    fill_random(test_seed);
    in.scores = NULL;
    in.holistic_terms = HOLISTIC_TIME | HOLISTIC_SPACE;
    CHECK_EQ(choose(&in, kept), view_budget(M, 0.9));
    in.holistic_terms = 0;
    check_refused(&in, "score");
    in.scores = scores;
    in.features = NULL;
    check_refused(&in, "features");
    in.holistic_terms = HOLISTIC_ATTENTION;
    CHECK_EQ(choose(&in, kept), view_budget(M, 0.9));
    in.holistic_terms = 8;
    check_refused(&in, "terms");
}

TEST(a_grid_that_does_not_fit_is_refused)
{
    static const int bad[] = { 0, -14, 13, 300 };
    for (int i = 0; i < 4; i++) {
        struct view_input in = input(FRAMES);
        in.grid_width = bad[i];
        check_refused(&in, "rows of");
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
