/* The towers against plain double-precision code (tower_reference.h). Then what the interface
 * promises beside the numbers: bits that do not depend on company, memory as said, and refusals. */
#include "family/families.h"
#include "tower_reference.h"

enum { MAX_LAYERS = 3 };

static const struct vision_config siglip = { .family = &family_llava_onevision,
                                             .hidden = 36,
                                             .n_layers = 2,
                                             .n_heads = 2,
                                             .head_dim = 18,
                                             .ffn = 50,
                                             .patch = 3,
                                             .image = 17, /* 5 x 5 patches */
                                             .temporal = 1,
                                             .merge = 1,
                                             .eps = 1e-6f,
                                             .out = 20,
                                             .max_tiles = 9,
                                             .n_grid = 1,
                                             .grid = { { 17, 17 } } };

static const struct vision_config qwen = { .family = &family_qwen2_5_vl,
                                           .hidden = 40,
                                           .n_layers = MAX_LAYERS,
                                           .n_heads = 2,
                                           .head_dim = 20,
                                           .ffn = 30,
                                           .patch = 2,
                                           .temporal = 2,
                                           .merge = 2,
                                           .window = 8, /* 2 x 2 units */
                                           .full = { false, true, false },
                                           .eps = 1e-6f,
                                           .out = 13 };

static const struct vision_config qwen2 = { .family = &family_qwen2_vl,
                                            .hidden = 40,
                                            .n_layers = 2,
                                            .n_heads = 2,
                                            .head_dim = 20,
                                            .ffn = 80,
                                            .patch = 2,
                                            .temporal = 2,
                                            .merge = 2,
                                            .full = { true, true },
                                            .eps = 1e-6f,
                                            .out = 13 };

static const struct vision_config qwen3 = { .family = &family_qwen3_vl,
                                            .hidden = 24,
                                            .n_layers = MAX_LAYERS,
                                            .n_heads = 2,
                                            .head_dim = 12,
                                            .ffn = 30,
                                            .patch = 2,
                                            .temporal = 2,
                                            .merge = 2,
                                            .full = { true, true, true },
                                            .positions = 25,
                                            .n_deepstack = 2,
                                            .deepstack = { 0, 1 },
                                            .eps = 1e-6f,
                                            .out = 13 };

/* One of each tower, with a grid of patches that it takes. */
static const struct {
    const struct vision_config *c;
    int h, w;
} each[] = { { &siglip, 5, 5 }, { &qwen, 6, 10 }, { &qwen2, 6, 10 }, { &qwen3, 6, 10 } };

enum { N_EACH = sizeof each / sizeof *each };

/* For types with blocks of 32. */
static struct vision_config even(struct vision_config c)
{
    c.hidden = 64;
    c.head_dim = 32;
    c.ffn = 96;
    c.out = 32;
    return c;
}

/* ---- the numbers ---- */

static size_t patch_floats(const struct vision_config *c, int n_slices, int h, int w)
{
    return (size_t)n_slices * (size_t)(h * w) * (size_t)tower_patch_size(c);
}

static size_t token_floats(const struct vision *v, int n_slices, int h, int w)
{
    return (size_t)(n_slices * vision_slice_tokens(v, h, w)) *
           (size_t)vision_row_size(vision_config(v));
}

/* Encode with a state of just the right size; NULL (and a failed check) when it fails. */
static float *encode(struct tiny_tower *t, const float *patches, int n_slices, int h, int w)
{
    struct vision_state *st = NULL;
    struct pv_error err = { 0 };
    float *out = malloc(sizeof(float) * token_floats(t->v, n_slices, h, w));
    enum pv_status s = vision_state_open(&st, t->v, n_slices * h * w, &err);
    if (!s)
        s = vision_encode(t->v, st, patches, n_slices, h, w, out, &err);
    vision_state_close(&st);
    if (CHECK_MSG(s == PV_OK, "%s", err.text))
        return out;
    free(out);
    return NULL;
}

/* Root mean square error of all tokens beside the root mean square of what was wanted. */
static double error_of(const float *got, const double *want, size_t n)
{
    double bad = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        bad += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    return sqrt(bad / all);
}

