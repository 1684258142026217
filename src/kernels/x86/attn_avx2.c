/* Attention over a chunk in f32 arithmetic with AVX2. For F32 the generic kernel is as fast. */
#include "kernels/x86/attn_float.h"
#include "kernels/x86/x86.h"

static const struct attn_kernel attn_f16 = ATTN_KERNEL(attn_run_f16);
static const struct attn_kernel attn_bf16 = ATTN_KERNEL(attn_run_bf16);

void attn_init_avx2(struct kernels *k)
{
    k->attn[DTYPE_F16] = &attn_f16;
    k->attn[DTYPE_BF16] = &attn_bf16;
}
