/* Products with quantised weights by AVX2: 8 outputs by 4 rows per tile.
 *
 * With one or two rows, transposing the weights so that lanes are outputs costs more than the
 * product. Q8_0 and Q4_0, the usual types for plain decoding, then keep their lanes along the
 * block, and the sums of eight outputs are added up together. The sums are the same integers,
 * scaled by the same line as in matmul_quant.h, so a row has the same bits either way. */
#include "kernels/x86/matmul_quant.h"
#include "kernels/x86/x86.h"

enum { FEW_ROWS = 2 };

/* Add up the lanes of a, b, c, d within each half: lane j of a half is the sum of vector j. */
INLINE ivec add_lanes(ivec a, ivec b, ivec c, ivec d)
{
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}

/* Sums of one block of VEC outputs with each x; weights start at byte `at` of each row. vpmaddubsw
 * needs one unsigned factor: |w|, and x with the sign of w; 2 * 128 * 127 fits into 16 bits. */
INLINE void few_q8_0(ivec *sum, const struct tile_rows *t, size_t at, const struct x_block *x,
                     int n)
{
    const ivec ones = _mm256_set1_epi16(1);
    ivec v[FEW_ROWS][VEC];

    for (int o = 0; o < VEC; o++) {
        ivec w = ivec_load(t->row[o] + at + 2), size = _mm256_abs_epi8(w);
        for (int r = 0; r < n; r++) {
            ivec s = _mm256_sign_epi8(ivec_load(x[r].q), w);
            v[r][o] = _mm256_madd_epi16(_mm256_maddubs_epi16(size, s), ones);
        }
    }
    for (int r = 0; r < n; r++) {
        ivec a = add_lanes(v[r][0], v[r][1], v[r][2], v[r][3]);
        ivec b = add_lanes(v[r][4], v[r][5], v[r][6], v[r][7]);
        sum[r] = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                  _mm256_permute2x128_si256(a, b, 0x31));
    }
}

/* The same with two weight rows per vector, o and o + 4. */
INLINE void few_q4_0(ivec *sum, const struct tile_rows *t, size_t at, const struct x_block *x,
                     int n)
{
    const ivec ones = _mm256_set1_epi16(1), low = ivec_set(0x0f0f0f0f);
    ivec v[FEW_ROWS][VEC / 2];

    for (int o = 0; o < VEC / 2; o++) {
        __m128i a = _mm_loadu_si128((const __m128i *)(t->row[o] + at + 2));
        __m128i b = _mm_loadu_si128((const __m128i *)(t->row[o + 4] + at + 2));
        ivec w = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
        ivec w0 = ivec_and(w, low), w1 = ivec_and(_mm256_srli_epi16(w, 4), low);
        for (int r = 0; r < n; r++) {
            const __m128i *q = (const __m128i *)(const void *)x[r].q;
            ivec x0 = _mm256_broadcastsi128_si256(_mm_loadu_si128(q));
            ivec x1 = _mm256_broadcastsi128_si256(_mm_loadu_si128(q + 1));
            ivec s = _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1));
            v[r][o] = _mm256_madd_epi16(s, ones);
        }
    }
    for (int r = 0; r < n; r++)
        sum[r] =
            _mm256_add_epi32(add_lanes(v[r][0], v[r][1], v[r][2], v[r][3]), ivec_set(x[r].init[0]));
}

