/* Rows of any dtype to and from f32. The block layouts and the rounding are those of GGUF's
 * reference implementation, so that a file quantised here has the bytes it would have there:
 * the inverse scale comes from the f32 scale before that is rounded to f16, Q8_0 rounds half away
 * from zero, Q4_0 truncates after adding 8.5, Q4_1 and Q5_1 after adding 0.5. Products are
 * evaluated left to right in f32, never fused (-ffp-contract=off), which makes decoding
 * reproducible to the bit as well.
 *
 * All multi-byte fields are little-endian and loaded at any alignment: rows of safetensors files
 * and odd-sized blocks are not aligned. */
#include "tensor/quant.h"

#include "base/load.h"
#include "tensor/half.h"

#include <float.h>
#include <math.h>

enum { QK = 32, QK_K = 256 }; /* elements of a simple block and of a super-block */

static float load_f16(const uint8_t *p)
{
    return f16_to_f32(load_le16(p));
}

/* { f16 d; i8 q[32] }: x = q * d */
static void decode_q8_0(float *y, const uint8_t *b)
{
    float d = load_f16(b);
    for (int i = 0; i < QK; i++)
        y[i] = (float)(int8_t)b[2 + i] * d;
}

/* { f16 d; u8 q[16] }: element i in the low nibble of byte i, i + 16 in the high; x = (q-8) * d */
static void decode_q4_0(float *y, const uint8_t *b)
{
    float d = load_f16(b);
    for (int i = 0; i < QK / 2; i++) {
        y[i] = (float)((b[2 + i] & 15) - 8) * d;
        y[i + QK / 2] = (float)((b[2 + i] >> 4) - 8) * d;
    }
}

/* { f16 d; u32 high; u8 q[16] }: as Q4_0 with bit i of `high` as fifth bit; x = (q-16) * d */
static void decode_q5_0(float *y, const uint8_t *b)
{
    float d = load_f16(b);
    uint32_t high = load_le32(b + 2);
    for (int i = 0; i < QK / 2; i++) {
        int lo = (b[6 + i] & 15) | (int)((high >> i & 1) << 4);
        int hi = (b[6 + i] >> 4) | (int)((high >> (i + 16) & 1) << 4);
        y[i] = (float)(lo - 16) * d;
        y[i + QK / 2] = (float)(hi - 16) * d;
    }
}

/* { f16 d, m; u8 q[16] }: nibbles as in Q4_0; x = q * d + m */
static void decode_q4_1(float *y, const uint8_t *b)
{
    float d = load_f16(b), m = load_f16(b + 2);
    for (int i = 0; i < QK / 2; i++) {
        y[i] = (float)(b[4 + i] & 15) * d + m;
        y[i + QK / 2] = (float)(b[4 + i] >> 4) * d + m;
    }
}

/* { f16 d, m; u32 high; u8 q[16] }: quants as in Q5_0; x = q * d + m */
static void decode_q5_1(float *y, const uint8_t *b)
{
    float d = load_f16(b), m = load_f16(b + 2);
    uint32_t high = load_le32(b + 4);
    for (int i = 0; i < QK / 2; i++) {
        int lo = (b[8 + i] & 15) | (int)((high >> i & 1) << 4);
        int hi = (b[8 + i] >> 4) | (int)((high >> (i + 16) & 1) << 4);
        y[i] = (float)lo * d + m;
        y[i + QK / 2] = (float)hi * d + m;
    }
}

const int8_t iq4_nl_levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113 };

/* { f16 d; u8 q[16] }: nibbles as in Q4_0, each the number of a level; x = d * level */
static void decode_iq4_nl(float *y, const uint8_t *b)
{
    float d = load_f16(b);
    for (int i = 0; i < QK / 2; i++) {
        y[i] = d * (float)iq4_nl_levels[b[2 + i] & 15];
        y[i + QK / 2] = d * (float)iq4_nl_levels[b[2 + i] >> 4];
    }
}

/* The j-th of the eight 6-bit (scale, min) pairs packed in 12 bytes. */
static void scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

/* { f16 d, dmin; u8 s[12]; [u8 high[32];] u8 q[128] }: eight sub-blocks of 32; bytes 32g.. hold
 * sub-block 2g in the low and 2g+1 in the high nibbles; x = (d * scale) * q - dmin * min.
 * `high` is NULL for Q4_K; for Q5_K bit j of high[i] is the fifth bit of sub-block j. */
