/* Rows to and from f32. The hashes are those of ggml's reference functions (dequantize_row_*,
 * quantize_row_*_ref) on the same pseudo-random bytes: equal to the bit. Those of Q4_1, Q5_1 and
 * IQ4_NL are of gguf.quants.dequantize() and quantize() (PyPI's gguf 0.19, numpy), which give the
 * hashes of the others too. */
#include "base/load.h"
#include "tensor/half.h"
#include "tensor/quant.h"
#include "test.h"

#include <float.h>
#include <math.h>

static uint64_t lcg(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state;
}

static uint64_t hash(const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

enum { BLOCKS = 8, VALUES = 4096 };

static const struct {
    enum dtype type;
    uint64_t decoded;
    int scale[2]; /* high bytes of the f16 scales in a block, made finite; -1: none */
} decode_cases[] = {
    { DTYPE_Q8_0, UINT64_C(0xfc85ce30c51dbcc5), { 1, -1 } },
    { DTYPE_Q4_0, UINT64_C(0x25d68a8d4f19efa5), { 1, -1 } },
    { DTYPE_Q5_0, UINT64_C(0x066bfb3bb9595f64), { 1, -1 } },
    { DTYPE_Q4_K, UINT64_C(0xb85e8353eb2810b6), { 1, 3 } },
    { DTYPE_Q5_K, UINT64_C(0x8fe8237c2626ffeb), { 1, 3 } },
    { DTYPE_Q6_K, UINT64_C(0x5fae3d58bf3b9444), { 209, -1 } },
    { DTYPE_Q4_1, UINT64_C(0x6d2afc871453a12f), { 1, 3 } },
    { DTYPE_Q5_1, UINT64_C(0x011a350ea341f1ec), { 1, 3 } },
    { DTYPE_IQ4_NL, UINT64_C(0x545aafceb9896db6), { 1, -1 } },
};

/* BLOCKS random blocks with finite scales; returns their bytes. */
static size_t random_blocks(uint8_t *raw, int which)
{
    enum dtype t = decode_cases[which].type;
    size_t size = (size_t)dtype_block_size(t) * BLOCKS;
    uint64_t state = 1;

    for (size_t i = 0; i < size; i++)
        raw[i] = (uint8_t)(lcg(&state) >> 56);
    for (int b = 0; b < BLOCKS; b++)
        for (int k = 0; k < 2; k++)
            if (decode_cases[which].scale[k] >= 0)
                raw[b * dtype_block_size(t) + decode_cases[which].scale[k]] &= 0xbf;
    return size;
}

TEST(decoding_equals_the_reference)
{
    static uint8_t raw[1 + BLOCKS * 256];
    static float y[BLOCKS * DTYPE_BLOCK_MAX], z[BLOCKS * DTYPE_BLOCK_MAX];

    for (size_t i = 0; i < sizeof decode_cases / sizeof *decode_cases; i++) {
        enum dtype t = decode_cases[i].type;
        int64_t n = BLOCKS * dtype_block(t);
        size_t size = random_blocks(raw, (int)i);
        row_to_f32(y, raw, t, n);
        CHECK_MSG(hash(y, (size_t)n * 4) == decode_cases[i].decoded, "%s decodes differently",
                  dtype_name(t));
        CHECK(row_is_finite(raw, t, n));
        memmove(raw + 1, raw, size); /* at any alignment */
        row_to_f32(z, raw + 1, t, n);
        CHECK(!memcmp(y, z, (size_t)n * 4));
    }
}

TEST(a_scale_that_is_not_finite_is_seen)
{
    static uint8_t raw[BLOCKS * 256];

    for (size_t i = 0; i < sizeof decode_cases / sizeof *decode_cases; i++) {
        enum dtype t = decode_cases[i].type;
        for (int k = 0; k < 2 && decode_cases[i].scale[k] >= 0; k++) {
            size_t last = (size_t)(BLOCKS - 1) * (size_t)dtype_block_size(t);
            random_blocks(raw, (int)i);
            raw[last + (size_t)decode_cases[i].scale[k]] |= 0x7c;
            CHECK_MSG(!row_is_finite(raw, t, BLOCKS * dtype_block(t)), "%s", dtype_name(t));
            CHECK(row_is_finite(raw, t, (BLOCKS - 1) * dtype_block(t)));
        }
    }
}

TEST(plain_values_that_are_not_finite_are_seen)
{
    static const enum dtype plain[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
    static const float bad[] = { INFINITY, -INFINITY, NAN };
    uint8_t raw[16];

    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            float x[4] = { 1, -FLT_MAX, 0, bad[j] };
            x[1] = plain[i] == DTYPE_F32 ? x[1] : -60000.0f;
            row_from_f32(raw, x, plain[i], 4);
            CHECK(row_is_finite(raw, plain[i], 3));
            CHECK(!row_is_finite(raw, plain[i], 4));
        }
    }
}

