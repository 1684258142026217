/* The small operations with AVX-512. */
#include "vec_avx512.h"

#include "elementwise.h"
#include "x86.h"

void elementwise_init_avx512(struct kernels *k)
{
    elementwise_init(k);
}
