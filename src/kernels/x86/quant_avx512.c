/* Products by quantised weights with AVX-512 VNNI: 16 outputs by 8 rows a tile. One instruction
 * takes four elements of 16 outputs: vpdpbusd, with unsigned weights and four bytes of x in all
 * lanes. */
#include "vec_avx512.h"

#include "quant_unpack.h"

#define QUANT_ROWS 8
enum { GROUP_TILES = 4 };
struct x_block;
INLINE void dot_block(ivec *sum, ivec *half, const struct panel_block *p, const struct x_block *x,
                      int rows, bool halves, int bits);
#include "matmul_quant.h"
#include "x86.h"

INLINE void dot_block(ivec *sum, ivec *half, const struct panel_block *p, const struct x_block *x,
                      int rows, bool halves, int bits)
{
    ivec w[GROUPS];

    (void)bits;
    for (int g = 0; g < GROUPS; g++)
        w[g] = ivec_load(p->q[g]);
    for (int r = 0; r < rows; r++) {
        int32_t q[GROUPS];
        memcpy(q, x[r].q, sizeof q);
        ivec a = ivec_set(x[r].init[0]), b = ivec_set(halves ? x[r].init[1] : 0);
        for (int g = 0; g < GROUPS; g++)
            if (halves && g >= GROUPS / 2)
                b = _mm512_dpbusd_epi32(b, w[g], ivec_set(q[g]));
            else
                a = _mm512_dpbusd_epi32(a, w[g], ivec_set(q[g]));
        sum[r] = a;
        half[r] = b;
    }
}

static const struct matmul_kernel kernel_q8_0 = QUANT_KERNEL("avx512", 32, quant_pack_q8_0);
static const struct matmul_kernel kernel_q4_0 = QUANT_KERNEL("avx512", 32, quant_pack_q4_0);
static const struct matmul_kernel kernel_q5_0 = QUANT_KERNEL("avx512", 32, quant_pack_q5_0);
static const struct matmul_kernel kernel_mins = QUANT_KERNEL("avx512", 256, quant_pack_mins);
static const struct matmul_kernel kernel_q6_K = QUANT_KERNEL("avx512", 256, quant_pack_q6_K);

void quant_init_avx512(struct kernels *k)
{
    k->matmul[DTYPE_Q8_0] = &kernel_q8_0;
    k->matmul[DTYPE_Q4_0] = &kernel_q4_0;
    k->matmul[DTYPE_Q5_0] = &kernel_q5_0;
    k->matmul[DTYPE_Q4_K] = k->matmul[DTYPE_Q5_K] = &kernel_mins;
    k->matmul[DTYPE_Q6_K] = &kernel_q6_K;
}
