/* Quantised products with baseline NEON. */
#include "kernels/arm/arm.h"
#include "kernels/arm/dot_groups.h"

void quant_init_neon(struct kernels *k)
{
    for (int t = DTYPE_Q8_0; t < DTYPE_COUNT; t++)
        k->matmul[t] = &dot_kernels[t];
}
