/* The table of element types: one row each, everything else about a type is derived from it or
 * lives in quant.c. */
#include "tensor/dtype.h"

struct dtype_info {
    const char *name;
    int block;      /* elements */
    int block_size; /* bytes */
};

static const struct dtype_info types[] = {
    [DTYPE_F32] = { "f32", 1, 4 },       [DTYPE_F16] = { "f16", 1, 2 },
    [DTYPE_BF16] = { "bf16", 1, 2 },     [DTYPE_Q8_0] = { "q8_0", 32, 34 },
    [DTYPE_Q4_0] = { "q4_0", 32, 18 },   [DTYPE_Q5_0] = { "q5_0", 32, 22 },
    [DTYPE_Q4_K] = { "q4_K", 256, 144 }, [DTYPE_Q5_K] = { "q5_K", 256, 176 },
    [DTYPE_Q6_K] = { "q6_K", 256, 210 }, [DTYPE_Q4_1] = { "q4_1", 32, 20 },
    [DTYPE_Q5_1] = { "q5_1", 32, 24 },   [DTYPE_IQ4_NL] = { "iq4_nl", 32, 18 },
    [DTYPE_F8] = { "fp8", 1, 1 },
};

const char *dtype_name(enum dtype t)
{
    return (unsigned)t <= DTYPE_F8 && types[t].name ? types[t].name : "unknown";
}

int dtype_block(enum dtype t)
{
    return types[t].block;
}

int dtype_block_size(enum dtype t)
{
    return types[t].block_size;
}

size_t dtype_row_size(enum dtype t, int64_t n)
{
    return (size_t)(n / types[t].block) * (size_t)types[t].block_size;
}
