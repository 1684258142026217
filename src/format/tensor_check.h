/* A search for NaN and infinity in the weights of a model. */
#ifndef PV_FORMAT_TENSOR_CHECK_H
#define PV_FORMAT_TENSOR_CHECK_H

#include "base/status.h"

struct model_file;

/* Check every number, or every scale of a quantised block, of every tensor of the model and its
 * tower. PV_E_FORMAT names the first tensor that holds a NaN or an infinity, and its row. This
 * reads the whole file, which takes seconds for gigabytes. */
enum pv_status model_file_check(const struct model_file *mf, struct pv_error *err);

#endif
