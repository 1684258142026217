/* The plans and choices of lossy methods on inputs whose answer is known. */
#include "spec/lossy.h"

#include "base/mem.h"
#include "test.h"

#include <math.h>
#include <string.h>

static struct lossy_plan plan_of(const char *text, int n_layers)
{
    struct lossy_plan p = { .n = 0 };
    struct pv_error err = { 0 };
    CHECK_MSG(lossy_plan(&p, text, n_layers, &err) == PV_OK, "%s", err.text);
    return p;
}

static void check_stages(const char *text, int n_layers, const int *layer0, const double *keep,
                         int n)
{
    struct lossy_plan p = plan_of(text, n_layers);
    CHECK_EQ(p.n, n);
    for (int i = 0; i < p.n && i < n; i++) {
        int end = i + 1 < n ? layer0[i + 1] : n_layers;
        CHECK_MSG(p.stage[i].layer0 == layer0[i] && p.stage[i].layer1 == end,
                  "%s of %d layers: stage %d has layers %d to %d", text, n_layers, i,
                  p.stage[i].layer0, p.stage[i].layer1);
        CHECK_MSG(fabs(p.stage[i].keep - keep[i]) < 1e-9, "%s: stage %d keeps %g", text, i,
                  p.stage[i].keep);
    }
}

TEST(plans_are_the_published_ones)
{
    check_stages("fastv:0.5", 32, (int[]){ 0, 2 }, (double[]){ 1, 0.5 }, 2);
    check_stages("sparsevlm:0.936", 32, (int[]){ 0, 2, 6, 15 }, (double[]){ 1, 0.4, 0.16, 0.064 },
                 4);
    check_stages("pyramiddrop:0.875", 32, (int[]){ 0, 8, 16, 24 },
                 (double[]){ 1, 0.5, 0.25, 0.125 }, 4);
    check_stages("dycoke:0.4", 32, (int[]){ 0 }, (double[]){ 0.6 }, 1);
    check_stages("dycoke:0.9", 32, (int[]){ 0, 4 }, (double[]){ 0.475, 0.1 }, 2);
}

TEST(plans_fit_models_of_few_layers)
{
    check_stages("fastv:0.9", 2, (int[]){ 0, 1 }, (double[]){ 1, 0.1 }, 2);
    check_stages("sparsevlm:0.936", 8, (int[]){ 0, 1, 2, 4 }, (double[]){ 1, 0.4, 0.16, 0.064 }, 4);
    check_stages("pyramiddrop:0.75", 3, (int[]){ 0, 1, 2 },
                 (double[]){ 1, pow(0.25, 1.0 / 3), 0.25 }, 3);
    check_stages("dycoke:0.9", 3, (int[]){ 0, 2 }, (double[]){ 0.475, 0.1 }, 2);
    for (int i = 0; lossy_name(i); i++)
        for (int n = 2; n < 90; n++) {
            char text[64];
            struct lossy_plan p;
            int at = 0;
            snprintf(text, sizeof text, "%s:0.8", lossy_name(i));
            p = plan_of(text, n);
            for (int g = 0; g < p.n; g++) {
                CHECK(p.stage[g].layer0 == at && p.stage[g].layer1 > at);
                at = p.stage[g].layer1;
            }
            CHECK_EQ(at, n);
            CHECK(fabs(p.stage[p.n - 1].keep - 0.2) < 1e-9);
        }
}

TEST(what_is_no_plan_is_refused)
{
    static const char *const wrong[] = { "",           "fastv",       "fastv:",    "fastv:1",
                                         "fastv:-0.1", "fastv:0.5x",  "fast:0.5",  "fastv:nan",
                                         "fastv: 0.5", "fastv:0.995", "fastvx:0.5" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct lossy_plan p = { .n = -7 };
        struct pv_error err = { 0 };
        CHECK_MSG(lossy_plan(&p, wrong[i], 8, &err) == PV_E_ARG && err.text[0] && p.n == -7,
                  "\"%s\" was taken", wrong[i]);
    }
    CHECK(lossy_plan(&(struct lossy_plan){ 0 }, "fastv:0.5", 1, NULL) == PV_E_UNSUPPORTED);
}

TEST(the_highest_scores_stay)
{
    const float score[] = { 1, 3, 2, 3, 0, 3 };
    int kept[6];
    CHECK(lossy_highest(kept, score, 6, 2, NULL) == PV_OK && kept[0] == 1 && kept[1] == 3);
    CHECK(lossy_highest(kept, score, 6, 4, NULL) == PV_OK && kept[0] == 1 && kept[1] == 2 &&
          kept[2] == 3 && kept[3] == 5);
    CHECK_EQ(lossy_budget(10, 0.25), 3);
    CHECK_EQ(lossy_budget(10, 0.01), 1);
    CHECK_EQ(lossy_budget(0, 0.5), 0);
}