static void check_numbers(const struct vision_config *c, enum dtype type, bool split, int h, int w,
                          double most)
{
    struct tiny_tower t;
    tower_make(&t, c, type, split);
    float *patches = random_floats(patch_floats(c, 2, h, w), 3);
    double *want[2];
    for (size_t s = 0; s < 2; s++)
        want[s] = encode_reference(&t.mf, patches + s * patch_floats(c, 1, h, w), h, w);
    for (int level = 0; level < N_CPU_LEVELS; level++) {
        if (!cpu_level_here(level) || !tower_start(&t, level, 2))
            continue;
        float *got = encode(&t, patches, 2, h, w);
        size_t n = token_floats(t.v, 1, h, w);
        for (size_t s = 0; got && s < 2; s++) {
            double e = error_of(got + s * n, want[s], n);
            CHECK_MSG(e < most, "%s, %s, %d x %d patches, slice %zu: relative error %.3g",
                      dtype_name(type), cpu_levels[level].name, h, w, s, e);
        }
        free(got);
        tower_stop(&t);
    }
    free(want[0]);
    free(want[1]);
    free(patches);
    tower_free(&t);
}

TEST(siglip_numbers)
{
    struct vision_config c = even(siglip);
    check_numbers(&siglip, DTYPE_F32, false, 5, 5, 2e-6);
    check_numbers(&siglip, DTYPE_F16, false, 5, 5, 1e-3);
    check_numbers(&siglip, DTYPE_BF16, false, 5, 5, 1e-2);
    check_numbers(&c, DTYPE_BF16, false, 5, 5, 1e-2);
    check_numbers(&c, DTYPE_Q8_0, false, 5, 5, 3e-2);
}

TEST(qwen2_5_numbers)
{
    static const int grids[][2] = { { 2, 2 }, { 4, 4 }, { 6, 10 }, { 8, 8 }, { 2, 14 }, { 12, 6 } };
    struct vision_config c = even(qwen);
    for (int i = 0; i < 6; i++)
        check_numbers(&qwen, DTYPE_F32, false, grids[i][0], grids[i][1], 2e-6);
    check_numbers(&qwen, DTYPE_F16, false, 6, 10, 1e-3);
    check_numbers(&qwen, DTYPE_BF16, false, 6, 10, 1e-2);
    check_numbers(&c, DTYPE_BF16, false, 6, 10, 1e-2);
    check_numbers(&c, DTYPE_Q8_0, false, 6, 10, 3e-2);
}

/* As mmproj files have it. */
TEST(patches_in_two)
{
    check_numbers(&qwen, DTYPE_F32, true, 6, 10, 2e-6);
    check_numbers(&qwen, DTYPE_F16, true, 6, 10, 1e-3);
    check_numbers(&qwen2, DTYPE_F32, true, 6, 10, 2e-6);
    check_numbers(&qwen3, DTYPE_F32, true, 6, 10, 2e-6);
}

/* Grids smaller and larger than the table of positions, and of its size. */
TEST(qwen2_and_qwen3_numbers)
{
    static const int grids[][2] = { { 2, 2 }, { 4, 4 }, { 6, 10 }, { 2, 14 }, { 12, 6 } };
    struct vision_config a = even(qwen2), b = even(qwen3), same = qwen3;
    same.positions = 36;
    for (int i = 0; i < 5; i++) {
        check_numbers(&qwen2, DTYPE_F32, false, grids[i][0], grids[i][1], 2e-6);
        check_numbers(&qwen3, DTYPE_F32, false, grids[i][0], grids[i][1], 2e-6);
    }
    check_numbers(&same, DTYPE_F32, false, 6, 6, 2e-6);
    check_numbers(&qwen2, DTYPE_F16, false, 6, 10, 1e-3);
    check_numbers(&qwen3, DTYPE_F16, false, 6, 10, 1e-3);
    check_numbers(&a, DTYPE_BF16, false, 6, 10, 1e-2);
    check_numbers(&b, DTYPE_BF16, false, 6, 10, 1e-2);
    check_numbers(&a, DTYPE_Q8_0, false, 6, 10, 3e-2);
    check_numbers(&b, DTYPE_Q8_0, false, 6, 10, 3e-2);
}

/* ---- company ---- */

