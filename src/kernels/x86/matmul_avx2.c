/* Matrix products with AVX2, FMA and F16C: VEC = 8 lanes. The float tile is 4 outputs by 3 rows,
 * twelve of the sixteen registers. */
#include "vec_avx2.h"

#define TILE_ROWS 3
#include "matmul_float.h"
#include "x86.h"

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
    k->matmul[DTYPE_F32] = k->matmul_any[DTYPE_F32] = &matmul_float_avx2;
    k->matmul[DTYPE_F16] = k->matmul_any[DTYPE_F16] = &matmul_float_avx2;
    k->matmul[DTYPE_BF16] = k->matmul_any[DTYPE_BF16] = &matmul_float_avx2;
}