/* Frames of 4 tokens of width 2; token t of frame f turns by f times a step of its own. */
TEST(time_merges_what_stays_the_same)
{
    static const double step[4] = { 0, 0.3, 0.1, 0.2 };
    float features[8 * 4 * 2];
    struct view_input in = { .n_frames = 8, .frame_tokens = 4, .features = features, .width = 2 };
    int kept[32], n;
    for (int i = 0; i < 32; i++) {
        features[2 * i] = (float)cos(step[i % 4] * (i / 4));
        features[2 * i + 1] = (float)sin(step[i % 4] * (i / 4));
    }
    /* Half of all: two thirds of a later frame go; of 4 tokens 1 stays, the one that turns most. */
    CHECK(lossy_merge_time(&in, 0.5, 1, kept, &n, NULL) == PV_OK);
    CHECK_EQ(n, 2 * 4 + 6);
    for (int i = 0, at = 0; i < 32; i++) {
        bool stays = i / 4 % 4 == 0 || i % 4 == 1;
        CHECK(!stays || kept[at] == i);
        at += stays;
    }
    /* At most 0.3 of a frame: 3 of 4 stay. */
    CHECK(lossy_merge_time(&in, 0.1, 0.3, kept, &n, NULL) == PV_OK);
    CHECK_EQ(n, 2 * 4 + 6 * 3);
    in.n_frames = 1;
    CHECK(lossy_merge_time(&in, 0.5, 1, kept, &n, NULL) == PV_OK && n == 4);
}

TEST(raters_are_text_that_the_video_is_like)
{
    const float text[] = { 3, 0, 0, 3, -3, 0 }, video[] = { 1, 0.1f, 1, -0.1f, 0.9f, 0 };
    bool rates[3];
    CHECK(lossy_raters(rates, text, 3, video, 3, 2, NULL) == PV_OK);
    CHECK(rates[0] && !rates[1] && !rates[2]);
    const float same[] = { 1, 2, 1, 2 };
    CHECK(lossy_raters(rates, same, 2, video, 3, 2, NULL) == PV_OK && rates[0] && rates[1]);
}

TEST(recycled_tokens_are_of_the_budget)
{
    struct lossy_recycling r = lossy_recycle(1000, 400);
    CHECK_EQ(r.clustered, 180);
    CHECK_EQ(r.clusters, 19);
    CHECK_EQ(r.kept + r.clusters, 400);
    r = lossy_recycle(10, 9);
    CHECK(r.kept == 9 && r.clusters == 0);
    r = lossy_recycle(4000, 30); /* no room for its clusters */
    CHECK(r.kept == 30 && r.clusters == 0);
}

/* Three heaps: their means take the places of their densest rows. */
TEST(clusters_become_means)
{
    float rows[] = { 0, 0, 0.1f, 0, 0, 0.1f, 9, 9, 9.1f, 9, 9, 9.1f, -9, 9, -9, 9.2f, -9.1f, 9.1f };
    int centre[3];
    CHECK(lossy_cluster(rows, 9, 2, 3, centre, NULL) == PV_OK);
    for (int k = 0; k < 3; k++) {
        static const float mean[3][2] = { { 0.1f / 3, 0.1f / 3 },
                                          { 9 + 0.1f / 3, 9 + 0.1f / 3 },
                                          { -9 - 0.1f / 3, 9.1f } };
        CHECK_EQ(centre[k] / 3, k);
        for (int i = 0; i < 2; i++)
            CHECK(fabsf(rows[2 * centre[k] + i] - mean[k][i]) < 1e-5f);
    }
}

TEST(attention_turns)
{
    const float a[] = { 1, 0, 1 }, b[] = { 2, 0.1f, 2 }, c[] = { 0, 1, 1 }, none[3] = { 0 };
    CHECK(!lossy_turned(a, b, 3) && lossy_turned(a, c, 3) && !lossy_turned(a, a, 3));
    CHECK(!lossy_turned(none, none, 3));
}

TEST(without_memory_nothing_is_leaked)
{
    size_t before = mem_bytes();
    float rows[12] = { 0 };
    int kept[6], failures = 0;
    bool rates[2];
    for (uint64_t a = 1; a <= 6; a++) {
        for (int what = 0; what < 3; what++) {
            enum pv_status s;
            mem_fail_at(a);
            s = what == 0   ? lossy_highest(kept, rows, 6, 3, NULL)
                : what == 1 ? lossy_cluster(rows, 6, 2, 2, kept, NULL)
                            : lossy_raters(rates, rows, 2, rows, 4, 2, NULL);
            mem_fail_at(0);
            failures += s == PV_E_NOMEM;
        }
    }
    CHECK(failures >= 6);
    CHECK_EQ(mem_bytes(), before);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