/* Compute outputs [o, o + outs) of n rows; `n` and `dtype` are compile-time constants. */
INLINE void few_tile(float *y, size_t y_stride, const struct x_block *x, int n,
                     const struct matrix *w, int o, int outs, enum dtype dtype)
{
    size_t size = dtype == DTYPE_Q8_0 ? 34 : 18;
    int n_blocks = w->in / BLOCK, pieces = (n_blocks + PANEL_BLOCKS - 1) / PANEL_BLOCKS;
    struct tile_rows t;
    vec acc[FEW_ROWS];

    tile_rows_set(&t, w, o, outs);
    for (int r = 0; r < n; r++)
        acc[r] = vec_zero();
    for (int b = 0; b < n_blocks; b++, x += n) {
        ivec sum[FEW_ROWS];
        vec scale = ivec_half(ivec_gather(t.row[0] + size * (size_t)b, t.at));
        if (b % PANEL_BLOCKS == 0)
            tile_prefetch(&t, w, b / PANEL_BLOCKS, pieces);
        if (dtype == DTYPE_Q8_0)
            few_q8_0(sum, &t, size * (size_t)b, x, n);
        else
            few_q4_0(sum, &t, size * (size_t)b, x, n);
        for (int r = 0; r < n; r++)
            acc[r] = vec_fma(ivec_float(sum[r]), vec_mul(scale, vec_set(x[r].scale)), acc[r]);
    }
    for (int r = 0; r < n; r++)
        vec_store_part(y + y_stride * (size_t)r, acc[r], outs);
}

INLINE void few_or_more(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                        int o0, int o1, void *scratch, enum dtype dtype)
{
    if (n > FEW_ROWS) {
        quant_run(y, y_stride, xp, n, w, o0, o1, scratch);
        return;
    }
    for (int o = o0; o < o1; o += VEC) {
        int outs = o1 - o < VEC ? o1 - o : VEC;
        if (n == 1)
            few_tile(y + o, y_stride, xp, 1, w, o, outs, dtype);
        else
            few_tile(y + o, y_stride, xp, 2, w, o, outs, dtype);
    }
    quant_bias(y, y_stride, n, w, o0, o1);
}

static void run_q8_0(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    few_or_more(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q8_0);
}

static void run_q4_0(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    few_or_more(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q4_0);
}

static const struct matmul_kernel kernel_q8_0 = QUANT_KERNEL("avx2", 32, quant_pack_q8_0, run_q8_0);
static const struct matmul_kernel kernel_q4_0 = QUANT_KERNEL("avx2", 32, quant_pack_q4_0, run_q4_0);
static const struct matmul_kernel kernel_q5_0 =
    QUANT_KERNEL("avx2", 32, quant_pack_q5_0, quant_run);
static const struct matmul_kernel kernel_iq4_nl =
    QUANT_KERNEL("avx2", 32, quant_pack_q8_0, quant_run);
static const struct matmul_kernel kernel_min = QUANT_KERNEL("avx2", 32, quant_pack_mins, quant_run);
static const struct matmul_kernel kernel_mins =
    QUANT_KERNEL("avx2", 256, quant_pack_mins, quant_run);
static const struct matmul_kernel kernel_q6_K =
    QUANT_KERNEL("avx2", 256, quant_pack_q6_K, quant_run);

static const struct matmul_kernel repacked_min =
    QUANT_REPACKED_KERNEL("repacked-avx2", 32, quant_pack_mins, quant_run);
static const struct matmul_kernel repacked_mins =
    QUANT_REPACKED_KERNEL("repacked-avx2", 256, quant_pack_mins, quant_run);
static const struct matmul_kernel repacked_q6_K =
    QUANT_REPACKED_KERNEL("repacked-avx2", 256, quant_pack_q6_K, quant_run);

void quant_init_avx2(struct kernels *k)
{
    k->matmul_repacked[DTYPE_Q4_K] = k->matmul_repacked[DTYPE_Q5_K] = &repacked_mins;
    k->matmul_repacked[DTYPE_Q6_K] = &repacked_q6_K;
    k->matmul_repacked[DTYPE_Q4_1] = k->matmul_repacked[DTYPE_Q5_1] = &repacked_min;
    k->matmul[DTYPE_Q8_0] = &kernel_q8_0;
    k->matmul[DTYPE_Q4_0] = &kernel_q4_0;
    k->matmul[DTYPE_Q5_0] = &kernel_q5_0;
    k->matmul[DTYPE_Q4_K] = k->matmul[DTYPE_Q5_K] = &kernel_mins;
    k->matmul[DTYPE_Q6_K] = &kernel_q6_K;
    k->matmul[DTYPE_Q4_1] = k->matmul[DTYPE_Q5_1] = &kernel_min;
    k->matmul[DTYPE_IQ4_NL] = &kernel_iq4_nl;
}
