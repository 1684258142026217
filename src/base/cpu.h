/* CPU features and resources. Features are detected when a model is opened and masked, so that
 * tests and users can switch fast kernels off. */
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
    CPU_AMX = 1 << 7, /* AMX tiles with bf16, if the operating system permits their use */
};

uint64_t cpu_flags(void);
uint64_t cpu_memory(void); /* bytes of this machine, or the limit of this container */
/* Bytes that can be allocated without swapping; cpu_memory() if the system does not say. */
uint64_t cpu_memory_available(void);
int cpu_count(void); /* cores that this process may use */

#endif
