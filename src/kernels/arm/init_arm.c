/* Choice of the Arm kernels by CPU flags, in rising order. */
#include "base/cpu.h"
#include "kernels/arm/arm.h"

void kernels_init_arm(struct kernels *k, uint64_t cpu)
{
    if (!(cpu & CPU_NEON))
        return;
    kernels_init_neon(k);
    quant_init_neon(k);
    elementwise_init_neon(k);
    k->name = "neon";
    if (cpu & CPU_DOTPROD) {
        kernels_init_dotprod(k);
        repacked_init_dotprod(k);
        k->name = "dotprod";
    }
    /* The SMMLA kernels run a lone row with SDOT. */
    if ((cpu & CPU_I8MM) && (cpu & CPU_DOTPROD)) {
        kernels_init_i8mm(k);
        repacked_init_i8mm(k);
        k->name = "i8mm";
    }
    if (cpu & CPU_BF16) {
        kernels_init_bf16(k);
        attn_init_bf16(k);
        k->name = "bf16";
    }
}
