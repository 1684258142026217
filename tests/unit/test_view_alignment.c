/* Alignment scores: the literal sum over layers against the telescoped one, by chunks of any size,
 * what counts as text and as video, and how much keeping unit vectors as half changes the choice.
 */
#include "spec/view_alignment.h"

#include "base/mem.h"
#include "base/rng.h"
#include "larger.h"
#include "spec/view.h"
#include "tensor/half.h"
#include "test.h"

#include <math.h>

enum { LAYERS = 5, VIDEO = 600, TEXT = 40, ROWS = VIDEO + TEXT, WIDTH = 96 };

static float state[LAYERS + 1][ROWS * WIDTH]; /* of rows in the order of the prompt */
static int token[ROWS];                       /* text, video, text */
static double exact[VIDEO];
static float scores[VIDEO], again[VIDEO];
static int kept[VIDEO], other[VIDEO];

static void lay_out_prompt(void)
{
    for (int i = 0; i < ROWS; i++)
        token[i] = i < 7 || i >= 7 + VIDEO ? ALIGNMENT_TEXT : i - 7;
}

/* Layers that move every row a little from where it was. `big` is added to a few elements of all
 * rows, as decoders do. */
static void fill_states(uint64_t seed, float big)
{
    struct rng r = { seed };
    lay_out_prompt();
    for (int i = 0; i < ROWS * WIDTH; i++)
        state[0][i] = rng_normal(&r);
    for (int l = 1; l <= LAYERS; l++)
        for (int i = 0; i < ROWS * WIDTH; i++) {
            state[l][i] = state[l - 1][i] + 0.4f * rng_normal(&r);
            if (l == 1 && (i % WIDTH == 5 || i % WIDTH == 70))
                state[l][i] += big;
        }
}

