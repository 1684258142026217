/* Products by F32, F16 and BF16 weights with AVX2, FMA and F16C, and the table of this instruction
 * set. */
#include "kernels/x86/matmul_float.h"
#include "kernels/x86/x86.h"

static const struct matmul_kernel matmul_float_avx2 = {
    .name = "avx2",
    .in_multiple = 1,
    .row_step = 1,
    .out_step = 1,
    .packed_size = float_packed_size,
    .scratch_size = float_scratch_size,
    .pack = float_pack,
    .run = float_run,
};

void kernels_init_avx2(struct kernels *k)
{
    elementwise_init_avx2(k);
    quant_init_avx2(k);
    attn_init_avx2(k);
    k->matmul[DTYPE_F32] = k->matmul_any[DTYPE_F32] = &matmul_float_avx2;
    k->matmul[DTYPE_F16] = k->matmul_any[DTYPE_F16] = &matmul_float_avx2;
    k->matmul[DTYPE_BF16] = k->matmul_any[DTYPE_BF16] = &matmul_float_avx2;
}
