/* Attention over a chunk in f32 arithmetic with AVX-512. */
#include "kernels/x86/attn_float.h"
#include "kernels/x86/x86.h"

ATTN_FLOAT(attn_run_f32, DTYPE_F32)

static const struct attn_kernel attn_f32 = ATTN_KERNEL(attn_run_f32);
static const struct attn_kernel attn_f16 = ATTN_KERNEL(attn_run_f16);
static const struct attn_kernel attn_bf16 = ATTN_KERNEL(attn_run_bf16);

void attn_init_avx512(struct kernels *k)
{
    k->attn[DTYPE_F32] = &attn_f32;
    k->attn[DTYPE_F16] = &attn_f16;
    k->attn[DTYPE_BF16] = &attn_bf16;
}