/* `n` slices together are those encoded alone and two by two, with any number of threads. */
static void check_company(const struct vision_config *c, enum dtype type, int h, int w, int n)
{
    struct tiny_tower t;
    tower_make(&t, c, type, false);
    float *patches = random_floats(patch_floats(c, n, h, w), 9), *all = NULL;
    for (int threads = 1; threads <= 3; threads += 2) {
        const int counts[] = { n, 1, 2 };
        if (!tower_start(&t, cpu_level_best(), threads))
            break;
        size_t per_slice = token_floats(t.v, 1, h, w);
        for (int k = 0; k < 3; k++)
            for (int s = 0; s + counts[k] <= n; s += counts[k]) {
                float *got =
                    encode(&t, patches + (size_t)s * patch_floats(c, 1, h, w), counts[k], h, w);
                if (!all) {
                    all = got; /* one thread, all slices */
                    continue;
                }
                CHECK_MSG(got && !memcmp(got, all + (size_t)s * per_slice,
                                         sizeof(float) * per_slice * (size_t)counts[k]),
                          "%s: slices %d to %d of %d x %d alone, %d threads", dtype_name(type), s,
                          s + counts[k] - 1, h, w, threads);
                free(got);
            }
        tower_stop(&t);
    }
    free(all);
    free(patches);
    tower_free(&t);
}

/* Slices of less and of more than a chunk, none a divisor of it. */
TEST(slices_do_not_depend_on_company)
{
    struct vision_config large = siglip, c = even(qwen), d = even(siglip), e = even(qwen3);
    large.image = 29 * large.patch; /* 841 patches */
    check_company(&siglip, DTYPE_F32, 5, 5, 5);
    check_company(&d, DTYPE_BF16, 5, 5, 5);
    check_company(&d, DTYPE_Q8_0, 5, 5, 5);
    large.grid[0][0] = large.grid[0][1] = large.image;
    check_company(&large, DTYPE_F32, 29, 29, 3);
    check_company(&qwen, DTYPE_F32, 6, 10, 5);
    check_company(&qwen, DTYPE_F32, 30, 28, 3);
    check_company(&c, DTYPE_BF16, 6, 10, 5);
    check_company(&c, DTYPE_F16, 18, 30, 3);
    check_company(&c, DTYPE_Q8_0, 6, 10, 5);
    check_company(&qwen2, DTYPE_F32, 18, 30, 3);
    check_company(&qwen3, DTYPE_F32, 6, 10, 5);
    check_company(&qwen3, DTYPE_F32, 30, 28, 3);
    check_company(&e, DTYPE_BF16, 18, 30, 3);
    check_company(&e, DTYPE_Q8_0, 6, 10, 5);
}

/* A state made for more, used before for other sizes, gives the same. */
TEST(state_is_used_again)
{
    for (int i = 1; i < N_EACH; i++) {
        const struct vision_config *c = each[i].c;
        struct tiny_tower t;
        struct vision_state *st = NULL;
        float *patches = random_floats(patch_floats(c, 3, 12, 12), 4), *want, *got;
        tower_make(&t, c, DTYPE_F32, false);
        if (tower_start(&t, cpu_level_best(), 2) &&
            CHECK_EQ(vision_state_open(&st, t.v, 3 * 144, NULL), PV_OK)) {
            size_t n = token_floats(t.v, 2, 6, 10);
            want = encode(&t, patches, 2, 6, 10);
            got = malloc(sizeof(float) * token_floats(t.v, 3, 12, 12));
            CHECK_EQ(vision_encode(t.v, st, patches, 3, 12, 12, got, NULL), PV_OK);
            CHECK_EQ(vision_encode(t.v, st, patches, 2, 6, 10, got, NULL), PV_OK);
            CHECK(want && !memcmp(want, got, sizeof(float) * n));
            free(want);
            free(got);
        }
        vision_state_close(&st);
        free(patches);
        tower_free(&t);
    }
}

static bool count_down(void *user)
{
    int *left = user;
    return --*left >= 0;
}

/* Stopped before any of its layers, a tower runs none more, and the state is as good as new. */
TEST(stopped_before_any_layer)
{
    for (int i = 0; i < N_EACH; i++) {
        int h = each[i].h, w = each[i].w;
        struct tiny_tower t;
        struct vision_state *st = NULL;
        float *patches = random_floats(patch_floats(each[i].c, 2, h, w), 4), *want, *got;
        tower_make(&t, each[i].c, DTYPE_F32, false);
        if (tower_start(&t, cpu_level_best(), 2) &&
            CHECK_EQ(vision_state_open(&st, t.v, 2 * h * w, NULL), PV_OK)) {
            size_t n = token_floats(t.v, 2, h, w);
            want = encode(&t, patches, 2, h, w);
            got = malloc(sizeof(float) * n);
            for (int k = 0; k <= each[i].c->n_layers; k++) {
                struct pv_error err = { 0 };
                int left = k;
                vision_state_watch(st, (struct vision_watch){ count_down, &left });
                CHECK_EQ(vision_encode(t.v, st, patches, 2, h, w, got, &err),
                         k < each[i].c->n_layers ? PV_E_CANCELLED : PV_OK);
                CHECK_EQ(left, k < each[i].c->n_layers ? -1 : 0);
            }
            CHECK(want && !memcmp(want, got, sizeof(float) * n));
            free(want);
            free(got);
        }
        vision_state_close(&st);
        tower_free(&t);
        free(patches);
    }
}

