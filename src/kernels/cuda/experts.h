/* The experts of a sparse layer on the GPU (experts.cu). */
#ifndef PV_KERNELS_CUDA_EXPERTS_H
#define PV_KERNELS_CUDA_EXPERTS_H

#include "kernels/cuda/cuda.h"

enum { EXPERT_ROWS = 2048 }; /* of one pass; more take several, which changes no bit */

/* Table of the matrices on the device, when these are taken; and given back. */
enum pv_status experts_take(struct device *dev, struct expert_weights *e, struct pv_error *err);
void experts_drop(struct device *dev, struct expert_weights *e);

/* Bytes of device_work.expert_scratch. */
size_t experts_scratch_size(const struct work_shape *s);

/* y = (with add: y +=) what the experts make of n rows. */
struct expert_call {
    const struct expert_weights *e;
    const float *x; /* for the router */
    const void *xn; /* as gate and up want them; may be x */
    float *y;
    int n;
    bool add;
    bool bulk; /* the router goes the way of many rows, and x has whole tiles of ROW_PAD rows */
    /* Where squares is not NULL (norm.h): x is that before the norm with these weights, and xn is
     * x times them, not scaled. */
    const float *norm_weight, *squares;
    float eps;
    struct few_norm next; /* weight not NULL: y is left ready for that norm */
};
void experts_rows(struct device_work *w, const struct expert_call *c);

/* struct device_ops.experts */
void experts_op(struct device_work *w, float *y, const struct expert_weights *e, const float *x,
                int n);

#endif
