/* Puts tensors of a file onto a device: matrices in the device's form, small tensors as f32. */
#ifndef PV_TENSOR_WEIGHTS_H
#define PV_TENSOR_WEIGHTS_H

#include "tensor/device.h"

/* Elements of a tensor; 0 for NULL. */
size_t weights_count(const struct tensor *t);

/* Store a norm, bias or table as f32 at *at in device memory and advance *at past it. NULL for
 * NULL. */
const float *weights_small(struct device *dev, float **at, const struct tensor *t);

/* The tensor as a matrix [out, in], whatever its dimensions; borrows its data. */
struct matrix weights_matrix(const struct tensor *t, int out, int in, const float *bias);

/* *out becomes m in the device's form (device_ops.take), or a random matrix of the same shape if
 * device.draws is set. */
enum pv_status weights_take(struct device *dev, struct matrix *out, struct matrix m,
                            struct pv_error *err);
/* Free a matrix of weights_take; a zeroed one is accepted. */
void weights_drop(struct device *dev, struct matrix *m);

#endif
