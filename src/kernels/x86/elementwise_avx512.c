/* The small operations with AVX-512. */
#include "kernels/x86/elementwise.h"
#include "kernels/x86/x86.h"

void elementwise_init_avx512(struct kernels *k)
{
    elementwise_init(k);
}
