/* The small operations with AVX2. */
#include "vec_avx2.h"

#include "elementwise.h"
#include "x86.h"

void elementwise_init_avx2(struct kernels *k)
{
    elementwise_init(k);
}
