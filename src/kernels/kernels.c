/* Choice of kernels: plain C first, then each instruction set the CPU has and the mask allows. */
#include "kernels/kernels.h"

void kernels_init(struct kernels *k, uint64_t cpu)
{
    kernels_init_ref(k);
#if defined(__aarch64__)
    kernels_init_arm(k, cpu);
#elif defined(__x86_64__)
    kernels_init_x86(k, cpu);
#else
    (void)cpu;
#endif
}

const struct matmul_kernel *kernels_matmul(const struct kernels *k, enum dtype t, int in)
{
    const struct matmul_kernel *m = k->matmul[t];
    return in % m->in_multiple == 0 ? m : k->matmul_any[t];
}

const struct matmul_kernel *kernels_repacked_for(const struct kernels *k, const struct matrix *w)
{
    if (w->many_rows && k->matmul_many_repacked[w->dtype])
        return k->matmul_many_repacked[w->dtype];
    const struct matmul_kernel *repacked = k->matmul_repacked[w->dtype];
    return repacked && repacked->few_rows && w->many_rows ? NULL : repacked;
}

const struct matmul_kernel *kernels_matmul_for(const struct kernels *k, const struct matrix *w)
{
    if (w->repacked)
        return kernels_repacked_for(k, w);
    return kernels_matmul(k, w->dtype, w->in);
}
