/* Products with many rows through cuBLASLt. */
#ifndef PV_KERNELS_CUDA_MATMUL_LIBRARY_H
#define PV_KERNELS_CUDA_MATMUL_LIBRARY_H

#include "kernels/cuda/cuda.h"

/* A product whose weights are plain numbers. */
struct product {
    const void *w, *x;
    void *y;
    enum dtype w_dtype, x_dtype, y_dtype;
    int out, in, stride, n;
    int whole; /* outputs of the matrix that w is a part of, or out + pad */
    int pad; /* rows of zeros after the weights, with space in y: aligned outputs are much faster */
    size_t x_stride, y_stride;
    const float *bias;
    bool add;
    bool gelu; /* apply GELU_TANH to the result with its bias; BF16 only, and without add */
};

/* False: the library does not support this product, whatever its number of rows. */
bool library_product(struct device_work *w, const struct product *p);

/* matmul_many.cu: whether the work has memory for the matrix converted to plain elements of this
 * size, and for rows of zeros up to a multiple of 8; if not, an error is recorded. */
bool weights_fit(struct device_work *w, int out, int stride, size_t element);

#endif