/* ---- memory ---- */

TEST(encoding_allocates_nothing)
{
    for (int i = 0; i < N_EACH; i++) {
        struct tiny_tower t;
        struct vision_state *st = NULL;
        float *patches = random_floats(patch_floats(each[i].c, 2, each[i].h, each[i].w), 4);
        tower_make(&t, each[i].c, DTYPE_BF16, false);
        if (tower_start(&t, cpu_level_best(), 3) &&
            CHECK_EQ(vision_state_open(&st, t.v, 2 * each[i].h * each[i].w, NULL), PV_OK)) {
            float *out = malloc(sizeof(float) * token_floats(t.v, 2, each[i].h, each[i].w));
            uint64_t before = mem_count();
            CHECK_EQ(vision_encode(t.v, st, patches, 2, each[i].h, each[i].w, out, NULL), PV_OK);
            CHECK_EQ(mem_count(), before);
            free(out);
        }
        vision_state_close(&st);
        free(patches);
        tower_free(&t);
    }
}

/* Blocks of 2 MiB and more are rounded up to huge pages: one of activations, one of the host's, one
 * of the device's scratch. Two small structs and malloc's own words come on top. */
TEST(state_takes_what_its_size_says)
{
    enum { ROUNDING = 3 * (2 << 20) + 4096 };
    static const int patches[] = { 1, 25, 600, 5000, 100000 };
    for (int i = 0; i < 5 * N_EACH; i++) {
        const struct vision_config *c = each[i / 5].c;
        struct tiny_tower t;
        struct vision_state *st = NULL;
        size_t size, before, taken;
        tower_make(&t, c, DTYPE_F32, false);
        if (tower_start(&t, cpu_level_best(), 2)) {
            size = vision_state_size(t.v, patches[i % 5]);
            before = mem_bytes();
            CHECK_EQ(vision_state_open(&st, t.v, patches[i % 5], NULL), PV_OK);
            taken = mem_bytes() - before;
            CHECK_MSG(taken >= size && taken <= size + ROUNDING, "%zu bytes were taken, %zu said",
                      taken, size);
            vision_state_close(&st);
            CHECK(st == NULL);
            CHECK_EQ(mem_bytes(), before);
        }
        tower_free(&t);
    }
}

/* At the widths of the real towers: bytes that one more patch costs, and what is there anyway. */
TEST(memory_of_real_widths)
{
    struct vision so400m = { .c = siglip }, vit = { .c = qwen };
    struct device *dev = NULL;
    if (!CHECK_EQ(device_cpu_open(&dev, 2, cpu_levels[cpu_level_best()].flags, NULL), PV_OK))
        return;
    so400m.c.hidden = 1152, so400m.c.n_heads = 16, so400m.c.head_dim = 72, so400m.c.ffn = 4304;
    so400m.c.patch = 14, so400m.c.image = 384, so400m.c.out = 896;
    so400m.c.grid[0][0] = so400m.c.grid[0][1] = 6 * 384;
    so400m.merger.mm0 = (struct matrix){ .in = 1152, .out = 896 };
    so400m.merger.mm2 = (struct matrix){ .in = 896, .out = 896 };
    vit.c.hidden = 1280, vit.c.n_heads = 16, vit.c.head_dim = 80, vit.c.ffn = 3420;
    vit.c.patch = 14, vit.c.window = 112, vit.c.out = 2048;
    vit.merger.mm0 = (struct matrix){ .in = 5120, .out = 5120 };
    vit.merger.mm2 = (struct matrix){ .in = 5120, .out = 2048 };
    so400m.dev = vit.dev = dev;
    size_t a = (vision_state_size(&so400m, 20000) - vision_state_size(&so400m, 10000)) / 10000;
    size_t b = (vision_state_size(&vit, 20000) - vision_state_size(&vit, 10000)) / 10000;
    size_t fixed_a = vision_state_size(&so400m, 729) - 729 * a;
    size_t fixed_b = vision_state_size(&vit, 1024) - 1024 * b;
    /* x, and a token before and after pooling: 4 * (1152 + 896 * (1 + 196 / 729)) */
    CHECK_MSG(a >= 9155 && a < 9300, "%zu bytes a patch of SigLIP", a);
    CHECK_MSG(b >= 20480 && b < 21000, "%zu bytes a patch of Qwen2.5-VL", b);
    CHECK_MSG(fixed_a < 64 << 20, "%zu bytes beside the patches of SigLIP", fixed_a);
    CHECK_MSG(fixed_b < 64 << 20, "%zu bytes beside the patches of Qwen2.5-VL", fixed_b);
    device_close(&dev);
}

