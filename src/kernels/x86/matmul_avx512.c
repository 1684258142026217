/* Matrix products with AVX-512: VEC = 16 lanes. The float tile is 4 outputs by 6 rows,
 * 24 of the 32 registers. */
#include "vec_avx512.h"

#define TILE_ROWS 6
#include "matmul_float.h"
#include "x86.h"

static const struct matmul_kernel matmul_float_avx512 = {
    .name = "avx512",
    .in_multiple = 1,
    .row_step = 1,
    .out_step = 1,
    .packed_size = float_packed_size,
    .scratch_size = float_scratch_size,
    .pack = float_pack,
    .run = float_run,
};

void kernels_init_avx512(struct kernels *k)
{
    elementwise_init_avx512(k);
    quant_init_avx512(k);
    k->matmul[DTYPE_F32] = k->matmul_any[DTYPE_F32] = &matmul_float_avx512;
    k->matmul[DTYPE_F16] = k->matmul_any[DTYPE_F16] = &matmul_float_avx512;
    k->matmul[DTYPE_BF16] = k->matmul_any[DTYPE_BF16] = &matmul_float_avx512;
}