static void decode_k45(float *y, const uint8_t *b, const uint8_t *high, const uint8_t *q)
{
    float d = load_f16(b), dmin = load_f16(b + 2);

    for (int j = 0; j < QK_K / QK; j++) {
        const uint8_t *qj = q + j / 2 * QK;
        int shift = j % 2 * 4, scale, min;
        float dj, mj;

        scale_min(b + 4, j, &scale, &min);
        dj = d * (float)scale;
        mj = dmin * (float)min;
        for (int i = 0; i < QK; i++) {
            int v = qj[i] >> shift & 15;
            if (high)
                v |= (high[i] >> j & 1) << 4;
            y[j * QK + i] = dj * (float)v - mj;
        }
    }
}

static void decode_q4_k(float *y, const uint8_t *b)
{
    decode_k45(y, b, NULL, b + 16);
}

static void decode_q5_k(float *y, const uint8_t *b)
{
    decode_k45(y, b, b + 16, b + 48);
}

/* { u8 low[128]; u8 high[64]; i8 s[16]; f16 d }: two halves of 128 in four groups of 32; group g
 * has its low nibbles in low[32 (g%2) ..], high bits 2g of high[..]; x = (d * s) * (q - 32). */
static void decode_q6_k(float *y, const uint8_t *b)
{
    float d = load_f16(b + 208);

    for (int half = 0; half < 2; half++) {
        const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
        const uint8_t *scale = b + 192 + 8 * half;
        for (int g = 0; g < 4; g++) {
            for (int i = 0; i < 32; i++) {
                int q = (low[32 * (g % 2) + i] >> (g / 2 * 4) & 15) | (high[i] >> 2 * g & 3) << 4;
                float s = (float)(int8_t)scale[2 * g + i / 16];
                y[128 * half + 32 * g + i] = d * s * (float)(q - 32);
            }
        }
    }
}

typedef void decode_fn(float *y, const uint8_t *block);

static decode_fn *const decode_block[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = decode_q8_0, [DTYPE_Q4_0] = decode_q4_0, [DTYPE_Q5_0] = decode_q5_0,
    [DTYPE_Q4_K] = decode_q4_k, [DTYPE_Q5_K] = decode_q5_k, [DTYPE_Q6_K] = decode_q6_k,
    [DTYPE_Q4_1] = decode_q4_1, [DTYPE_Q5_1] = decode_q5_1, [DTYPE_IQ4_NL] = decode_iq4_nl,
};

void row_to_f32(float *y, const void *src, enum dtype t, int64_t n)
{
    const uint8_t *p = src;

    if (t == DTYPE_F32) {
        memcpy(y, p, (size_t)n * sizeof *y);
    } else if (t == DTYPE_F16) {
        for (int64_t i = 0; i < n; i++)
            y[i] = load_f16(p + 2 * i);
    } else if (t == DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++)
            y[i] = bf16_to_f32(load_le16(p + 2 * i));
    } else {
        int block = dtype_block(t), size = dtype_block_size(t);
        for (int64_t i = 0; i < n / block; i++)
            decode_block[t](y + i * block, p + i * size);
    }
}

/* C leaves the conversion of an out-of-range float to an integer undefined; weights with
 * infinities or a subnormal scale get here, so the value is bounded first (NaN becomes `low`). */
static float bounded(float v, float low, float high)
{
    return v > low ? (v < high ? v : high) : low;
}

static void encode_q8_0(uint8_t *b, const float *x)
{
    float amax = 0, d, inverse;

    for (int i = 0; i < QK; i++)
        amax = amax > fabsf(x[i]) ? amax : fabsf(x[i]);
    d = amax / 127;
    inverse = d != 0 ? 1 / d : 0;
    store_le16(b, f16_from_f32(d));
    for (int i = 0; i < QK; i++)
        b[2 + i] = (uint8_t)(int8_t)bounded(roundf(x[i] * inverse), -128, 127);
}

static int q4_level(float v)
{
    return (int)bounded(v + 8.5f, 0, 15);
}

