/* FP8 rows: the codes against the definition of E4M3, rounding, exponents, and caches on the CPU,
 * whose attention must have the bits of a BF16 cache that holds the same numbers. */
#include "tensor/f8.h"

#include "base/rng.h"
#include "lm/kvpool.h"
#include "rig.h"
#include "scattered.h"

#include <float.h>
#include <math.h>

/* The number of a code as the format defines it. */
static double defined(int code)
{
    int e = code >> 3 & 15, m = code & 7;
    double x = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
    return code & 0x80 ? -x : x;
}

static bool is_nan_code(int code)
{
    return (code & 0x7f) == 0x7f;
}

TEST(every_code_is_the_number_that_e4m3_defines)
{
    for (int c = 0; c < 256; c++) {
        float f = f8_to_f32((uint8_t)c);
        if (is_nan_code(c)) {
            CHECK(isnan(f) && !signbit(f) == !(c & 0x80));
            continue;
        }
        CHECK_MSG((double)f == defined(c) && !signbit(f) == !(c & 0x80), "code %d is %g, not %g", c,
                  (double)f, defined(c));
        CHECK_MSG(f8_from_f32(f) == c, "code %d comes back as %d", c, f8_from_f32(f));
    }
    CHECK(f8_to_f32(0x7e) == 448 && f8_to_f32(0x08) == 0x1p-6f && f8_to_f32(0x01) == 0x1p-9f);
}

TEST(numbers_between_two_codes_go_to_the_nearer_and_ties_to_the_even_one)
{
    for (int c = 0; c < 0x7e; c++) {
        float low = (float)defined(c), high = (float)defined(c + 1), half = (low + high) / 2;
        for (int sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            int bit = sign ? 0x80 : 0;
            CHECK_EQ(f8_from_f32(s * half), bit | (c + (c & 1)));
            CHECK_EQ(f8_from_f32(s * nextafterf(half, 0)), bit | c);
            CHECK_EQ(f8_from_f32(s * nextafterf(half, 1000)), bit | (c + 1));
        }
    }
}

TEST(too_large_numbers_saturate_and_nan_stays_nan)
{
    static const float large[] = { 448, 449, 464, 480, 1e9f, FLT_MAX, INFINITY };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        CHECK_EQ(f8_from_f32(large[i]), 0x7e);
        CHECK_EQ(f8_from_f32(-large[i]), 0xfe);
    }
    CHECK_EQ(f8_from_f32(nextafterf(432, 1000)), 0x7e); /* between 416 and 448 */
    CHECK_EQ(f8_from_f32(432), 0x7e);                   /* a tie */
    CHECK(is_nan_code(f8_from_f32(NAN)) && is_nan_code(f8_from_f32(-NAN)));
    CHECK_EQ(f8_from_f32(FLT_MIN / 4), 0);
    CHECK_EQ(f8_from_f32(-0.0f), 0x80);
}

TEST(the_exponent_is_the_smallest_that_holds_the_row)
{
    struct rng r = { 5 };
    for (int i = 0; i < 4000; i++) {
        float most =
            ldexpf(1 + (float)(rng_next(&r) % 1000) / 1000, (int)(rng_next(&r) % 100) - 85);
        uint8_t e = f8_exponent(most);
        double f = (double)f8_factor(e);
        CHECK_MSG(most <= 448 * f && most > 224 * f, "%g has the factor %g", (double)most, f);
        CHECK(f8_factor(e) * f8_inverse(e) == 1);
    }
    CHECK(f8_factor(f8_exponent(F8_ROW_MOST)) == 128 && f8_factor(f8_exponent(448)) == 1);
    CHECK(f8_factor(f8_exponent(nextafterf(448, 1000))) == 2);
    CHECK(f8_factor(f8_exponent(0)) == 0x1p-100f && f8_factor(0) == 0);
    CHECK(f8_limit(NAN) == F8_ROW_MOST && f8_limit(-INFINITY) == -F8_ROW_MOST);
}

TEST(every_stored_number_is_exact_in_bf16)
{
    for (int e = F8_EXPONENT_LEAST; e <= 7; e++)
        for (int c = 0; c < 256; c++) {
            float x = f8_finite((uint8_t)c) * f8_factor((uint8_t)(F8_EXPONENT_BIAS + e));
            if (!is_nan_code(c))
                CHECK((double)x == ldexp(defined(c), e) && (f32_bits(x) & 0xffff) == 0);
        }
}

/* ---- caches ---- */

enum { HEADS = 6, N_KV = 2, D = 32, ROWS = 35, SLOTS = 600, CAP = 768 };

