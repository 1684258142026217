/* Weight rows of any type to bf16, 32 values at a time, into the A tiles of one output row: value
 * block i goes to dst + i * TILE_HALVES. Quantised values are formed in f32 and rounded once, which
 * costs less than rounding the activations does (doc/kernels.md). */
#ifndef PV_KERNELS_X86_UNPACK_AMX_H
#define PV_KERNELS_X86_UNPACK_AMX_H

#include <stdint.h>

/* n: values of the row, a multiple of 32. */
typedef void unpack_fn(uint16_t *dst, const uint8_t *src, int n);

unpack_fn unpack_bf16, unpack_q8_0, unpack_q4_0, unpack_q5_0, unpack_q4_k, unpack_q5_k, unpack_q6_k;
/* f16 = hi + lo exactly, both bf16: hi to dst, lo to dst + lo_offset. */
void unpack_f16(uint16_t *dst, uint16_t *dst_lo, const uint8_t *src, int n);

#endif
