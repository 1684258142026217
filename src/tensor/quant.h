/* Conversion of rows of any dtype to and from f32, in plain C (doc/formats.md specifies the block
 * layouts). Used for file conversion, embedding rows and tests; it is the reference for kernels. */
#ifndef PV_TENSOR_QUANT_H
#define PV_TENSOR_QUANT_H

#include "tensor/dtype.h"

/* y[n] from one row; n a multiple of the block; src at any alignment. */
void row_to_f32(float *y, const void *src, enum dtype t, int64_t n);
/* The reverse, for F32, F16, BF16, Q8_0, Q4_0, Q4_1 and Q5_1 (row_can_encode). */
void row_from_f32(void *dst, const float *x, enum dtype t, int64_t n);
bool row_can_encode(enum dtype t);
/* False if a block scale (or plain element) of the row is not finite. */
bool row_is_finite(const void *src, enum dtype t, int64_t n);
/* The values of the sixteen codes of IQ4_NL. */
extern const int8_t iq4_nl_levels[16];

#endif