static const struct work_shape shape = { .rows = 64,
                                         .in = 256,
                                         .n_heads = HEADS,
                                         .n_kv_heads = N_KV,
                                         .head_dim = D,
                                         .context = CAP,
                                         .kv_dtype = DTYPE_F8 };

static float *random_rows(struct rng *r, size_t n)
{
    float *x = malloc(sizeof *x * n * D);
    for (size_t i = 0; i < n; i++) {
        float size = ldexpf(1, (int)(rng_next(r) % 16) - 8); /* rows of many sizes */
        for (int j = 0; j < D; j++)
            x[i * D + (size_t)j] = size * ((float)(rng_next(r) % 20001) / 10000 - 1);
    }
    return x;
}

/* What a cache of F8 makes of the rows: from the definition. */
static void round_rows(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float most = 0;
        int e = F8_EXPONENT_LEAST;
        for (int j = 0; j < D; j++)
            most = fmaxf(most, fabsf(x[i * D + (size_t)j]));
        while (ldexp(448, e) < (double)most)
            e++;
        for (int j = 0; j < D; j++) {
            float *at = &x[i * D + (size_t)j];
            *at = (float)ldexp(defined(f8_from_f32((float)ldexp((double)*at, -e))), e);
        }
    }
}

struct fixture {
    struct device *dev;
    struct device_work *w;
    const struct device_ops *ops;
};

static bool fixture_open(struct fixture *f, int level, int threads)
{
    *f = (struct fixture){ 0 };
    if (!CHECK(!device_cpu_open(&f->dev, threads, cpu_levels[level].flags, NULL)))
        return false;
    f->ops = f->dev->ops;
    return CHECK(!f->ops->work_open(f->dev, &f->w, &shape, NULL));
}

static void fixture_close(struct fixture *f)
{
    f->ops->work_close(f->dev, &f->w);
    device_close(&f->dev);
}

/* A chain and a tree over one cache. */
static void attend(struct fixture *f, const struct kv_layer *kv, const float *q, float *out)
{
    static const int parent[] = { -1, -1, 0, 0, 2, 4, 4, 6, 1, 8, 5, 10, 11, 12 };
    struct attn_run runs[2] = { { 0, 21, SLOTS - 21, NULL, kv, 0 },
                                { 21, 14, SLOTS - 14, parent, kv, 0 } };
    struct attn_job job = {
        .out = out, .q = q, .n_heads = HEADS, .scale = 0.25f, .n_runs = 2, .runs = runs
    };
    f->ops->attention(f->w, &job);
}

static void column_sums(struct fixture *f, const struct kv_layer *kv, const float *q, float *sums)
{
    static const int rows[] = { 0, 3, 20 };
    int keys[SLOTS / 2];
    struct attn_run run = { 0, 21, SLOTS - 21, NULL, kv, 0 };
    for (int i = 0; i < SLOTS / 2; i++)
        keys[i] = 2 * i;
    struct column_job job = { .sums = sums,
                              .q = q,
                              .n_heads = HEADS,
                              .scale = 0.25f,
                              .run = &run,
                              .n_rows = 3,
                              .rows = rows,
                              .n_keys = SLOTS / 2,
                              .keys = keys };
    memset(sums, 0, sizeof *sums * SLOTS);
    f->ops->attention_columns(f->w, &job);
}

static void compare_caches(int level, int threads)
{
    struct rng r = { 7 };
    struct fixture f;
    float *k = random_rows(&r, SLOTS * N_KV), *v = random_rows(&r, SLOTS * N_KV);
    float *q = random_rows(&r, ROWS * HEADS), *out[2], sums[2][SLOTS];
    struct kv_layer kv[2] = { scattered_open(DTYPE_F8, N_KV, D, CAP, &r),
                              scattered_open(DTYPE_BF16, N_KV, D, CAP, &r) };
    for (size_t i = 0; i < (size_t)ROWS * HEADS * D; i++)
        q[i] = fmodf(q[i], 1);
    if (!fixture_open(&f, level, threads))
        return;
    for (int i = 0; i < 2; i++) {
        out[i] = malloc(sizeof(float) * ROWS * HEADS * D);
        f.ops->kv_write(f.w, &kv[i], 0, k, v, SLOTS - 100); /* in two pieces */
        f.ops->kv_write(f.w, &kv[i], SLOTS - 100, k + (SLOTS - 100) * N_KV * D,
                        v + (SLOTS - 100) * N_KV * D, 100);
        attend(&f, &kv[i], q, out[i]);
        column_sums(&f, &kv[i], q, sums[i]);
        round_rows(k, SLOTS * N_KV); /* the second cache gets what the first one should hold */
        round_rows(v, SLOTS * N_KV);
    }
    CHECK_MSG(!memcmp(out[0], out[1], sizeof(float) * ROWS * HEADS * D),
              "%s: attention has other bits than over a BF16 cache", cpu_levels[level].name);
    CHECK_MSG(!memcmp(sums[0], sums[1], sizeof(float) * SLOTS / 2), "%s: columns have other bits",
              cpu_levels[level].name);
    fixture_close(&f);
    for (int i = 0; i < 2; i++) {
        scattered_close(&kv[i]);
        free(out[i]);
    }
    free(k);
    free(v);
    free(q);
}

