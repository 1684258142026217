/* Element types of tensors and their blocks. GGUF's type numbers are known to format/gguf.c
 * only. */
#ifndef PV_TENSOR_DTYPE_H
#define PV_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_Q8_0,
    DTYPE_Q4_0,
    DTYPE_Q5_0,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_Q4_1,
    DTYPE_Q5_1,
    DTYPE_IQ4_NL,
    DTYPE_COUNT, /* the types above are those of weights */
    DTYPE_F8     /* of KV caches only: E4M3 codes, with an exponent for each row (f8.h) */
};

enum { DTYPE_BLOCK_MAX = 256 }; /* elements */

const char *dtype_name(enum dtype t); /* "f32", "q8_0", "q4_K", ... as llama.cpp prints them */
int dtype_block(enum dtype t);        /* elements of one block (1 for plain types) */
int dtype_block_size(enum dtype t);   /* bytes of one block */
/* Bytes of a row of n elements; n must be a multiple of the block. */
size_t dtype_row_size(enum dtype t, int64_t n);

#endif
