/* Products by quantised weights with AVX2: 8 outputs by 4 rows a tile. */
#include "kernels/x86/matmul_quant.h"
#include "kernels/x86/x86.h"

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