TEST(encoding_equals_the_reference)
{
    static const struct {
        enum dtype type;
        uint64_t encoded;
    } cases[] = {
        { DTYPE_Q8_0, UINT64_C(0x3e5be0f57d1875ba) }, { DTYPE_Q4_0, UINT64_C(0x7cabb30108309013) },
        { DTYPE_Q4_1, UINT64_C(0xad12b2727fd07883) }, { DTYPE_Q5_1, UINT64_C(0x4a42bcbd348d3c63) },
        { DTYPE_F16, UINT64_C(0xb828f6561d5e6da8) },  { DTYPE_BF16, UINT64_C(0xe60ea6e919b5154e) },
    };
    static float x[VALUES];
    static uint8_t out[VALUES * 4];
    uint64_t state = 2;

    for (int i = 0; i < VALUES; i++)
        x[i] = (float)((int64_t)(lcg(&state) >> 40) - (1 << 23)) / (float)(1 << 23);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        row_from_f32(out, x, cases[i].type, VALUES);
        CHECK_MSG(hash(out, dtype_row_size(cases[i].type, VALUES)) == cases[i].encoded,
                  "%s encodes differently", dtype_name(cases[i].type));
    }
}

/* The largest error of a round trip through one block. */
static float round_trip(const float *x, enum dtype t)
{
    float y[32], worst = 0;
    uint8_t raw[128];

    row_from_f32(raw, x, t, 32);
    row_to_f32(y, raw, t, 32);
    for (int i = 0; i < 32; i++)
        worst = fmaxf(worst, fabsf(x[i] - y[i]));
    return worst;
}

/* Half a step, and what rounding the scale to f16 adds at the far end (127 * 2^-11 steps); the
 * end of Q4_0 opposite to the extreme is clipped by up to a step. */
TEST(round_trips_stay_within_a_step)
{
    uint64_t state = test_seed;
    bool ok = true;

    for (int round = 0; round < 1000 && ok; round++) {
        float x[32], amax = 0;
        for (int i = 0; i < 32; i++) {
            x[i] = ldexpf((float)(int32_t)(lcg(&state) >> 32), -31 - round % 4);
            amax = fmaxf(amax, fabsf(x[i]));
        }
        ok = CHECK(round_trip(x, DTYPE_Q8_0) <= amax / 127 * 0.57f) &&
             CHECK(round_trip(x, DTYPE_Q4_0) <= amax / 8 * 1.01f) &&
             CHECK(round_trip(x, DTYPE_Q4_1) <= amax / 15 * 1.02f) &&
             CHECK(round_trip(x, DTYPE_Q5_1) <= amax / 31 * 1.04f) &&
             CHECK(round_trip(x, DTYPE_BF16) <= amax / 256) &&
             CHECK(round_trip(x, DTYPE_F16) <= amax / 2048) && CHECK(round_trip(x, DTYPE_F32) == 0);
    }
}

