/* Towers that are quantised when a model is opened (--tower-type): the tensors are those that
 * `convert` writes, video tokens stay near those of the float tower, and bits depend on neither
 * company nor threads. */
#include "family/families.h"
#include "prevue/prevue.h"
#include "same_tower.h"
#include "tiny_tower.h"
#include "tiny_vision.h"

static const struct family *const seeing[] = { &family_llava_onevision, &family_qwen2_5_vl,
                                               &family_qwen2_vl, &family_qwen3_vl };
enum { N_SEEING = sizeof seeing / sizeof *seeing, THREADS = 3 };

static const struct tower_cast to_q8_0 = { .type = DTYPE_Q8_0, .threads = THREADS };

/* ---- tensors ---- */

/* From F32, and from Q8_0 as llama.cpp writes it, with a second matrix of F16. */
TEST(the_tensors_that_convert_writes)
{
    for (int i = 0; i < 2 * N_SEEING; i++) {
        struct tiny_vision m = tiny_vision(seeing[i / 2]);
        struct pv_error err = { 0 };
        char path[256];
        m.text.type = i % 2 ? (int)DTYPE_Q8_0 : (int)DTYPE_F32;
        tiny_vision_gguf(&m, "source", path);
        struct model_file *old = model_file_of(path, NULL), *new = model_file_of(path, NULL);
        if (CHECK(old && new) &&
            CHECK_MSG(!model_file_cast_tower(new, &to_q8_0, &err), "%s", err.text)) {
            same_tower(new, old, DTYPE_Q8_0);
            CHECK_EQ(model_file_vision(old)->ffn % 32, m.ffn % 32);
        }
        model_file_close(&new);
        model_file_close(&old);
    }
}

static bool never(void *user)
{
    ++*(int *)user;
    return false;
}

TEST(refused_and_stopped)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    struct tower_cast how = { .type = DTYPE_Q8_0, .threads = 1, .go_on = never };
    struct pv_error err = { 0 };
    struct model_file *mf;
    char path[256];
    int asked = 0;
    how.user = &asked;
    mf = model_file_of(tiny_vision_gguf(&m, "source", path), NULL);
    CHECK_EQ(model_file_cast_tower(mf, &how, &err), PV_E_CANCELLED);
    CHECK_EQ(asked, 1);
    CHECK(model_file_vision(mf)->ffn == m.ffn);
    model_file_close(&mf);
    m.not_finite = "v.blk.1.ffn_down.weight";
    mf = model_file_of(tiny_vision_gguf(&m, "nan", path), NULL);
    err = (struct pv_error){ 0 };
    CHECK_EQ(model_file_cast_tower(mf, &to_q8_0, &err), PV_E_FORMAT);
    CHECK_MSG(strstr(err.text, "v.blk.1.ffn_down.weight has a number that q8_0 cannot hold"), "%s",
              err.text);
    model_file_close(&mf);
}

TEST(out_of_memory_anywhere)
{
    struct tiny_vision m = tiny_vision(&family_llava_onevision);
    enum pv_status s = PV_E_NOMEM;
    char path[256];
    int k;
    tiny_vision_gguf(&m, "source", path);
    for (k = 1; s && k < 100; k++) {
        struct tower_cast how = { .type = DTYPE_Q8_0, .threads = 1 };
        struct model_file *mf = model_file_of(path, NULL);
        struct pv_error err = { 0 };
        mem_fail_at((uint64_t)k);
        s = model_file_cast_tower(mf, &how, &err);
        mem_fail_at(0);
        CHECK(!s || (s == PV_E_NOMEM && err.text[0]));
        model_file_close(&mf);
    }
    CHECK_EQ(s, PV_OK);
    CHECK(k > 4);
}

TEST(the_public_parameter)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_vl);
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *model = NULL;
    char path[256];
    p.path = tiny_vision_gguf(&m, "source", path);
    p.threads = 2;
    CHECK_EQ(p.tower_type, PV_TOWER_FILE);
    p.tower_type = PV_TOWER_Q8_0;
    CHECK_MSG(!pv_model_open(&model, &p, &err), "%s", err.text);
    CHECK(model && pv_model_has_vision(model));
    pv_model_close(&model);
    p.tower_type = (enum pv_tower_type)2;
    CHECK_EQ(pv_model_open(&model, &p, &err), PV_E_ARG);
    CHECK(!model);
}

/* ---- tokens ---- */

static const struct vision_config siglip = { .family = &family_llava_onevision,
                                             .hidden = 96,
                                             .n_layers = 4,
                                             .n_heads = 2,
                                             .head_dim = 48,
                                             .ffn = 270,
                                             .patch = 7,
                                             .image = 42, /* 6 x 6 patches */
                                             .temporal = 1,
                                             .merge = 1,
                                             .eps = 1e-6f,
                                             .out = 64,
                                             .max_tiles = 9,
                                             .n_grid = 1,
                                             .grid = { { 42, 42 } } };

static const struct vision_config qwen = { .family = &family_qwen2_5_vl,
                                           .hidden = 64,
                                           .n_layers = 4,
                                           .n_heads = 2,
                                           .head_dim = 32,
                                           .ffn = 172,
                                           .patch = 2,
                                           .temporal = 2,
                                           .merge = 2,
                                           .window = 8,
                                           .full = { false, true, false, true },
                                           .eps = 1e-6f,
                                           .out = 64 };

