/* Products with K-quants, Q4_1 and Q5_1 by AVX-512 VNNI: 16 outputs by 8 rows per tile. */
#include "kernels/x86/matmul_quant.h"
#include "kernels/x86/x86.h"

static const struct matmul_kernel kernel_mins =
    QUANT_KERNEL("avx512", 256, quant_pack_mins, quant_run);
static const struct matmul_kernel kernel_min =
    QUANT_KERNEL("avx512", 32, quant_pack_mins, quant_run);
static const struct matmul_kernel kernel_q6_K =
    QUANT_KERNEL("avx512", 256, quant_pack_q6_K, quant_run);

const struct matmul_kernel quant_repacked_mins =
    QUANT_REPACKED_KERNEL("repacked-avx512", 256, quant_pack_mins, quant_run);
static const struct matmul_kernel repacked_min =
    QUANT_REPACKED_KERNEL("repacked-avx512", 32, quant_pack_mins, quant_run);
const struct matmul_kernel quant_repacked_q6_K =
    QUANT_REPACKED_KERNEL("repacked-avx512", 256, quant_pack_q6_K, quant_run);

void quant_init_avx512(struct kernels *k)
{
    k->matmul_repacked[DTYPE_Q4_K] = k->matmul_repacked[DTYPE_Q5_K] = &quant_repacked_mins;
    k->matmul_repacked[DTYPE_Q6_K] = &quant_repacked_q6_K;
    k->matmul_repacked[DTYPE_Q4_1] = k->matmul_repacked[DTYPE_Q5_1] = &repacked_min;
    k->matmul[DTYPE_Q4_K] = k->matmul[DTYPE_Q5_K] = &kernel_mins;
    k->matmul[DTYPE_Q6_K] = &kernel_q6_K;
    k->matmul[DTYPE_Q4_1] = k->matmul[DTYPE_Q5_1] = &kernel_min;
}
