/* Choice of x86 kernels: each set of instructions overwrites what it does better, in rising
 * order, up to the first one that is missing. */
#include "base/cpu.h"
#include "kernels/kernels.h"

void kernels_init_x86(struct kernels *k, uint64_t cpu)
{
    if (!(cpu & CPU_AVX2))
        return;
    kernels_init_avx2(k);
    k->name = "avx2";
    if (!(cpu & CPU_AVX512))
        return;
    kernels_init_avx512(k);
    kernels_init_vnni(k);
    k->name = "avx512";
    if (!(cpu & CPU_AVX512_BF16))
        return;
    kernels_init_avx512bf16(k);
    k->name = "avx512bf16";
    if (!(cpu & CPU_AMX))
        return;
    kernels_init_amx(k);
    k->name = "amx";
}
