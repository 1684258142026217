/* Simulator of CUDA, part 3: the GPU that it is, which tests may change. C. */
#ifndef PV_TESTS_CUDASIM_GPU_H
#define PV_TESTS_CUDASIM_GPU_H

#include <stdbool.h>
#include <stddef.h>

struct cudasim_gpu {
    int driver;      /* version of CUDA that it knows; 0: there is none */
    int gpus;        /* all alike; memory and time are those of one */
    int major;       /* of the compute capability */
    bool code;       /* kernels are for this capability */
    size_t memory;   /* bytes, pinned ones included */
    int allocations; /* so many succeed from now on; -1: all that have room */
    bool peers;      /* each reads the others' memory */
    bool nccl;       /* the library is there */
    size_t shared;   /* bytes of shared memory that a block may have */
};

#ifdef __cplusplus
extern "C" {
#endif
/* It begins as one of compute capability 9.0, not 8.0. */
void cudasim_hopper(void);
/* NULL: as at the start. */
void cudasim_be(const struct cudasim_gpu *gpu);
void cudasim_is(struct cudasim_gpu *gpu);
/* Streams run when somebody waits for them, not at once. */
void cudasim_lazy(bool lazy);
#ifdef __cplusplus
}
#endif

#endif
