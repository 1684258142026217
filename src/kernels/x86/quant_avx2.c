/* Products by quantised weights with AVX2: 8 outputs by 4 rows a tile. Up to six bits the weights
 * are unsigned bytes for vpmaddubsw, whose 16-bit sums are added up as long as they fit: 8 times
 * two products of 15 * 127 for four bits, 4 times 31 * 127, 2 times 63 * 127. Q8_0 would not fit
 * at all, so its weights and x are widened to 16 bits (QUANT_WIDE) for vpmaddwd. */
#include "vec_avx2.h"

#include "kernels/kernels.h"

/* Bytes 0 and 2 of each four as int16, and bytes 1 and 3. */
INLINE ivec ivec_even(ivec v)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
}

INLINE ivec ivec_odd(ivec v)
{
    return _mm256_srai_epi16(v, 8);
}

#define QUANT_WIDE
#include "quant_unpack.h"

#define QUANT_ROWS 4
enum { GROUP_TILES = 4 };
struct x_block;
INLINE void dot_block(ivec *sum, ivec *half, const struct panel_block *p, const struct x_block *x,
                      int rows, bool halves, int bits);
#include "matmul_quant.h"
#include "x86.h"

INLINE ivec spread_x(const struct x_block *x, int g)
{
    int32_t q;
    memcpy(&q, (const int8_t *)x->q + 4 * g, sizeof q);
    return ivec_set(q);
}

INLINE void dot_wide(ivec *sum, const struct panel_block *p, const struct x_block *x, int rows)
{
    for (int r = 0; r < rows; r++)
        sum[r] = _mm256_setzero_si256();
    for (int g = 0; g < GROUPS; g++) {
        ivec even = ivec_load(p->q[g]), odd = ivec_load(p->q_wide[g]);
        for (int r = 0; r < rows; r++) {
            ivec a = _mm256_madd_epi16(even, spread_x(x + r, 2 * g));
            ivec b = _mm256_madd_epi16(odd, spread_x(x + r, 2 * g + 1));
            sum[r] = _mm256_add_epi32(sum[r], _mm256_add_epi32(a, b));
        }
    }
}

INLINE void dot_block(ivec *sum, ivec *half, const struct panel_block *p, const struct x_block *x,
                      int rows, bool halves, int bits)
{
    const ivec ones = _mm256_set1_epi16(1);
    int run = bits == 4 ? 8 : bits == 5 ? 4 : 2; /* products of one 16-bit sum */

    if (bits == 8) {
        dot_wide(sum, p, x, rows);
        return;
    }
    for (int r = 0; r < rows; r++) {
        sum[r] = ivec_set(x[r].init[0]);
        half[r] = ivec_set(halves ? x[r].init[1] : 0);
    }
    for (int g = 0; g < GROUPS; g += run) {
        ivec part[QUANT_ROWS];
        for (int j = g; j < g + run; j++) {
            ivec w = ivec_load(p->q[j]);
            for (int r = 0; r < rows; r++) {
                ivec v = _mm256_maddubs_epi16(w, spread_x(x + r, j));
                part[r] = j == g ? v : _mm256_add_epi16(part[r], v);
            }
        }
        for (int r = 0; r < rows; r++) {
            ivec v = _mm256_madd_epi16(part[r], ones);
            if (halves && g >= GROUPS / 2)
                half[r] = _mm256_add_epi32(half[r], v);
            else
                sum[r] = _mm256_add_epi32(sum[r], v);
        }
    }
}

static const struct matmul_kernel kernel_q8_0 = QUANT_KERNEL("avx2", 32, quant_pack_q8_0);
static const struct matmul_kernel kernel_q4_0 = QUANT_KERNEL("avx2", 32, quant_pack_q4_0);
static const struct matmul_kernel kernel_q5_0 = QUANT_KERNEL("avx2", 32, quant_pack_q5_0);
static const struct matmul_kernel kernel_mins = QUANT_KERNEL("avx2", 256, quant_pack_mins);
static const struct matmul_kernel kernel_q6_K = QUANT_KERNEL("avx2", 256, quant_pack_q6_K);

void quant_init_avx2(struct kernels *k)
{
    k->matmul[DTYPE_Q8_0] = &kernel_q8_0;
    k->matmul[DTYPE_Q4_0] = &kernel_q4_0;
    k->matmul[DTYPE_Q5_0] = &kernel_q5_0;
    k->matmul[DTYPE_Q4_K] = k->matmul[DTYPE_Q5_K] = &kernel_mins;
    k->matmul[DTYPE_Q6_K] = &kernel_q6_K;
}
