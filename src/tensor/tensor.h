/* A tensor in a model file; it never owns its data. */
#ifndef PV_TENSOR_TENSOR_H
#define PV_TENSOR_TENSOR_H

#include "tensor/dtype.h"

enum { TENSOR_DIMS = 8 }; /* safetensors; GGUF has at most 4 */

struct tensor {
    const char *name; /* borrowed */
    enum dtype dtype;
    int n_dims;
    int64_t dim[TENSOR_DIMS]; /* row-major, outermost first, as PyTorch prints it; unused: 1 */
    const void *data;         /* rows contiguous; may be at any alignment */
    size_t size;              /* bytes */
};

/* A tensor as a matrix: the last dimension is the row length, the others together are the rows. */
static inline int64_t tensor_cols(const struct tensor *t)
{
    return t->dim[t->n_dims - 1];
}

static inline int64_t tensor_rows(const struct tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims - 1; i++)
        n *= t->dim[i];
    return n;
}

#endif
