/* Sums of products by wgmma and by mma.sync, on a Hopper GPU. */
#ifndef PV_TESTS_KERNELS_HOPPER_SUMS_H
#define PV_TESTS_KERNELS_HOPPER_SUMS_H

#include <stdint.h>

enum { SUMS_TILE = 64 * 64 };

/* Tiles of 64 x 64, BF16 and f32. */
struct hopper_sums {
    const uint16_t *a, *b;
    const float *from;           /* what the sums begin with */
    float *wgmma, *mma, *turned; /* from + a b^T; turned: with b as mma's rows, transposed */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the first GPU is a Hopper one. */
int hopper_sums_there(void);
/* CUDA's error, 0: none. */
int hopper_sums_run(const struct hopper_sums *host, int tiles);

#ifdef __cplusplus
}
#endif

#endif
