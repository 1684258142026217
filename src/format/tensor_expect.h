/* Checks of a tensor's shape and type before it is used. */
#ifndef PV_FORMAT_TENSOR_EXPECT_H
#define PV_FORMAT_TENSOR_EXPECT_H

#include "base/status.h"
#include "tensor/tensor.h"

/* The tensor must have this shape. A vector must also be F32, F16 or BF16, and finite. `where`
 * names the file. */
enum pv_status tensor_expect(const struct tensor *t, const int64_t *dim, int n_dims,
                             const char *where, struct pv_error *err);
/* The tensor must be F32, F16 or BF16, because it is read element by element. */
enum pv_status tensor_expect_plain(const struct tensor *t, const char *where, struct pv_error *err);

#endif