static void encode_q4_0(uint8_t *b, const float *x)
{
    float amax = 0, extreme = 0, d, inverse;

    for (int i = 0; i < QK; i++) {
        if (fabsf(x[i]) > amax) {
            amax = fabsf(x[i]);
            extreme = x[i];
        }
    }
    d = extreme / -8; /* the extreme lands on level 0, which has no counterpart above */
    inverse = d != 0 ? 1 / d : 0;
    store_le16(b, f16_from_f32(d));
    for (int i = 0; i < QK / 2; i++)
        b[2 + i] = (uint8_t)(q4_level(x[i] * inverse) | q4_level(x[i + QK / 2] * inverse) << 4);
}

/* Q4_1 (top 15) and Q5_1 (top 31): the smallest value at level 0, the largest at `top`. The fifth
 * bits of Q5_1 lie between the two f16 and the nibbles. */
static void encode_min(uint8_t *b, const float *x, int top)
{
    float low = FLT_MAX, high = -FLT_MAX, d, inverse;
    uint8_t *q = top > 15 ? b + 8 : b + 4;
    uint32_t fifth = 0;

    for (int i = 0; i < QK; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    d = (high - low) / (float)top;
    inverse = d != 0 ? 1 / d : 0;
    store_le16(b, f16_from_f32(d));
    store_le16(b + 2, f16_from_f32(low));
    for (int i = 0; i < QK / 2; i++) {
        uint32_t lo = (uint32_t)bounded((x[i] - low) * inverse + 0.5f, 0, (float)top);
        uint32_t hi = (uint32_t)bounded((x[i + QK / 2] - low) * inverse + 0.5f, 0, (float)top);
        q[i] = (uint8_t)((lo & 15) | (hi & 15) << 4);
        fifth |= lo >> 4 << i | hi >> 4 << (i + QK / 2);
    }
    if (top > 15)
        store_le32(b + 4, fifth);
}

bool row_can_encode(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16 || t == DTYPE_Q8_0 ||
           t == DTYPE_Q4_0 || t == DTYPE_Q4_1 || t == DTYPE_Q5_1;
}

void row_from_f32(void *dst, const float *x, enum dtype t, int64_t n)
{
    uint8_t *p = dst;

    switch (t) {
    case DTYPE_F32:
        memcpy(p, x, (size_t)n * sizeof *x);
        break;
    case DTYPE_F16:
        for (int64_t i = 0; i < n; i++)
            store_le16(p + 2 * i, f16_from_f32(x[i]));
        break;
    case DTYPE_BF16:
        for (int64_t i = 0; i < n; i++)
            store_le16(p + 2 * i, bf16_from_f32(x[i]));
        break;
    case DTYPE_Q8_0:
        for (int64_t i = 0; i < n / QK; i++)
            encode_q8_0(p + 34 * i, x + QK * i);
        break;
    case DTYPE_Q4_0:
        for (int64_t i = 0; i < n / QK; i++)
            encode_q4_0(p + 18 * i, x + QK * i);
        break;
    case DTYPE_Q4_1:
        for (int64_t i = 0; i < n / QK; i++)
            encode_min(p + 20 * i, x + QK * i, 15);
        break;
    case DTYPE_Q5_1:
        for (int64_t i = 0; i < n / QK; i++)
            encode_min(p + 24 * i, x + QK * i, 31);
        break;
    default:
        break; /* row_can_encode said no */
    }
}

static bool f16_finite(const uint8_t *p)
{
    return (load_le16(p) & 0x7c00) != 0x7c00;
}

bool row_is_finite(const void *src, enum dtype t, int64_t n)
{
    const uint8_t *p = src;
    int block = dtype_block(t), size = dtype_block_size(t);
    bool ok = true;

    for (int64_t i = 0; i < n / block && ok; i++, p += size) {
        switch (t) {
        case DTYPE_F32:
            ok = (load_le32(p) & 0x7f800000u) != 0x7f800000u;
            break;
        case DTYPE_BF16:
            ok = (load_le16(p) & 0x7f80) != 0x7f80;
            break;
        case DTYPE_Q4_K:
        case DTYPE_Q5_K:
        case DTYPE_Q4_1:
        case DTYPE_Q5_1:
            ok = f16_finite(p) && f16_finite(p + 2);
            break;
        case DTYPE_Q6_K:
            ok = f16_finite(p + 208);
            break;
        default: /* F16, Q8_0, Q4_0, Q5_0, IQ4_NL: the block begins with an f16 */
            ok = f16_finite(p);
        }
    }
    return ok;
}
