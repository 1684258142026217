/* Quantised products with SDOT: four products of int8 added to each lane of int32. */
#include "kernels/arm/arm.h"
#include "kernels/arm/dot_groups.h"

const struct matmul_kernel *matmul_dotprod(enum dtype t)
{
    return &dot_kernels[t];
}

void kernels_init_dotprod(struct kernels *k)
{
    for (int t = DTYPE_Q8_0; t < DTYPE_COUNT; t++)
        k->matmul[t] = &dot_kernels[t];
}
