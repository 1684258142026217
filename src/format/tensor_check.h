/* Weights that are no numbers. */
#ifndef PV_FORMAT_TENSOR_CHECK_H
#define PV_FORMAT_TENSOR_CHECK_H

#include "base/status.h"

struct model_file;

/* Looks at every number, or every scale of a block, of every tensor of the model and its tower.
 * PV_E_FORMAT names the first tensor that holds a NaN or an infinity, and its row. Reads all of the
 * file: some seconds for gigabytes. */
enum pv_status model_file_check(const struct model_file *mf, struct pv_error *err);

#endif