TEST(extreme_inputs_encode)
{
    static const float extremes[] = { 0, -0.0f, FLT_MIN / 4, FLT_MAX, INFINITY, NAN, -1e-40f };
    float x[32];
    uint8_t raw[64];

    for (size_t e = 0; e < sizeof extremes / sizeof *extremes; e++) {
        for (int i = 0; i < 32; i++)
            x[i] = i % 3 ? extremes[e] : (float)i;
        for (int t = 0; t < DTYPE_COUNT; t++)
            if (row_can_encode((enum dtype)t) && dtype_row_size((enum dtype)t, 32) <= sizeof raw)
                row_from_f32(raw, x, (enum dtype)t, 32); /* no undefined conversion */
    }
    memset(x, 0, sizeof x);
    row_from_f32(raw, x, DTYPE_Q8_0, 32);
    for (int i = 0; i < 34; i++)
        CHECK_EQ(raw[i], 0);
    row_from_f32(raw, x, DTYPE_Q4_0, 32);
    for (int i = 2; i < 18; i++)
        CHECK_EQ(raw[i], 0x88); /* level 8 is zero */
    row_from_f32(raw, x, DTYPE_Q5_1, 32);
    for (int i = 0; i < 24; i++)
        CHECK_EQ(raw[i], 0);
}

/* One block of each by hand: element 0 is the low nibble of the first byte, 16 the high one, and
 * the fifth bits are in the order of elements. */
TEST(blocks_with_a_min_or_levels)
{
    uint8_t q4_1[20] = { 0x00, 0x38, 0x00, 0xc0, 0xf2 };                   /* d 0.5, m -2 */
    uint8_t q5_1[24] = { 0x00, 0x38, 0x00, 0xc0, 0x01, 0, 0, 0x80, 0xf2 }; /* bits 0 and 31 */
    uint8_t iq4_nl[18] = { 0x00, 0x3c, 0xf0 };                             /* d 1 */
    float y[32];

    row_to_f32(y, q4_1, DTYPE_Q4_1, 32);
    CHECK(y[0] == -1.0f && y[16] == 5.5f && y[1] == -2.0f && y[31] == -2.0f);
    row_to_f32(y, q5_1, DTYPE_Q5_1, 32);
    CHECK(y[0] == 7.0f && y[16] == 5.5f && y[1] == -2.0f && y[31] == 6.0f);
    row_to_f32(y, iq4_nl, DTYPE_IQ4_NL, 32);
    CHECK(y[0] == -127.0f && y[16] == 113.0f && y[1] == -127.0f);
}

/* Every f16 to f32 and back; f32 halfway cases to even. */
TEST(halves)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        if (isnan(f))
            CHECK(isnan(f16_to_f32(f16_from_f32(f))));
        else
            CHECK_EQ(f16_from_f32(f), h);
    }
    CHECK_EQ(f16_from_f32(1.0f + 0x1p-11f), 0x3c00);     /* halfway, to even below */
    CHECK_EQ(f16_from_f32(1.0f + 3 * 0x1p-11f), 0x3c02); /* halfway, to even above */
    CHECK_EQ(f16_from_f32(65519.0f), 0x7bff);
    CHECK_EQ(f16_from_f32(65520.0f), 0x7c00);
    CHECK_EQ(f16_from_f32(0x1p-25f), 0);
    CHECK_EQ(f16_from_f32(0x1.8p-25f), 1);
    CHECK_EQ(bf16_from_f32(1.0f + 0x1p-8f), 0x3f80);
    CHECK_EQ(bf16_from_f32(1.0f + 3 * 0x1p-8f), 0x3f82);
    CHECK_EQ(bf16_from_f32(NAN) & 0x7fc0, 0x7fc0);
    CHECK_EQ(bf16_to_f32(bf16_from_f32(-INFINITY)), -INFINITY);
}

TEST(sizes_and_names)
{
    CHECK_EQ(dtype_row_size(DTYPE_Q4_K, 512), 288);
    CHECK_EQ(dtype_row_size(DTYPE_F16, 3), 6);
    CHECK_EQ(dtype_row_size(DTYPE_Q6_K, 256), 210);
    CHECK_STR(dtype_name(DTYPE_Q4_K), "q4_K");
    CHECK_STR(dtype_name(DTYPE_COUNT), "unknown");
    CHECK(row_can_encode(DTYPE_Q4_0) && !row_can_encode(DTYPE_Q6_K) &&
          !row_can_encode(DTYPE_IQ4_NL));
    CHECK_STR(dtype_name(DTYPE_IQ4_NL), "iq4_nl");
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
