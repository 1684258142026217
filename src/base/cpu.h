/* CPU features, found once at model opening, always used through a mask so that tests and users
 * can switch the fast kernels off. */
#ifndef PV_BASE_CPU_H
#define PV_BASE_CPU_H

#include <stdint.h>

enum cpu_flag {
    CPU_NEON = 1 << 0,
    CPU_DOTPROD = 1 << 1,
    CPU_I8MM = 1 << 2,
    CPU_BF16 = 1 << 3,   /* Arm: BFDOT, BFMMLA */
    CPU_AVX2 = 1 << 4,   /* AVX2, FMA and F16C */
    CPU_AVX512 = 1 << 5, /* F, BW, DQ, VL and VNNI */
    CPU_AVX512_BF16 = 1 << 6,
    CPU_AMX = 1 << 7, /* AMX tiles with bf16, and the kernel's leave to use them */
};

uint64_t cpu_flags(void);
uint64_t cpu_memory(void); /* bytes of this machine, or that this container may have */
/* Of these, bytes that can be had without swapping; all of them where the system does not tell. */
uint64_t cpu_memory_available(void);
int cpu_count(void); /* cores this process may run on */

#endif