/* Tokens of n slices of side x side patches; freed by the caller. */
static float *encode(const struct vision *v, const float *patches, int n, int side)
{
    size_t row = (size_t)vision_row_size(vision_config(v));
    float *out = malloc(sizeof(float) * (size_t)(n * vision_slice_tokens(v, side, side)) * row);
    struct vision_state *st = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = vision_state_open(&st, v, n * side * side, &err);
    if (!s)
        s = vision_encode(v, st, patches, n, side, side, out, &err);
    CHECK_MSG(!s, "%s", err.text);
    vision_state_close(&st);
    return out;
}

/* The least cosine of a row of a and the same row of b. */
static double least_cosine(const float *a, const float *b, int rows, int width)
{
    double least = 1;
    for (int r = 0; r < rows; r++, a += width, b += width) {
        double ab = 0, aa = 0, bb = 0;
        for (int i = 0; i < width; i++) {
            ab += (double)a[i] * b[i];
            aa += (double)a[i] * a[i];
            bb += (double)b[i] * b[i];
        }
        /* NaN must not pass */
        least = ab / sqrt(aa * bb) >= least ? least : ab / sqrt(aa * bb);
    }
    return least;
}

/* Models made of random numbers, whose outliers and attention are no model's. */
TEST(tokens_stay_near_those_of_the_float_tower)
{
    enum { SLICES = 3 };
    static const enum dtype from[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
    for (int i = 0; i < 6 * N_CPU_LEVELS; i++) {
        const struct vision_config *c = i % 2 ? &qwen : &siglip;
        int level = i / 6, patch = 3 * c->patch * c->patch * c->temporal;
        struct tiny_tower plain, cast;
        double cosine;
        if (!cpu_level_here(level))
            continue;
        tower_make(&plain, c, from[i / 2 % 3], false);
        tower_make(&cast, c, from[i / 2 % 3], false);
        CHECK(!model_file_cast_tower(&cast.mf, &to_q8_0, NULL));
        CHECK(cast.layer[0].down->dtype == DTYPE_Q8_0 && cast.mf.vision.ffn % 32 == 0);
        if (tower_start(&plain, level, 1) && tower_start(&cast, level, THREADS)) {
            float *x = random_floats((size_t)(SLICES * 36 * patch), 5);
            float *want = encode(plain.v, x, SLICES, 6), *have = encode(cast.v, x, SLICES, 6);
            float *alone = encode(cast.v, x + 36 * patch, 1, 6);
            int tokens = vision_slice_tokens(cast.v, 6, 6);
            cosine = least_cosine(want, have, SLICES * tokens, c->out);
            CHECK_MSG(cosine > 0.999, "%s, %s from %s: cosine %.6f", cpu_levels[level].name,
                      c->family->name, dtype_name(from[i / 2 % 3]), cosine);
            CHECK(
                !memcmp(alone, have + tokens * c->out, sizeof *alone * (size_t)(tokens * c->out)));
            free(x);
            free(want);
            free(have);
            free(alone);
        }
        mem_free(cast.mf.cast);
        mem_free(cast.mf.cast_data);
        tower_free(&plain);
        tower_free(&cast);
    }
}

/* A picture of soft stripes and a dark square, as patches of 3 * 16 * 16 numbers. */
static float *drawn_picture(const struct vision_config *c)
{
    int side = vision_side(c), area = c->patch * c->patch;
    float *out = malloc(sizeof(float) * (size_t)(side * side * 3 * area));
    for (int i = 0; i < side * side * 3 * area; i++) {
        int patch = i / (3 * area), channel = i / area % 3, at = i % area;
        int y = patch / side * c->patch + at / c->patch,
            x = patch % side * c->patch + at % c->patch;
        bool dark = y > 60 && y < 140 && x > 100 && x < 180;
        out[i] = dark ? -0.8f : 0.7f * sinf(0.03f * (float)(x + (1 + channel) * y));
    }
    return out;
}

/* A trained model: nano, whose tower is first written in F16. */
TEST(nano_sees_nearly_the_same)
{
    struct model_file *nano = model_file_of("models/nano.gguf", NULL), *mf[2] = { NULL };
    struct device *dev = NULL;
    struct vision *v[2] = { NULL };
    struct pv_error err = { 0 };
    float *x = NULL, *tokens[2] = { NULL };
    char path[128];
    enum pv_status s;
    snprintf(path, sizeof path, "%s/nano-f16.gguf", scratch_dir());
    s = nano ? model_file_write_gguf(nano, path, DTYPE_F16, true, NULL, &err) : PV_E_IO;
    if (!s)
        s = device_cpu_open(&dev, 2, cpu_levels[cpu_level_best()].flags, &err);
    for (int i = 0; i < 2 && !s; i++) {
        mf[i] = model_file_of(path, NULL);
        s = i ? model_file_cast_tower(mf[i], &to_q8_0, &err) : PV_OK;
        if (!s)
            s = vision_open(&v[i], mf[i], dev, &err);
        x = x ? x : drawn_picture(model_file_vision(nano));
        if (!s)
            tokens[i] = encode(v[i], x, 1, vision_side(vision_config(v[i])));
    }
    if (CHECK_MSG(!s, "%s", err.text)) {
        int side = vision_side(vision_config(v[0]));
        double cosine = least_cosine(tokens[0], tokens[1], side * side, vision_config(v[0])->out);
        CHECK_MSG(cosine > 0.995, "cosine %.6f", cosine); /* 0.998 with AVX2 */
    }
    for (int i = 0; i < 2; i++) {
        vision_close(&v[i]);
        model_file_close(&mf[i]);
        free(tokens[i]);
    }
    device_close(&dev);
    model_file_close(&nano);
    free(x);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