static double cosine(const float *a, const float *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < WIDTH; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

/* As the paper has it. */
static void score_literally(double *out)
{
    for (int i = 0; i < ROWS; i++) {
        if (token[i] < 0)
            continue;
        out[token[i]] = 0;
        for (int l = 1; l <= LAYERS; l++)
            for (int j = 0; j < ROWS; j++)
                if (token[j] == ALIGNMENT_TEXT)
                    out[token[i]] += cosine(state[l] + i * WIDTH, state[l] + j * WIDTH) -
                                     cosine(state[l - 1] + i * WIDTH, state[l - 1] + j * WIDTH);
    }
}

static struct device *dev;
static struct device_work *work;

/* A CPU with so many threads, for the tests from now on. */
static bool use_device(int threads)
{
    struct work_shape shape = {
        .rows = 1, .in = WIDTH, .n_heads = 1, .n_kv_heads = 1, .head_dim = 2
    };
    if (dev)
        dev->ops->work_close(dev, &work);
    device_close(&dev);
    return CHECK(!device_cpu_open(&dev, threads, 0, NULL)) &&
           CHECK(!dev->ops->work_open(dev, &work, &shape, NULL));
}

static void score(int chunk, float *out)
{
    struct alignment *a = NULL;
    if (!dev && !use_device(1))
        return;
    if (!CHECK(!alignment_open(&a, dev, work, VIDEO, WIDTH, chunk, NULL)))
        return;
    for (int from = 0; from < ROWS; from += chunk) {
        int n = ROWS - from < chunk ? ROWS - from : chunk;
        CHECK(!alignment_add(a, ALIGNMENT_BEFORE, token + from, state[0] + from * WIDTH, n, NULL));
        CHECK(!alignment_add(a, ALIGNMENT_AFTER, token + from, state[LAYERS] + from * WIDTH, n,
                             NULL));
    }
    CHECK(!alignment_finish(a, out, NULL));
    alignment_close(&a);
    CHECK(a == NULL);
}

static int choose(const float *by, int *out)
{
    struct view_input in = { .n_frames = VIDEO / 4, .frame_tokens = 4, .ratio = 0.9, .scores = by };
    int n = -1;
    CHECK_EQ(view_choose(VIEW_ALIGNMENT, &in, out, &n, NULL, NULL), PV_OK);
    return n;
}

/* Tokens of the first list that are not in the second; both rise. */
static int count_others(const int *a, const int *b, int n)
{
    int count = 0;
    for (int i = 0, j = 0; i < n; i++) {
        while (j < n && b[j] < a[i])
            j++;
        count += j == n || b[j] != a[i];
    }
    return count;
}

TEST(layers_telescope)
{
    double worst = 0, spread = 0;
    fill_states(test_seed, 0);
    score_literally(exact);
    score(ROWS, scores);
    for (int i = 0; i < VIDEO; i++) {
        worst = larger(worst, fabs(scores[i] - exact[i]));
        spread = larger(spread, fabs(exact[i]));
    }
    CHECK_MSG(spread > 1 && worst < 1e-3 * spread, "%g beside scores up to %g", worst, spread);
    for (int i = 0; i < VIDEO; i++)
        again[i] = (float)exact[i];
    CHECK_EQ(choose(scores, kept), 60);
    CHECK_EQ(choose(again, other), 60);
    CHECK(count_others(kept, other, 60) == 0);
}

TEST(chunks_do_not_matter)
{
    static const int chunks[] = { 1, 7, 64, 100 };
    fill_states(test_seed, 0);
    score(ROWS, scores);
    for (int c = 0; c < 4; c++) {
        score(chunks[c], again);
        CHECK(!memcmp(scores, again, sizeof scores));
    }
}

TEST(threads_do_not_matter)
{
    fill_states(test_seed, 20);
    use_device(1);
    score(64, scores);
    use_device(4);
    score(ROWS, again);
    CHECK(!memcmp(scores, again, sizeof scores));
}

/* The exact scores with unit vectors of the video rounded to bfloat16, for comparison. */
static void score_bf16(float *out)
{
    static double text[2][WIDTH];
    memset(text, 0, sizeof text);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < ROWS; i++) {
            double cosines[2] = { 0 };
            for (int at = 0; at < 2; at++) {
                const float *x = state[at ? LAYERS : 0] + i * WIDTH;
                double square = 0;
                for (int k = 0; k < WIDTH; k++)
                    square += (double)x[k] * x[k];
                for (int k = 0; k < WIDTH; k++) {
                    double u = x[k] / sqrt(square);
                    if (pass == 0 && token[i] < 0)
                        text[at][k] += u;
                    cosines[at] += bf16_to_f32(bf16_from_f32((float)u)) * text[at][k];
                }
            }
            if (pass == 1 && token[i] >= 0)
                out[token[i]] = (float)(cosines[1] - cosines[0]);
        }
}

/* Tokens, of all that are kept over many draws, which exact scores would not keep. */
TEST(half_is_enough_to_rank)
{
    static const float bigs[] = { 0, 20, 60 };
    int of_half = 0, of_bf16 = 0, n = 0;
    for (int b = 0; b < 3; b++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            fill_states(100 * test_seed + seed, bigs[b]);
            score_literally(exact);
            score(64, scores);
            for (int i = 0; i < VIDEO; i++)
                again[i] = (float)exact[i];
            n += choose(again, other);
            choose(scores, kept);
            of_half += count_others(kept, other, 60);
            score_bf16(scores);
            choose(scores, kept);
            of_bf16 += count_others(kept, other, 60);
        }
    CHECK_MSG(of_half * 100 <= n, "half changes %d of %d tokens", of_half, n);
    CHECK_MSG(of_half * 3 <= of_bf16, "half changes %d tokens, bfloat16 %d", of_half, of_bf16);
}