TEST(attention_has_the_bits_of_a_bf16_cache_with_the_same_numbers)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int threads = 1; threads <= 3 && cpu_level_here(level); threads += 2)
            compare_caches(level, threads);
}

/* Slots that are moved or copied are what they would be had they been written there. */
TEST(slots_keep_their_exponents_when_they_move)
{
    enum { N = 300 };
    static const int to[] = { 2, 3, 4, 5 }, from[] = { 2, 9, 200, 299 }, at[] = { 290, 0, 256, 17 };
    struct rng r = { 9 };
    struct fixture f;
    float *k = random_rows(&r, N * N_KV), *v = random_rows(&r, N * N_KV), out[2][ROWS * HEADS * D];
    float *q = random_rows(&r, ROWS * HEADS);
    size_t row = N_KV * D;
    if (!fixture_open(&f, 0, 1))
        return;
    for (int what = 0; what < 2; what++) { /* move, copy */
        struct kv_layer kv[2] = { scattered_open(DTYPE_F8, N_KV, D, CAP, &r),
                                  scattered_open(DTYPE_F8, N_KV, D, CAP, &r) };
        for (int i = 0; i < 2; i++)
            f.ops->kv_write(f.w, &kv[i], 0, k, v, N);
        if (what)
            f.ops->kv_copy(f.w, &kv[0], &kv[1], at, from, 4);
        else
            f.ops->kv_move(f.w, &kv[0], to, from, 4);
        for (int i = 0; i < 4; i++)
            f.ops->kv_write(f.w, &kv[1], what ? at[i] : to[i], k + (size_t)from[i] * row,
                            v + (size_t)from[i] * row, 1);
        for (int i = 0; i < 2; i++) {
            struct attn_run run = { 0, ROWS, N - ROWS, NULL, &kv[i], 0 };
            struct attn_job job = {
                .out = out[i], .q = q, .n_heads = HEADS, .scale = 0.25f, .n_runs = 1, .runs = &run
            };
            f.ops->attention(f.w, &job);
        }
        CHECK_MSG(!memcmp(out[0], out[1], sizeof out[0]), "slots %s", what ? "copied" : "moved");
        scattered_close(&kv[0]);
        scattered_close(&kv[1]);
    }
    fixture_close(&f);
    free(k);
    free(v);
    free(q);
}

/* Numbers that are not finite are reported, and what is stored is finite. */
TEST(infinities_are_stored_as_the_largest_number)
{
    struct rng r = { 3 };
    struct pv_error err = { 0 };
    struct fixture f;
    float *k = random_rows(&r, N_KV), *v = random_rows(&r, N_KV);
    struct kv_layer kv = scattered_open(DTYPE_F8, N_KV, D, CAP, &r);
    k[3] = INFINITY;
    v[5] = NAN;
    if (!fixture_open(&f, 0, 1))
        return;
    f.ops->kv_write(f.w, &kv, 0, k, v, 1);
    CHECK_EQ(f.ops->wait(f.w, &err), PV_E_NOT_FINITE);
    for (int h = 0; h < N_KV; h++) {
        const uint8_t *code = kv_page_at(&kv, kv.k, h, 0);
        for (int i = 0; i < D; i++)
            CHECK(!is_nan_code(code[i]));
        CHECK(kv_exponents_at(&kv, kv.k, h, 0)[0] <= F8_EXPONENT_BIAS + 7);
    }
    CHECK_EQ(((const uint8_t *)kv_page_at(&kv, kv.v, 0, 0))[5 * KV_CHUNK], 0x7e);
    fixture_close(&f);
    scattered_close(&kv);
    free(k);
    free(v);
}

TEST(a_page_has_half_the_bytes_of_bf16_and_an_exponent_for_each_row)
{
    struct config c = { .n_layers = 28, .n_kv_heads = 4, .head_dim = 128 };
    CHECK_EQ(kvpool_page_size(&c, DTYPE_BF16), 2 * 28 * 4 * 256 * 128 * 2);
    CHECK_EQ(kvpool_page_size(&c, DTYPE_F8), 2 * 28 * 4 * 256 * 129);
    CHECK_STR(dtype_name(DTYPE_F8), "fp8");
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
