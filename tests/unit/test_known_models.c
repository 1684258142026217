/* The table of published checkpoints: parameters as their indexes count them, and tokens of videos
 * as the engine makes them. */
#include "family/families.h"
#include "family/media.h"
#include "known_models.h"
#include "test.h"

static const struct known_model *known(const char *name)
{
    const struct known_model *m = known_model_find(name);
    if (!m)
        fprintf(stderr, "there is no %s\n", name);
    return m ? m : known_model_at(0);
}

TEST(parameters_are_those_of_the_published_files)
{
    static const struct {
        const char *name;
        unsigned long long n;
    } rows[] = {
        { "Qwen2-VL-2B-Instruct", 2208985600 },      { "Qwen2-VL-7B-Instruct", 8291375616 },
        { "Qwen2.5-VL-3B-Instruct", 3754622976 },    { "Qwen2.5-VL-7B-Instruct", 8292166656 },
        { "Qwen2.5-VL-32B-Instruct", 33452718336 },  { "Qwen2.5-VL-72B-Instruct", 73410777344 },
        { "Qwen3-VL-2B-Instruct", 2127532032 },      { "Qwen3-VL-4B-Instruct", 4437815808 },
        { "Qwen3-VL-8B-Instruct", 8767123696 },      { "Qwen3-VL-32B-Instruct", 33357390064 },
        { "Qwen3-VL-30B-A3B-Instruct", 31070754032 }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_MSG(known_parameters(known(rows[i].name)) == rows[i].n, "%s: %llu, not %llu",
                  rows[i].name, (unsigned long long)known_parameters(known(rows[i].name)),
                  rows[i].n);
    CHECK_EQ(known_parameters(known("llava-onevision-qwen2-7b-ov-hf")) / 10000000, 803);
    CHECK_EQ(known_parameters(known("Qwen3-VL-235B-A22B-Instruct")) / 1000000000, 235);
    CHECK_EQ(known_active_parameters(known("Qwen3-VL-235B-A22B-Instruct")) / 1000000000, 22);
}

TEST(memory_follows_from_the_shape)
{
    const struct known_model *m = known("qwen/qwen2.5-vl-7b-INSTRUCT");
    CHECK_EQ(known_weights(m, KNOWN_16BIT), 16584333312);
    CHECK_EQ(known_kv(m, 1), 57344);
    CHECK_EQ(known_kv(known("Qwen3-VL-32B-Instruct"), 10), 2621440);
    CHECK(known_weights(m, KNOWN_Q8_0) > known_parameters(m) * 34 / 32);
    CHECK(known_weights(m, KNOWN_Q8_0) < known_parameters(m) * 35 / 32);
    CHECK(known_weights(m, KNOWN_Q4_0) > known_parameters(m) * 18 / 32);
}

/* The engine's numbers of a family. */
static int engine_rows(const struct known_model *k, int frames, int height, int width)
{
    static const struct family *const family[] = {
        [KNOWN_LLAVA_OV] = &family_llava_onevision, [KNOWN_LLAVA_VIDEO] = &family_llava_video,
        [KNOWN_QWEN2_VL] = &family_qwen2_vl,        [KNOWN_QWEN2_5_VL] = &family_qwen2_5_vl,
        [KNOWN_QWEN3_VL] = &family_qwen3_vl,        [KNOWN_SALMONN] = &family_salmonn2_plus,
    };
    bool three = k->family == KNOWN_QWEN3_VL, llava = k->family <= KNOWN_LLAVA_VIDEO;
    struct vision_config c = { .family = family[k->family],
                               .patch = three ? 16 : 14,
                               .image = llava ? 384 : 0,
                               .temporal = llava ? 1 : 2,
                               .merge = llava ? 1 : 2,
                               .window = 112,
                               .min_pixels = three ? 65536 : 3136,
                               .max_pixels = three ? 16777216 : 12845056,
                               .video_min_pixels = 4096,
                               .video_max_pixels = 25165824,
                               .tokens_per_second = 2 };
    struct pv_video_params p = pv_video_defaults();
    struct pv_error err = { 0 };
    struct media m = { 0 };
    int n = 0;

    if (k->family == KNOWN_LLAVA_VIDEO)
        c.newline = NEWLINE_LINE;
    if (CHECK_MSG(media_plan(&m, &c, &p, height, width, frames, 2, true, &err) == PV_OK, "%s: %s",
                  k->repo, err.text))
        n = m.n_rows;
    media_clear(&m);
    return n;
}

TEST(tokens_are_those_of_the_engine)
{
    static const int sizes[][2] = { { 720, 1280 }, { 480, 854 }, { 1080, 1920 }, { 90, 160 } };
    static const int frames[] = { 4, 16, 32, 64, 128, 256 };
    for (int i = 0; known_model_at(i); i++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t f = 0; f < sizeof frames / sizeof *frames; f++) {
                const struct known_model *m = known_model_at(i);
                int rows = known_video_tokens(m, frames[f], sizes[s][0], sizes[s][1]);
                int want = engine_rows(m, frames[f], sizes[s][0], sizes[s][1]);
                CHECK_MSG(rows == want, "%s: %d frames of %d x %d: %d tokens, the engine has %d",
                          m->repo, frames[f], sizes[s][1], sizes[s][0], rows, want);
            }
}

TEST(drafters_are_in_the_table_and_smaller)
{
    for (int i = 0; known_model_at(i); i++) {
        const struct known_model *m = known_model_at(i);
        for (const char *at = m->drafters; at && *at; at += strspn(at, " ")) {
            char repo[128];
            const struct known_model *d;
            size_t n = strcspn(at, " ");
            snprintf(repo, sizeof repo, "%.*s", (int)n, at);
            d = known_model_find(repo);
            CHECK_MSG(d && d->family == m->family && known_parameters(d) < known_parameters(m),
                      "%s cannot draft for %s", repo, m->repo);
            at += n;
        }
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