/* Rows that are neither count nowhere; those without a direction are at a right angle to all. */
TEST(only_text_and_video_count)
{
    static float without[VIDEO];
    fill_states(test_seed, 0);
    for (int i = 2; i < ROWS; i += 5)
        token[i] = ALIGNMENT_NEITHER;
    score(64, scores);
    for (int i = 0; i < ROWS; i++)
        if (token[i] == ALIGNMENT_NEITHER)
            for (int k = 0; k < WIDTH; k++)
                state[0][i * WIDTH + k] = state[LAYERS][i * WIDTH + k] = k % 3 ? NAN : 1e30f;
    score(64, without);
    CHECK(!memcmp(scores, without, sizeof scores));
    for (int i = 2; i < ROWS; i += 5)
        if (i >= 7 && i < 7 + VIDEO)
            CHECK_EQ(scores[i - 7], 0.0f);
    lay_out_prompt();
    score(64, again); /* NaN in video and in text rows: no direction, the others are unharmed */
    CHECK(!memcmp(scores, again, sizeof scores));
}

/* In the plane: the text points along x in both snapshots, the video tokens turn. */
TEST(turning_to_the_text_is_rewarded)
{
    static const float before[] = { 1, 0, 0, 3, 0, 3, 2, 0 }, after[] = { 5, 0, 2, 0, 0, 1, 0, 9 };
    static const int what[] = { ALIGNMENT_TEXT, 0, 1, 2 };
    struct alignment *a = NULL;
    float s[4] = { 7, 7, 7, 7 };
    if (!use_device(1) || !CHECK(!alignment_open(&a, dev, work, 4, 2, 4, NULL)))
        return;
    CHECK(!alignment_add(a, ALIGNMENT_BEFORE, what, before, 4, NULL));
    CHECK(!alignment_add(a, ALIGNMENT_AFTER, what, after, 4, NULL));
    CHECK(!alignment_finish(a, s, NULL));
    CHECK_EQ(s[0], 1.0f);  /* came from the side */
    CHECK_EQ(s[1], 0.0f);  /* stayed there */
    CHECK_EQ(s[2], -1.0f); /* turned away */
    CHECK_EQ(s[3], 0.0f);  /* never came */
    alignment_close(&a);
}

TEST(equal_scores_keep_the_first)
{
    for (int i = 0; i < VIDEO; i++)
        scores[i] = i % 2 ? -1 : 0.5f;
    CHECK_EQ(choose(scores, kept), 60);
    for (int i = 0; i < 60; i++)
        CHECK_EQ(kept[i], 2 * i);
}

TEST(layers_as_number_or_fraction)
{
    CHECK_EQ(alignment_layers(20, 28), 20);
    CHECK_EQ(alignment_layers(20, 64), 20);
    CHECK_EQ(alignment_layers(20, 6), 6);
    CHECK_EQ(alignment_layers(20.0 / 28, 28), 20);
    CHECK_EQ(alignment_layers(0.71, 6), 4);
    CHECK_EQ(alignment_layers(0.01, 6), 1);
    CHECK_EQ(alignment_layers(1, 6), 1);
    CHECK_EQ(alignment_layers(0, 6), 1);
    CHECK_EQ(alignment_layers(NAN, 6), 1);
}

TEST(lack_of_memory_is_said)
{
    size_t before;
    if (!use_device(1))
        return;
    before = mem_bytes();
    for (uint64_t k = 1; k <= 3; k++) {
        struct alignment *a = NULL;
        struct pv_error err = { 0 };
        mem_fail_at(k);
        CHECK_EQ(alignment_open(&a, dev, work, 10, 10, 10, &err), PV_E_NOMEM);
        mem_fail_at(0);
        CHECK(a == NULL && strstr(err.text, "bytes"));
    }
    CHECK_EQ(mem_bytes(), before);
}

TEST(no_video_is_no_trouble)
{
    static const int text = ALIGNMENT_TEXT;
    static const float row[] = { 1, 2 };
    struct alignment *a = NULL;
    if (!use_device(1) || !CHECK(!alignment_open(&a, dev, work, 0, 2, 1, NULL)))
        return;
    CHECK(!alignment_add(a, ALIGNMENT_BEFORE, &text, row, 1, NULL));
    CHECK(!alignment_finish(a, NULL, NULL));
    alignment_close(&a);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
