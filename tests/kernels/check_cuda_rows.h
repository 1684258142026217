#ifndef PV_TESTS_KERNELS_CHECK_CUDA_ROWS_H
#define PV_TESTS_KERNELS_CHECK_CUDA_ROWS_H

#include "check_cuda_layer.h"

/* Row invariance of a layer, bit for bit: `chain` tokens after `cached` ones, alone and together,
 * as chains and as trees, recorded and not; and a prompt in bulk, in pieces of any size. */
void check_rows(struct cuda_check *t, const struct rig_shape *shape, enum dtype type, int cached,
                int chain);

/* The same for chains alone, in steps of 41 rows and more, with weights in BF16: wide layers. */
void check_wide_rows(struct cuda_check *t, const struct rig_shape *shape, int chain);

/* check_cuda_f8.c: how the codes of an F8 cache are read. */
void check_f8_codes(struct cuda_check *t);

#endif
