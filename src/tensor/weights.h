/* Tensors of a file as a device wants them: matrices where they lie, small tensors as f32. */
#ifndef PV_TENSOR_WEIGHTS_H
#define PV_TENSOR_WEIGHTS_H

#include "tensor/device.h"

/* Elements of a tensor; 0 for NULL. */
size_t weights_count(const struct tensor *t);

/* A norm, bias or table as f32 at *at in device memory, which moves past it; NULL stays NULL. */
const float *weights_small(struct device *dev, float **at, const struct tensor *t);

/* The tensor's rows as a matrix [out, in], whatever its dimensions are; borrows its data. */
struct matrix weights_matrix(const struct tensor *t, int out, int in, const float *bias);

/* *out becomes m as the device keeps it: taken, or where the device is told so, drawn. */
enum pv_status weights_take(struct device *dev, struct matrix *out, struct matrix m,
                            struct pv_error *err);
/* A matrix of weights_take, or a zeroed one. */
void weights_drop(struct device *dev, struct matrix *m);

#endif