/* Whatever allocation fails, the call says so and holds nothing. */
TEST(failed_allocations)
{
    for (int i = 0; i < N_EACH; i++) {
        struct tiny_tower t;
        bool done = false;
        tower_make(&t, each[i].c, DTYPE_F32, i);
        if (!tower_start(&t, 0, 1))
            return;
        vision_close(&t.v);
        for (uint64_t k = 1; !done && k < 50; k++) {
            struct vision *v = NULL;
            struct vision_state *st = NULL;
            size_t before = mem_bytes();
            mem_fail_at(k);
            enum pv_status s = vision_open(&v, &t.mf, t.dev, NULL);
            if (!s)
                s = vision_state_open(&st, v, 50, NULL);
            mem_fail_at(0);
            done = s == PV_OK;
            CHECK(done ? k > 5 : s == PV_E_NOMEM && !st);
            vision_state_close(&st);
            vision_close(&v);
            CHECK_EQ(mem_bytes(), before);
        }
        CHECK(done);
        tower_free(&t);
    }
}

/* ---- refusals ---- */

static void refuse(struct tiny_tower *t, struct vision_state *st, int n, int h, int w,
                   enum pv_status code, const char *word)
{
    struct pv_error err = { 0 };
    float untouched = 55;
    enum pv_status s = vision_encode(t->v, st, NULL, n, h, w, &untouched, &err);
    CHECK_MSG(s == code && err.code == code, "%s, not %s, for \"%s\"", pv_status_name(s),
              pv_status_name(code), word);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
    CHECK_EQ(untouched, 55.0f);
}

TEST(bad_calls_are_refused)
{
    struct tiny_tower t;
    struct vision_state *st = NULL;
    tower_make(&t, &siglip, DTYPE_F32, false);
    if (tower_start(&t, 0, 1) && CHECK_EQ(vision_state_open(&st, t.v, 50, NULL), PV_OK)) {
        CHECK_EQ(vision_slice_tokens(t.v, 5, 5), 25);
        refuse(&t, st, 1, 5, 4, PV_E_ARG, "5 x 4 patches for a tower that takes 5 x 5");
        refuse(&t, st, 0, 5, 5, PV_E_ARG, "0 slices");
        refuse(&t, st, 3, 5, 5, PV_E_LIMIT, "3 slices of 5 x 5 patches in a state made for 50");
        refuse(&t, st, INT32_MAX, 5, 5, PV_E_LIMIT, "2147483647 slices");
        vision_state_close(&st);
        CHECK_EQ(vision_state_open(&st, t.v, 0, NULL), PV_E_ARG);
    }
    tower_free(&t);
    tower_make(&t, &qwen, DTYPE_F32, false);
    if (tower_start(&t, 0, 1) && CHECK_EQ(vision_state_open(&st, t.v, 50, NULL), PV_OK)) {
        CHECK_EQ(vision_slice_tokens(t.v, 6, 10), 15);
        refuse(&t, st, 1, 5, 4, PV_E_ARG, "5 x 4 patches for a tower that merges 2 x 2");
        refuse(&t, st, 1, 4, 7, PV_E_ARG, "4 x 7 patches");
        refuse(&t, st, 1, -2, 2, PV_E_ARG, "-2 x 2");
        refuse(&t, st, 1, 4, 14, PV_E_LIMIT, "in a state made for 50 patches");
        refuse(&t, st, 65536, 32768, 2, PV_E_LIMIT, "65536 slices");
        vision_state_close(&st);
    }
    tower_free(&t);
}

TEST(models_without_a_tower)
{
    struct model_file mf = { .path = "words" };
    struct vision *v = NULL;
    struct pv_error err = { 0 };
    struct device *dev = NULL;
    CHECK_EQ(device_cpu_open(&dev, 1, 0, NULL), PV_OK);
    CHECK_EQ(vision_open(&v, &mf, dev, &err), PV_E_UNSUPPORTED);
    CHECK(v == NULL);
    CHECK_STR(err.text, "words has no vision tower");
    device_close(&dev);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
