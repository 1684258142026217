/* Choice of x86 kernels: each instruction set replaces the kernels for which it has faster ones, in
 * rising order, up to the first one that the CPU lacks. */
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
